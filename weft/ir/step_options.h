// What a user chooses of how a step is computed.
#pragma once

#include <cstdint>

namespace weft {

// What a step of float32 computes its products in: as written, or on a narrower type with sums and
// all else in float32 (Micikevicius et al. 2018). Float16 needs a loss scale (optim/loss_scale.h).
// tf32: operands of products lose 13 of their 23 bits where a device has instructions for that.
enum class Precision : uint8_t { as_written, tf32, bf16_mixed, fp16_mixed };

// Which kernels may run again instead of keeping their results (Chen et al. 2016).
enum class Recompute : uint8_t {
  automatic,  // all, where there is a limit of memory; else none
  none,
  selective,  // those that only move and add: no products
  full,       // all, for at most a third more work where no limit of memory asks for more
};

}  // namespace weft
