// These options are a user's choices of how a step is computed.
#pragma once

#include <cstdint>

namespace weft {

// The precision in which a float32 step computes its products: as written, or on a narrower type
// with sums and everything else in float32 (Micikevicius et al. 2018). fp16_mixed needs a loss
// scale (optim/loss_scale.h). tf32 rounds operands of products from 23 to 10 bits of mantissa on
// devices that have instructions for it.
enum class Precision : uint8_t { as_written, tf32, bf16_mixed, fp16_mixed };

// Which kernels may be rematerialized instead of storing their results (Chen et al. 2016).
enum class Recompute : uint8_t {
  automatic,  // all where there is a memory limit, else none
  none,
  selective,  // only kernels without products
  full,       // all; without a memory limit, for at most a third more work
};

}  // namespace weft
