// Runs small enough for tests: recipes over little data, in a folder that goes away.
#pragma once

#include <string>
#include <vector>

#include "tests/io/helpers.h"
#include "weft/train/trainer.h"

namespace weft::test {

// A language model of one layer with dropout on sums of two digits, whose batches count differently
// many labels.
train::Recipe sums_recipe(const std::string& more = "");

// A convolution with batch norm on 96 training and 40 test images of 8 x 8 in four classes (bright
// quarters), written to `folder` as IDX files.
train::Recipe images_recipe(const TemporaryFolder& folder, const std::string& more = "");

// A signal that this process raises after a step.
struct SignalAt {
  int signal = 0;
  int64_t step = 0;  // 0: never
};
// Trains quietly under `folder`.
train::TrainResult train_in(const TemporaryFolder& folder, const train::Recipe& recipe,
                            bool resume = false, const SignalAt& signal = {});
// The same, where somebody meddles after each step.
train::TrainResult train_while(const TemporaryFolder& folder, const train::Recipe& recipe,
                               const std::function<void(int64_t step)>& after_step);

// Two checkpoints have the same model, optimiser, place in the data and random state, to the byte.
void check_equal(const std::string& a, const std::string& b);

std::vector<std::string> lines_of(const std::string& path);

// Of a run's closing line: the arena was written up to its planned end, but for a library's scratch
// that may stand there.
bool arena_is_as_planned(const std::string& closing);

}  // namespace weft::test
