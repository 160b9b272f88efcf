// Evaluates values outside of compiled steps, on plans that the session keeps. This header is
// internal to tensor/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "weft/ir/value.h"

namespace weft::detail {

// EagerCache has the plans that one session keeps.
class EagerCache;
std::shared_ptr<EagerCache> make_eager_cache();

// Returns the elements of pending values on the host, computed in the current session on the device
// of the innermost DeviceScope.
std::vector<Tensor> run_eagerly(std::span<const Tensor> values);

struct EagerPlans {
  int64_t made = 0;   // plans made since the session began, cached or not
  size_t cached = 0;  // plans in the cache now
};
EagerPlans eager_plans();  // of the current session

}  // namespace weft::detail
