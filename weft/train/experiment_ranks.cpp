// Defines what an experiment shares out to ranks: its batches, and its state.
#include "weft/base/text/pattern.h"
#include "weft/ir/mesh.h"
#include "weft/ir/variable.h"
#include "weft/train/experiment.h"

namespace weft::train {

int64_t Experiment::ranks() const { return mesh == nullptr ? 1 : mesh->size(data_axis); }

// Passes take consecutive rows of the batch, of which each rank has its part.
data::LoaderOptions Experiment::training() const {
  return {.batch_size = global_batch,
          .shuffle = true,
          .drop_last = true,
          .seed = recipe->seed,
          .part = mesh == nullptr ? 0 : mesh->place(data_axis),
          .parts = ranks(),
          .turn = micro_batch};
}
data::LoaderOptions Experiment::evaluation() const {
  return {.batch_size = eval_batch * ranks(),
          .part = mesh == nullptr ? 0 : mesh->place(data_axis),
          .parts = ranks()};
}

Layout Experiment::part(const Variable& variable, int64_t level) const {
  if (ranks() == 1 || recipe->parallel.zero < level) return {};
  return usual_part(variable.type(), data_axis, ranks());
}

void share_out(Experiment& experiment) {
  if (experiment.ranks() == 1) return;
  const auto share = [&](const std::vector<Variable>& variables, int64_t level) {
    for (const Variable& variable : variables)
      lay_out(*variable.state(), experiment.part(variable, level), *experiment.mesh);
  };
  share(experiment.update_state(), 1);
  std::vector<Variable> parameters = experiment.trained();
  // Files of published models have every expert of a mixture by itself, which a part is not.
  std::erase_if(parameters,
                [](const Variable& parameter) { return matches(parameter.name(), "*.experts.*"); });
  share(parameters, 3);
}

void share_out_sums(const Experiment& experiment, std::span<const Variable> parameters,
                    std::span<const Variable> sums) {
  for (size_t i = 0; i < sums.size(); ++i)
    if (const Layout part = experiment.part(parameters[i], 2); !part.splits.empty())
      lay_out(*sums[i].state(), part, *experiment.mesh);
}

}  // namespace weft::train
