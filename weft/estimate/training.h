// Estimates a step of training: what each part of it takes, on one device of a layout.
#pragma once

#include <string_view>
#include <vector>

#include "weft/estimate/costs.h"
#include "weft/estimate/job.h"

namespace weft::estimate {

enum class Part : uint8_t {
  products,
  attention,
  rows,  // norms, residuals, activations, the loss
  tensor_exchange,
  context_exchange,
  expert_exchange,
  data_exchange,  // what computation does not hide
  optimizer,
  bubble,  // waiting of a pipeline's stages
};
inline constexpr int part_count = 9;
std::string_view name(Part part);

struct StepTime {
  double seconds = 0;
  std::array<double, part_count> parts = {};  // they sum to `seconds`
};

// Estimates a step of training. Throws Error (usage) where the layout does not divide the shape.
StepTime training_step(const TrainingJob& job, const Layout& layout, const Costs& costs);

}  // namespace weft::estimate
