// Evaluates values outside of compiled steps, on plans that are kept. This header is internal to
// tensor/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/ir/value.h"

namespace weft::detail {

// Returns the elements of pending values on the host, computed on the device of the innermost
// DeviceScope.
std::vector<Tensor> run_eagerly(std::span<const Tensor> values);

struct EagerPlans {
  int64_t made = 0;  // plans made since the process began, kept or not
  size_t kept = 0;   // plans in the cache now
};
EagerPlans eager_plans();

}  // namespace weft::detail
