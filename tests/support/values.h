// Draws random values for tests, and compares results.
#pragma once

#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "weft/ir/value.h"

namespace weft::testing {

struct Random {
  std::mt19937_64 bits;
  explicit Random(uint64_t seed) : bits(seed) {}

  int64_t below(int64_t count) {
    return static_cast<int64_t>(bits() % static_cast<uint64_t>(count));
  }
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }
  bool chance(double probability) { return unit() < probability; }
  double unit() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[static_cast<size_t>(below(static_cast<int64_t>(from.size())))];
  }
};

// Returns a data leaf with elements in [low, high]: whole numbers for integers, coin flips for
// bool.
Value random_values(const Type& type, double low, double high, Random& random);
// Returns such values as a slice, transpose, flip or broadcast of other data.
Value random_view(const Type& type, double low, double high, Random& random);

// Returns the row-major elements of a data leaf.
std::vector<double> elements(const Value& data);

// Compare two data leaves; return "" where they agree (NaN equals NaN), else the largest
// difference. Integers must be equal. A float may differ by `tolerance` times the sum of its
// magnitude and that of a typical element (the root mean square), as rounding errors of a sum do
// (0: bitwise); or by its own `allowed`; an infinite or NaN bound is replaced by the cube root of
// the type's roundoff.
std::string difference(const Value& got, const Value& want, double tolerance);
std::string difference(const Value& got, const Value& want, std::span<const double> allowed);
// Compares bitwise: 0 differs from -0. Only the bits of a NaN are ignored.
std::string bit_difference(const Value& got, const Value& want);
// Compares all bits of numbers, including those of NaN.
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

}  // namespace weft::testing
