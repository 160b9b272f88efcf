// These options are a user's choices of how a step is computed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/base/numbers/dtype.h"
#include "weft/ir/offload.h"

namespace weft {

struct Mesh;

enum class Mode : uint8_t { train, eval };  // eval: dropout off, batch norm by running statistics

// Precision is the type of the factors of a float32 step's products: as written, or narrower, with
// sums and all other operations in float32 (Micikevicius et al. 2018). Float16 needs a loss scale
// (optim/loss_scale.h). tf32: factors lose 13 of their 23 fraction bits where a device has
// instructions for that.
enum class Precision : uint8_t { as_written, tf32, bf16_mixed, fp16_mixed };
// Returns the type of the factors of products; f32: as written.
constexpr DType product_type(Precision precision) {
  if (precision == Precision::bf16_mixed) return DType::bf16;
  return precision == Precision::fp16_mixed ? DType::f16 : DType::f32;
}

// Recompute says which kernels may be rematerialized instead of storing their results (Chen et al.
// 2016).
enum class Recompute : uint8_t {
  automatic,  // all where there is a memory limit, else none
  none,
  selective,  // only generated kernels, no library kernels (products)
  full,       // all; without a memory limit, for at most a third more work
};

struct StepOptions {
  Mode mode = Mode::train;
  std::string device = "auto";  // auto | cpu | cuda | opencl | reference | null (plans as cpu)
  Precision precision = Precision::as_written;
  // `activations` is the type, f32 or bf16, in which the backward pass reads float32 activations
  // (activation compression). Gradients are those of the rounded activations; losses change only by
  // the order of sums.
  DType activations = DType::f32;
  // `memory` limits the bytes of state, constants and arena together; 0: no limit. A step that
  // exceeds it is rematerialized; where that is not enough, Error(does_not_fit) is thrown.
  size_t memory = 0;
  size_t held = 0;  // bytes of that limit in use by others, such as the state of another step
  // `beside` is the bytes of host memory that the program holds for other purposes while the step
  // runs. A step that does not fit beside them is refused before it allocates.
  size_t beside = 0;
  Recompute recompute = Recompute::automatic;  // full, no limit: smallest plan for 1/3 more work
  // `rematerialize` has patterns of the paths of modules ("blocks.*") that are rematerialized,
  // whatever the limit: the backward pass recomputes their activations by the same kernels, with
  // the same bits. The results of a module are stored. A pattern that no module of the step matches
  // throws Error(usage).
  std::vector<std::string> rematerialize = {};
  // `row_tiles` is the number of tiles in which the widest rows (logits) are computed (row tiling),
  // with the same bits, so that they never exist whole; 0: as the limit requires.
  int row_tiles = 0;
  std::optional<double> until = {};  // processor_seconds() at which the search for a fit ends
  Offload offload = {};
  // `mesh` has the ranks that compute the step together. The function of a step is written for the
  // whole batch; each rank runs it with its part of the first axis of every input, scalars
  // excepted. Null: one rank.
  std::shared_ptr<const Mesh> mesh = nullptr;
  // `pack_weights` lets kernels keep weights that the step does not assign packed for their loops,
  // from run to run.
  bool pack_weights = true;
  // `derive_weights` lets values that depend on such weights alone be computed once, before the
  // first run, instead of in each run.
  bool derive_weights = true;
  // `lend_arguments` leaves inputs and results in the memory of whoever calls CompiledStep::run
  // with addresses, instead of copying them to and from the arena; for the host's devices.
  bool lend_arguments = false;
  // `store_every_value` computes each value of the step in the step, by a kernel of its own, and
  // stores it: kernels are neither fused nor joined, and weights are neither packed nor derived nor
  // copied in a narrower type.
  bool store_every_value = false;
  std::vector<std::string> skip = {};  // optional passes to leave out, by name (passes/table.h)
};

}  // namespace weft
