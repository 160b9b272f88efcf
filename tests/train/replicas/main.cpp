// A program of ranks for the tests of weft/train: rank 1 gets another state than the others.
//
//   replicas RECIPE WHAT
//
// WHAT: weight: one bit of a weight differs after 7 steps; numbers: a run draws other random
// numbers from step 3 on; none: ranks are equal.
#include <cstddef>
#include <string>
#include <vector>

#include "weft/base/memory/buffer.h"
#include "weft/base/memory/storage.h"
#include "weft/comm/join.h"
#include "weft/device/world.h"
#include "weft/ir/variable.h"
#include "weft/train/run/ranks.h"
#include "weft/train/run/trainer.h"
#include "weft/weft.h"

using namespace weft;

namespace {
void compare_weights(const train::Recipe& recipe) {
  train::Experiment experiment =
      train::make_experiment(recipe, {.mesh = train::mesh_of_ranks(recipe)});
  train::share_out(experiment);
  train::must_hold_alike(experiment, 6, 0);
  const Variable weight = experiment.model->parameters().back();
  if (world().rank() == 1) *weight.state()->storage->buffer()->data ^= std::byte{1};
  train::must_hold_alike(experiment, 7, 6);
}

void run(const std::string& path, const std::string& what) {
  comm::join();
  const train::Recipe recipe = train::Recipe::load(path);
  if (what == "weight")
    compare_weights(recipe);
  else
    train::train(recipe, {.quiet = true, .after_step = [&](int64_t step) {
                            if (what == "numbers" && step == 3 && world().rank() == 1)
                              random_step().assign(tensor(std::vector<int64_t>{40}, {}));
                          }});
  world().leave();
}
}  // namespace

int main(int /*argc*/, char** argv) try {
  run(argv[1], argv[2]);
  return 0;
} catch (...) {
  return report_failure();
}
