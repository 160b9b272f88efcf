// Random values for tests, and comparison of results.
#pragma once

#include <random>
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

// How far results of one dtype may differ, relative to the largest element of the tensor.
double tolerance_of(DType dtype);
// "" where two data leaves agree (NaN equals NaN), else what differs most. Integers must be equal.
std::string difference(const Value& got, const Value& want, double tolerance);

}  // namespace weft::testing
