// Simulates the stages of a pipeline, event by event: what each device does and when it waits.
//
// Sources: 1F1B, Narayanan et al. 2021a (PipeDream-Flush); interleaved, Narayanan et al. 2021b;
// zero bubble (ZB-H1), Qi et al. 2023.
#pragma once

#include <cstdint>
#include <vector>

namespace weft::estimate {

enum class Schedule : uint8_t {
  one_forward_one_backward,  // interleaved where a stage has several chunks
  zero_bubble,               // gradients of weights fill what would be waiting; one chunk
};

// ChunkSeconds are of one micro-batch in one chunk of layers.
struct ChunkSeconds {
  double forward = 0;
  double backward = 0;  // gradients of activations, and of weights unless these are apart
  double weights = 0;   // gradients of weights, where the schedule moves them
};

struct Pipeline {
  int64_t stages = 1, micro_batches = 1;
  Schedule schedule = Schedule::one_forward_one_backward;
  // Chunk c of stage s stands at [c * stages + s], the order in which a micro-batch meets them.
  std::vector<ChunkSeconds> chunks;
  double send = 0;  // seconds of a transfer between stages, which computation hides

  int64_t interleave() const { return static_cast<int64_t>(chunks.size()) / stages; }
};

struct PipelineRun {
  double seconds = 0;
  std::vector<double> busy;        // seconds of each stage
  std::vector<int64_t> in_flight;  // micro-batches times chunks whose activations a stage holds
  // Returns the share of the devices' time that they wait.
  double bubble() const;
};

// Needs micro_batches to be a multiple of stages where interleave() > 1; throws Error.
PipelineRun simulate(const Pipeline& pipeline);

}  // namespace weft::estimate
