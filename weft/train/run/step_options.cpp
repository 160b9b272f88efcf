// Defines the options of steps that a recipe chooses.
#include "weft/train/run/steps.h"

namespace weft::train {

StepOptions step_options(const Experiment& experiment, const std::string& device) {
  return step_options(experiment, device, experiment.recipe);
}
StepOptions step_options(const Experiment& experiment, const std::string& device,
                         const Recipe& recipe) {
  StepOptions options{.device = device,
                      .precision = experiment.precision.products,
                      .beside = experiment.data_bytes() + experiment.snapshot_bytes(recipe),
                      .recompute = recipe->train.recompute,
                      .offload = offload_of(recipe),
                      .mesh = experiment.mesh};
  // Kernels that keep weights packed may sum in another order, and are planned only where memory is
  // not limited. The bits of a run must not depend on that limit. Updates would make these kernels
  // pack anew, too.
  options.pack_weights = false;
  if (recipe->train.keep != DType::f32) options.activations = recipe->train.keep;
  if (recipe->train.chunks) options.row_tiles = static_cast<int>(*recipe->train.chunks);
  if (recipe->train.memory) options.memory = static_cast<size_t>(*recipe->train.memory);
  return options;
}

}  // namespace weft::train
