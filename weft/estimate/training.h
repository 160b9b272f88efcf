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
  double operations = 0;  // of the model, without recomputation, of all devices; causal by half

  double part(Part which) const { return parts[static_cast<size_t>(which)]; }
};

// Estimates a step of training. Throws Error (usage) where the layout does not divide the shape.
StepTime training_step(const TrainingJob& job, const Layout& layout, const Costs& costs);

// Returns the operations of a step over all devices: 6 for each weight of a product and token, and
// 12 for attention (Narayanan et al. 2021), a half of it where it is causal.
double model_operations(const TrainingJob& job, const Layout& layout);

}  // namespace weft::estimate
