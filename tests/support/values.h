// Random values for tests, and comparison of results.
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

// A data leaf with elements in [low, high], whole numbers for integers, coin flips for bool.
Value random_values(const Type& type, double low, double high, Random& random);
// The same as a slice, a transpose, a flip or a broadcast of other data.
Value random_view(const Type& type, double low, double high, Random& random);

// Row-major elements of a data leaf.
std::vector<double> elements(const Value& data);

// "" where two data leaves agree (NaN equals NaN), else what differs most. Integers must be equal.
// Each float may be off by `tolerance` times its own magnitude and that of a typical element (the
// root mean square), which is what rounding a sum costs (0: to the bit); or by `allowed` of its
// own; where such a bound is infinite or NaN, by the cube root of the type's roundoff.
std::string difference(const Value& got, const Value& want, double tolerance);
std::string difference(const Value& got, const Value& want, std::span<const double> allowed);
// To the bit: 0 is not -0. Only the bits of a NaN are left open.
std::string bit_difference(const Value& got, const Value& want);
// The same of numbers, and of NaN's bits.
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

}  // namespace weft::testing
