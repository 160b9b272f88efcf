// These options are a user's choices of how a step is computed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weft/base/dtype.h"
#include "weft/ir/offload.h"

namespace weft {

enum class Mode : uint8_t { train, eval };  // eval: dropout off, batch norm by running statistics

// What a step of float32 computes its products in: as written, or on a narrower type with sums and
// all else in float32 (Micikevicius et al. 2018). Float16 needs a loss scale (optim/loss_scale.h).
// tf32: operands of products lose 13 of their 23 bits where a device has instructions for that.
enum class Precision : uint8_t { as_written, tf32, bf16_mixed, fp16_mixed };
// The type of the operands of products; f32: as written.
constexpr DType product_type(Precision precision) {
  if (precision == Precision::bf16_mixed) return DType::bf16;
  return precision == Precision::fp16_mixed ? DType::f16 : DType::f32;
}

// Which kernels may be rematerialized instead of storing their results (Chen et al. 2016).
enum class Recompute : uint8_t {
  automatic,  // all where there is a memory limit, else none
  none,
  selective,  // only kernels without products
  full,       // all; without a memory limit, for at most a third more work
};

struct StepOptions {
  Mode mode = Mode::train;
  std::string device = "auto";  // auto | cpu | cuda | opencl | reference | null (plans as cpu)
  Precision precision = Precision::as_written;
  // Type in which what the backward pass reads of a float32 forward pass is kept: f32 or bf16.
  // Losses stay the same; gradients are those of rounded activations.
  DType keep = DType::f32;
  // Most bytes of state, constants and arena together; 0: no limit. What does not fit at first is
  // computed again; throws Error(does_not_fit) where that is not enough.
  size_t memory = 0;
  size_t held = 0;  // bytes of that limit that others hold: the state of another step
  // Bytes of the host's memory that the program holds while the step runs, for its data: a step
  // that does not fit beside them is refused before it takes memory.
  size_t beside = 0;
  Recompute recompute = Recompute::automatic;  // full without a limit: as small as it goes
  // Modules by the pattern of their path ("blocks.*"), whatever the limit: the activations inside
  // of each are computed again for its backward pass, by the same kernels and so to the same bits.
  // What leaves a module is kept. Throws Error(usage) for a pattern that no module of the step has.
  std::vector<std::string> rematerialize = {};
  // Into so many parts the widest rows (logits) are cut, so that they never exist whole, to the
  // same bits; 0: as the limit asks.
  int chunks = 0;
  std::optional<double> until = {};  // processor_seconds(): then no more is tried to fit
  Offload offload = {};
  std::vector<std::string> skip = {};  // optional passes to leave out, by name
};

}  // namespace weft
