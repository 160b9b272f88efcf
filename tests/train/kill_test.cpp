// Checkpoints under kill -9: whatever the moment, what is there is whole, and the run goes on as if
// nobody had killed it.
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <doctest/doctest.h>

#include "tests/train/runs.h"
#include "weft/base/philox.h"
#include "weft/train/checkpoint.h"

using namespace weft;
using namespace weft::test;

namespace {
constexpr const char* folder_variable = "WEFT_TEST_KILLED_RUN";
constexpr const char* kind_variable = "WEFT_TEST_KILLED_KIND";
constexpr int rounds = 13;  // of each kind

enum Kind { language_model, convolutions, recurrent, scaled, kinds };

train::Recipe killed_recipe(int kind, const TemporaryFolder& data, int64_t steps) {
  const std::string common =
      fmt::format("name: killed\ntrain: {{steps: {}, global_batch_size: 4}}\n", steps);
  train::Recipe recipe = kind == convolutions ? images_recipe(data, common + "eval: {every: 3}\n")
                                              : sums_recipe(common + "eval: {every: 1000000}\n");
  recipe.set("checkpoint.every", "1", "test");
  recipe.set("checkpoint.keep_last", "2", "test");
  if (kind == convolutions) recipe.set("checkpoint.best", "accuracy", "test");
  if (kind == recurrent) {
    recipe.set("model.name", "lstm", "test");
    recipe.set("model.config", "{hidden_size: 16}", "test");
  }
  if (kind == scaled) {
    recipe.set("train.precision", "fp16-mixed", "test");
    recipe.set("train.micro_batch_size", "2", "test");
  }
  return recipe;
}

pid_t start_child(const std::string& folder, int kind) {
  pid_t child = fork();
  if (child != 0) return child;
  setenv(folder_variable, folder.c_str(), 1);
  setenv(kind_variable, std::to_string(kind).c_str(), 1);
  execl("/proc/self/exe", "train", "--test-case=trains until it is killed", "--no-skip", nullptr);
  _exit(127);
}

void check_kills(int kind) {
  CAPTURE(kind);
  const TemporaryFolder folder, data;
  const std::string run = folder.file("runs/killed");
  int64_t last = 0;
  for (int round = 0; round < rounds; ++round) {
    pid_t child = start_child(folder.path(), kind);
    // Until it has saved something new; then at any moment of the steps that follow.
    auto newest = [&] {
      auto all = train::list_checkpoints(run);
      return all.empty() ? 0 : all.back().step;
    };
    auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (newest() <= last && std::chrono::steady_clock::now() < give_up)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::this_thread::sleep_for(std::chrono::microseconds(
        philox_word({.seed = 1, .stream = kind, .step = round}, 0) % 50000));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    REQUIRE(WIFSIGNALED(status));

    auto all = train::list_checkpoints(run);
    REQUIRE(!all.empty());
    for (const auto& checkpoint : all) train::verify_checkpoint(checkpoint.path);
    train::verify_checkpoint(train::find_checkpoint(run));
    CHECK(all.back().step > last);
    last = all.back().step;
  }
  // What the killed ones left half-written goes.
  train::remove_partial_checkpoints(run);
  for (const auto& entry : std::filesystem::directory_iterator(run + "/checkpoints"))
    CHECK(entry.path().string().find(".partial-") == std::string::npos);

  const TemporaryFolder whole;
  const train::Recipe recipe = killed_recipe(kind, data, last + 3);
  check_equal(train_in(folder, recipe, /*resume=*/true).checkpoint,
              train_in(whole, recipe).checkpoint);
}
}  // namespace

TEST_SUITE("slow kill") {
  TEST_CASE("trains until it is killed" * doctest::skip()) {
    const char* folder = std::getenv(folder_variable);
    if (folder == nullptr) return;
    const TemporaryFolder data{folder};  // goes with its parent, however this process ends
    const std::string runs = std::string(folder) + "/runs";
    train::train(
        killed_recipe(std::atoi(std::getenv(kind_variable)), data, 1000000),
        {.runs = runs, .resume = std::filesystem::exists(runs + "/killed"), .quiet = true});
  }

  TEST_CASE("kills in the midst of training leave whole checkpoints that the run goes on from") {
    for (int kind = 0; kind < kinds; ++kind) check_kills(kind);
  }
}
