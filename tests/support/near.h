// Compares within a relative error: `CHECK(got == near(want, 1e-9))`.
#pragma once

#include <cmath>
#include <ostream>

namespace weft::testing {

struct Near {
  double value;
  double tolerance;  // relative to `value` alone: only 0 is near 0
};

inline Near near(double value, double tolerance = 1e-6) { return {value, tolerance}; }

// An infinity is near itself; NaN is near nothing.
inline bool operator==(double got, const Near& want) {
  if (got == want.value) return true;
  return std::isfinite(want.value) &&
         std::fabs(got - want.value) <= want.tolerance * std::fabs(want.value);
}
// Returns the larger of two distances; NaN if either is NaN, which std::max might drop.
inline double larger(double a, double b) { return std::isnan(a) || a > b ? a : b; }

inline std::ostream& operator<<(std::ostream& out, const Near& want) {
  return out << want.value << " (within " << want.tolerance << " of it)";
}

}  // namespace weft::testing
