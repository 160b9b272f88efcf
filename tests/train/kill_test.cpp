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
constexpr int rounds = 20;

train::Recipe killed_recipe(int64_t steps) {
  return sums_recipe(
      fmt::format("name: killed\ntrain: {{steps: {}, global_batch_size: 2}}\n"
                  "eval: {{every: 1000000}}\n",
                  steps));
}

pid_t start_child(const std::string& runs) {
  pid_t child = fork();
  if (child != 0) return child;
  setenv(folder_variable, runs.c_str(), 1);
  execl("/proc/self/exe", "train", "--test-case=trains until it is killed", "--no-skip", nullptr);
  _exit(127);
}
}  // namespace

TEST_SUITE("slow kill") {
  TEST_CASE("trains until it is killed" * doctest::skip()) {
    const char* runs = std::getenv(folder_variable);
    if (runs == nullptr) return;
    train::Recipe recipe = killed_recipe(1000000);
    recipe.set("checkpoint.every", "1", "test");
    recipe.set("checkpoint.keep_last", "2", "test");
    bool resume = std::filesystem::exists(std::filesystem::path(runs) / "killed");
    train::train(recipe, {.runs = runs, .resume = resume, .quiet = true});
  }

  TEST_CASE(
      "twenty kills in the midst of saving leave whole checkpoints that the run goes on from") {
    TemporaryFolder folder;
    int64_t last = 0;
    for (int round = 0; round < rounds; ++round) {
      pid_t child = start_child(folder.path());
      // Until it has saved something new; then at any moment of the steps that follow.
      auto newest = [&] {
        auto all = train::list_checkpoints(folder.file("killed"));
        return all.empty() ? 0 : all.back().step;
      };
      auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
      while (newest() <= last && std::chrono::steady_clock::now() < give_up)
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      std::this_thread::sleep_for(
          std::chrono::microseconds(philox_word({.seed = 1, .step = round}, 0) % 50000));
      kill(child, SIGKILL);
      int status = 0;
      waitpid(child, &status, 0);
      REQUIRE(WIFSIGNALED(status));

      auto all = train::list_checkpoints(folder.file("killed"));
      REQUIRE(!all.empty());
      for (const auto& checkpoint : all) train::verify_checkpoint(checkpoint.path);
      train::verify_checkpoint(train::find_checkpoint(folder.file("killed")));
      CHECK(all.back().step > last);
      last = all.back().step;
    }
    // What the killed ones left half-written goes.
    train::remove_partial_checkpoints(folder.file("killed"));
    for (const auto& entry : std::filesystem::directory_iterator(folder.file("killed/checkpoints")))
      CHECK(entry.path().string().find(".partial-") == std::string::npos);

    const TemporaryFolder whole;
    const train::Recipe recipe = killed_recipe(last + 3);
    check_equal(train_in(folder, recipe, /*resume=*/true).checkpoint,
                train_in(whole, recipe).checkpoint);
  }
}
