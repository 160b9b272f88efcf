// Computes the median of measurements.
#pragma once

#include <algorithm>
#include <vector>

namespace weft {

// Returns the median: the mean of the middle two of an even number of values, 0 of none.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

}  // namespace weft
