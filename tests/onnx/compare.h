// Compares tensors as the onnx package's own runner does.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "weft/tensor/tensor.h"

namespace weft {

struct Tolerance {
  double relative = 1e-3, absolute = 1e-7;
};

// Returns what differs, as the package's own runner compares; "" where nothing does.
inline std::string difference(const Tensor& got, const Tensor& expected, Tolerance tolerance) {
  if (!(got.type() == expected.type()))
    return fmt::format("got {}, expected {}", to_string(got.type()), to_string(expected.type()));
  if (got.dtype() == DType::bf16)  // two units in the last place
    tolerance.relative = std::max(tolerance.relative, 0x1p-6);
  const std::vector<double> a = got.to_doubles(), b = expected.to_doubles();
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (a[i] == b[i]) continue;
    if (!(std::fabs(a[i] - b[i]) <= tolerance.absolute + tolerance.relative * std::fabs(b[i])))
      return fmt::format("element {}: got {}, expected {}", i, a[i], b[i]);
  }
  return "";
}

}  // namespace weft
