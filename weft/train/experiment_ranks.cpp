// Defines what an experiment shares out to ranks: its batches, and its state.
#include <utility>

#include "weft/base/memory/storage.h"
#include "weft/ir/variable.h"
#include "weft/train/checkpoint/checkpoint.h"
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
  share(experiment.trained(), 3);
}

void share_out_sums(const Experiment& experiment, std::span<const Variable> parameters,
                    std::span<const Variable> sums) {
  for (size_t i = 0; i < sums.size(); ++i)
    if (const Layout part = experiment.part(parameters[i], 2); !part.splits.empty())
      lay_out(*sums[i].state(), part, *experiment.mesh);
}

WholeScope::WholeScope(Experiment& experiment, const std::string& checkpoint) {
  for (const Variable& parameter : experiment.trained())
    if (!parameter.state()->ranges.empty())
      parts_.push_back({parameter, {}, {}, std::make_shared<Storage>(parameter.type().bytes())});
  if (parts_.empty()) return;
  swap();
  load_model(checkpoint, experiment);
}
WholeScope::~WholeScope() { swap(); }

void WholeScope::swap() {
  for (Part& part : parts_) {
    VariableState& variable = *part.variable.state();
    std::swap(variable.layout, part.layout);
    std::swap(variable.ranges, part.ranges);
    std::swap(variable.storage, part.storage);
    variable.leaf.reset();
    // Narrower copies are of the other elements now, and must not pass for theirs.
    const uint64_t known = part.storage->writes();
    while (variable.storage->writes() <= known) variable.storage->note_write();
  }
}

}  // namespace weft::train
