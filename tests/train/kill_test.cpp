// Tests checkpoints under kill -9: at any moment the saved ones are intact, and a resumed run
// continues as if it had not been killed.
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/train/runs.h"
#include "weft/base/numbers/philox.h"
#include "weft/base/text/partial_name.h"
#include "weft/train/checkpoint/checkpoint.h"

using namespace weft;
using namespace weft::test;

namespace {
constexpr const char* folder_variable = "WEFT_TEST_KILLED_RUN";
constexpr const char* kind_variable = "WEFT_TEST_KILLED_KIND";
constexpr int rounds = 20, starts = 5;  // per kind

enum RunKind { language_model, convolutions, recurrent, scaled, kinds };

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

using Clock = std::chrono::steady_clock;
constexpr auto steps_after_save = std::chrono::milliseconds(50);

int64_t newest_step(const std::string& run) {
  const auto all = train::list_checkpoints(run);
  return all.empty() ? 0 : all.back().step;
}

// Kills the child after a random time of at most `span`.
void kill_within(Clock::duration span, pid_t child, const PhiloxKey& draw) {
  std::this_thread::sleep_for(span / 1000 * (philox_word(draw, 0) % 1000));
  kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  REQUIRE(WIFSIGNALED(status));
}

void check_whole(const std::string& run) {
  const auto all = train::list_checkpoints(run);
  for (const auto& checkpoint : all) train::verify_checkpoint(checkpoint.path);
  if (!all.empty()) train::verify_checkpoint(train::find_checkpoint(run));
}

// Returns the steps and losses of the run's log.
std::vector<std::pair<int64_t, double>> losses_by_step(const std::string& run) {
  std::vector<std::pair<int64_t, double>> losses;
  for (const std::string& line : lines_of(run + "/log.jsonl")) {
    const auto entry = nlohmann::json::parse(line);
    if (entry.contains("step")) losses.emplace_back(entry["step"], entry["loss"]);
  }
  return losses;
}

// Checks that the run resumes, or starts if it has not yet, with the results of an undisturbed run.
void check_going_on(const TemporaryFolder& folder, int kind, const TemporaryFolder& data) {
  const std::string runs = folder.file("runs"), run = runs + "/killed";
  const TemporaryFolder whole;
  const train::Recipe recipe = killed_recipe(kind, data, newest_step(run) + 3);
  check_equal(train_in(folder, recipe, /*resume=*/std::filesystem::exists(run)).checkpoint,
              train_in(whole, recipe).checkpoint);
  CHECK(losses_by_step(run) == losses_by_step(whole.file("runs/killed")));
  // Partial files of killed processes must have been removed.
  for (const std::string& at : {runs, run, run + "/checkpoints"})
    for (const auto& entry : std::filesystem::directory_iterator(at))
      CHECK(!partial_owner(entry.path().filename().string()));
}

void check_kills(int kind) {
  CAPTURE(kind);
  const TemporaryFolder folder, data;
  const std::string run = folder.file("runs/killed");
  Clock::duration start_takes{};
  int64_t last = 0;
  for (int round = 0; round < rounds; ++round) {
    const Clock::time_point began = Clock::now();
    const pid_t child = start_child(folder.path(), kind);
    const bool while_it_resumes = round % 3 == 1;
    if (!while_it_resumes) {
      while (newest_step(run) <= last && Clock::now() < began + std::chrono::seconds(60))
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      start_takes = Clock::now() - began;
    }
    kill_within(while_it_resumes ? start_takes : steps_after_save, child,
                {.seed = 1, .stream = kind, .step = round});
    check_whole(run);
    CHECK(newest_step(run) >= last + (while_it_resumes ? 0 : 1));
    last = newest_step(run);
  }
  check_going_on(folder, kind, data);

  for (int start = 0; start < starts; ++start) {
    CAPTURE(start);
    const TemporaryFolder fresh;
    kill_within(start_takes, start_child(fresh.path(), kind),
                {.seed = 2, .stream = kind, .step = start});
    check_whole(fresh.file("runs/killed"));
    check_going_on(fresh, kind, data);
  }
}
}  // namespace

TEST_SUITE("slow kill") {
  TEST_CASE("trains until it is killed" * doctest::skip()) {
    const char* folder = std::getenv(folder_variable);
    if (folder == nullptr) return;
    const TemporaryFolder data{folder};  // its parent removes it, however this process ends
    const std::string runs = std::string(folder) + "/runs";
    train::train(
        killed_recipe(std::atoi(std::getenv(kind_variable)), data, 1000000),
        {.runs = runs, .resume = std::filesystem::exists(runs + "/killed"), .quiet = true});
  }

  TEST_CASE("a run killed while it starts, resumes or trains resumes from a whole checkpoint") {
    for (int kind = 0; kind < kinds; ++kind) check_kills(kind);
  }
}
