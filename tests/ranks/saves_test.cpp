// Tests saves of several ranks, each of which writes its ranges of one file: where a rank is killed
// in the middle or its disk fails, a whole checkpoint is there, and the run goes on from it with
// the bits of an undisturbed run.
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/comm/ranks_program.h"
#include "tests/support/exit_codes.h"
#include "tests/support/program.h"
#include "tests/support/skip.h"
#include "weft/train/checkpoint/checkpoint.h"

namespace fs = std::filesystem;
using namespace weft;
using namespace weft::test;

namespace {
constexpr int saving_ranks = 2;
// Weights and state are above 16 KiB, so that ranks have parts of them.
constexpr const char* saved_recipe =
    "name: gpt\nmodel: {name: gpt, config: {hidden_size: 48, num_hidden_layers: 1, "
    "num_attention_heads: 4, dropout: 0}}\n"
    "data: {dataset: random-tokens, seq_len: 8, classes: 48}\n"
    "optimizer: {name: adamw, lr: 0.01}\n"
    "train: {steps: 2, global_batch_size: 4, precision: fp64}\neval: {every: 1000000}\n"
    "checkpoint: {every: 2, keep_last: 1}\nlog: {every: 100}\nparallel: {zero: 3}\n";

// A SavesPlace has a run that saved step 2, and the files that an undisturbed run saves later.
class SavesPlace : public Workplace {
 public:
  SavesPlace() {
    write("gpt.yaml", saved_recipe);
    REQUIRE(train({}).code == 0);
    fs::copy(path("runs/gpt"), path("begun"), keeping_links);
    for (const int64_t step : {4, 6}) {
      REQUIRE(train({"--resume", "--steps", std::to_string(step)}).code == 0);
      undisturbed_.push_back(files());
    }
  }

  Outcome train(const std::vector<std::string>& more, const Environment& environment = {}) const {
    std::vector<std::string> words = {"launch",          "-n",    std::to_string(saving_ranks),
                                      "--oversubscribe", "train", "gpt.yaml"};
    words.insert(words.end(), more.begin(), more.end());
    return weft(words, environment);
  }
  // Goes on from step 2 with a fault (file_fault/library.cpp) of a rank while it saves step 4.
  Outcome train_with(const std::string& what, int rank, int call, const std::string& steps,
                     const std::string& word = "step-00000004") const {
    begin_anew();
    const std::string fault =
        what + " " + std::to_string(rank) + " " + std::to_string(call) + " " + word;
    return train({"--resume", "--steps", steps}, environment_of(fault));
  }
  Environment environment_of(const std::string& fault) const {
    return {{"LD_PRELOAD", std::string(std::getenv("BUILD")) + "/tests/file_fault.so"},
            {"FILE_FAULT", fault},
            {"FILE_FAULT_LOG", path("fault.log")}};
  }
  void begin_anew() const {
    fs::remove_all(path("runs/gpt"));
    fs::remove(path("fault.log"));
    fs::copy(path("begun"), path("runs/gpt"), keeping_links);
  }
  // Returns the system call at which the fault came; "" where it did not.
  std::string failed_call() const {
    const std::string text = read("fault.log");
    return text.substr(0, text.find('\n'));
  }
  int64_t newest_whole() const {
    const std::string found = train::newest_whole_checkpoint(path("runs/gpt"));
    for (const auto& checkpoint : train::list_checkpoints(path("runs/gpt")))
      train::verify_checkpoint(checkpoint.path);
    return std::stoll(fs::canonical(found).filename().string().substr(5));
  }
  // Checks that the checkpoint of step 4 or 6 has the bits of the undisturbed run.
  void check_saved(int64_t step) const {
    CHECK(newest_whole() == step);
    CHECK(files() == undisturbed_.at(static_cast<size_t>(step / 2 - 2)));
    for (const auto& entry : fs::directory_iterator(path("runs/gpt/checkpoints")))
      CHECK(!says(entry.path().filename().string(), ".partial-"));
  }

 private:
  static constexpr auto keeping_links =
      fs::copy_options::recursive | fs::copy_options::copy_symlinks;
  std::vector<std::string> files() const {
    std::vector<std::string> all;
    for (const char* file :
         {"model.safetensors", "state-optimizer.safetensors", "data.json", "rng.json"}) {
      all.push_back(read(std::string("runs/gpt/checkpoints/latest/") + file));
      CHECK(!all.back().empty());
    }
    return all;
  }
  std::vector<std::vector<std::string>> undisturbed_;  // of steps 4 and 6
};

bool can_preload() {
  if (testing::sanitized) testing::skipped("sanitizers must be the first library that is loaded");
  return !testing::sanitized;
}
}  // namespace

TEST_SUITE_BEGIN("slow saves");

TEST_CASE("a rank killed after any system call of a save leaves a whole checkpoint to resume") {
  if (!can_preload()) return;
  const SavesPlace place;
  for (int rank = 0; rank < saving_ranks; ++rank) {
    std::set<std::string> calls;
    int64_t newest = 2;
    for (int call = 1;; ++call) {
      CAPTURE(rank);
      CAPTURE(call);
      const Outcome outcome = place.train_with("kill", rank, call, "4");
      CAPTURE(outcome.err);
      if (place.failed_call().empty()) {
        CHECK(outcome.code == 0);
        break;
      }
      calls.insert(place.failed_call());
      CHECK(outcome.code == rank_lost);
      CHECK(says(outcome.err, "weft: error: rank " + std::to_string(rank) + " (host "));
      CHECK(says(outcome.err, "is dead: its connection closed"));
      const int64_t found = place.newest_whole();
      CHECK((found == newest || found == 4));
      newest = found;
      const Outcome resumed = place.train({"--resume", "--steps", "6"});
      CAPTURE(resumed.err);
      CHECK(resumed.code == 0);
      CHECK(resumed.err == "");
      place.check_saved(6);
    }
    CHECK(newest == (rank == 0 ? 4 : 2));
    for (const char* call : {"open", "pwrite", "fsync"}) CHECK(calls.contains(call));
    if (rank == 0)
      for (const char* call : {"mkdir", "create", "write", "ftruncate", "rename", "symlink"})
        CHECK(calls.contains(call));
  }
}

TEST_SUITE_END();
