// Declares training runs small enough for tests: recipes over little data in a temporary folder.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tests/io/helpers.h"
#include "weft/train/run/trainer.h"

namespace weft::test {

inline const std::string train_two_steps = "train: {steps: 2, global_batch_size: 4}\n";

using Settings = std::vector<std::pair<std::string, std::string>>;  // keys and values
// Returns the recipe with these settings.
train::Recipe with(train::Recipe recipe, const Settings& settings);

// Returns the recipe of a one-layer language model with dropout on sums of two digits. Its batches
// differ in the number of labels that count.
train::Recipe sums_recipe(const std::string& more = "");
inline train::Recipe two_steps() { return sums_recipe(train_two_steps); }

// Returns the recipe of a convolution with batch norm on 96 training and 40 test images of 8 x 8 in
// four classes (bright quarters), and writes these to `folder` as IDX files.
train::Recipe images_recipe(const TemporaryFolder& folder, const std::string& more = "");

// SignalAt is a signal that this process raises after a step.
struct SignalAt {
  int signal = 0;
  int64_t step = 0;  // 0: never
};
// Trains quietly under `folder`.
train::TrainResult train_in(const TemporaryFolder& folder, const train::Recipe& recipe,
                            bool resume = false, const SignalAt& signal = {});
// Trains likewise and calls `after_step` after each step, which may tamper with files.
train::TrainResult train_while(const TemporaryFolder& folder, const train::Recipe& recipe,
                               const std::function<void(int64_t step)>& after_step);

// Checks that two checkpoints have bit-equal model, optimizer, data position and random state.
void check_equal(const std::string& a, const std::string& b);

std::vector<std::string> lines_of(const std::string& path);

// Evaluates a model on inputs, in eval mode.
Tensor logits_of(const Model& model, const Tensor& inputs);

// Returns whether a run's closing line reports an arena used to its planned end, except for library
// scratch that may be there.
bool arena_is_as_planned(const std::string& closing);

}  // namespace weft::test
