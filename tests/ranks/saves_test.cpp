// Tests saves of several ranks, each of which writes its ranges of one file: where a rank is killed
// in the middle or its disk fails, a whole checkpoint is there, and the run goes on from it with
// the bits of an undisturbed run.
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

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

class SavesPlace : public Workplace {
 public:
  SavesPlace() { write("gpt.yaml", saved_recipe); }
  // Trains a run that saved step 2, for train_with(), and an undisturbed one, for check_saved().
  void begin() {
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
  Outcome train_with(const std::string& what, int rank, int call, const std::string& steps) const {
    fs::remove_all(path("runs/gpt"));
    fs::remove(path("fault.log"));
    fs::copy(path("begun"), path("runs/gpt"), keeping_links);
    return train({"--resume", "--steps", steps},
                 fault(fmt::format("{} {} {} step-00000004", what, rank, call)));
  }
  Environment fault(const std::string& text) const {
    return {{"LD_PRELOAD", std::string(std::getenv("BUILD")) + "/tests/file_fault.so"},
            {"FILE_FAULT", text},
            {"FILE_FAULT_LOG", path("fault.log")}};
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
  }
  // Returns whether unfinished files are left.
  bool has_leftovers() const {
    for (const auto& entry : fs::recursive_directory_iterator(path("runs")))
      if (says(entry.path().filename().string(), ".partial-")) return true;
    return false;
  }
  // Returns the contents of the latest checkpoint's files.
  std::vector<std::string> files() const {
    std::vector<std::string> all;
    for (const char* file :
         {"model.safetensors", "state-optimizer.safetensors", "data.json", "rng.json"}) {
      all.push_back(read(std::string("runs/gpt/checkpoints/latest/") + file));
      CHECK(!all.back().empty());
    }
    return all;
  }

 private:
  static constexpr auto keeping_links =
      fs::copy_options::recursive | fs::copy_options::copy_symlinks;
  std::vector<std::vector<std::string>> undisturbed_;  // of steps 4 and 6
};

bool can_preload() {
  if (testing::sanitized) testing::skipped("sanitizers must be the first library that is loaded");
  return !testing::sanitized;
}
}  // namespace

TEST_CASE("a save that a full disk of one rank prevents is a warning that names the rank") {
  if (!can_preload()) return;
  const SavesPlace place;
  REQUIRE(place.train({"--steps", "6"}).code == 0);
  const std::vector<std::string> undisturbed = place.files();
  const Outcome outcome =
      place.train({"--steps", "6", "--overwrite"}, place.fault("full 1 1 step-00000004"));
  CHECK(goes_on_with(outcome, "checkpoint of step 4: rank 1 (host ") == "");
  CHECK(says(outcome.err, ": No space left on device. Earlier checkpoints are intact. The run "));
  CHECK(!fs::exists(place.path("runs/gpt/checkpoints/step-00000004")));
  CHECK(place.newest_whole() == 6);
  CHECK(place.files() == undisturbed);
}

TEST_CASE("ranks end alike where the first of them cannot begin a run") {
  if (!can_preload()) return;
  const SavesPlace place;
  const Outcome outcome = place.train({}, place.fault("full 0 1 checkpoints"));
  CHECK(fails_with(outcome, failed, "No space left on device") == "");
  CHECK(!fs::exists(place.path("runs/gpt")));
}

TEST_SUITE_BEGIN("slow saves");

TEST_CASE("ranks go on where the folder of their run cannot be recreated") {
  const SavesPlace place;
  Running run = place.start(std::getenv("WEFT"),
                            {"launch", "-n", "2", "--oversubscribe", "train", "gpt.yaml",
                             "--overwrite", "--steps", "100000000", "--checkpoint.every", "200"});
  const std::string folder = place.path("runs/gpt");
  REQUIRE(run.until([&] { return fs::exists(folder + "/checkpoints/step-00000200"); }));
  fs::rename(folder, place.path("runs/aside"));
  place.write("runs/gpt", "a file in the way");
  REQUIRE(run.until([&] { return says(place.read(".err"), "The run continues"); }));
  fs::remove(folder);
  REQUIRE(run.until([&] { return fs::exists(folder + "/checkpoints/latest"); }));
  run.signal(SIGTERM);
  const Outcome outcome = run.wait();
  CAPTURE(outcome.err);
  CHECK(outcome.code == stopped);
  CHECK(says(outcome.err, "was removed during the run: it is recreated"));
  CHECK(place.train({"--resume", "--steps", std::to_string(place.newest_whole() + 2)}).code == 0);
}

TEST_CASE("any system call of a rank that fails during a save delays it") {
  if (!can_preload()) return;
  SavesPlace place;
  place.begin();
  for (const std::string what : {"fail", "piece"})
    for (int rank = 0; rank < saving_ranks; ++rank) {
      std::set<std::string> calls;
      for (int call = 1;; ++call) {
        CAPTURE(what);
        CAPTURE(rank);
        CAPTURE(call);
        const Outcome outcome = place.train_with(what, rank, call, "4");
        CAPTURE(outcome.err);
        CHECK(outcome.code == 0);
        const std::string failed_call = place.failed_call();
        if (failed_call.empty()) break;
        calls.insert(failed_call);
        CAPTURE(failed_call);
        if (what == "piece") CHECK(outcome.err == "");
        if (what == "fail" && failed_call == "pwrite")
          CHECK(says(outcome.err, "rank " + std::to_string(rank) + " (host "));
        place.check_saved(4);
        // A checkpoint that cannot be removed whole is removed when the run resumes.
        CHECK(place.has_leftovers() == (failed_call == "unlink"));
      }
      for (const char* call : {"open", "pwrite", "fsync"}) CHECK(calls.contains(call));
    }
}

TEST_CASE("a last save that a full disk of a rank prevents ends all ranks, and the run resumes") {
  if (!can_preload()) return;
  SavesPlace place;
  place.begin();
  for (int rank = 0; rank < saving_ranks; ++rank) {
    CAPTURE(rank);
    const Outcome outcome = place.train_with("full", rank, 1, "4");
    CAPTURE(outcome.err);
    CHECK(outcome.code == failed);
    if (rank > 0) CHECK(says(outcome.err, "weft: error: checkpoint of step 4: rank 1 (host "));
    CHECK(says(outcome.err, "No space left on device"));
    CHECK(!says(outcome.err, "[rank 1]"));
    CHECK(place.newest_whole() == 2);
    CHECK(place.train({"--resume", "--steps", "6"}).code == 0);
    place.check_saved(6);
  }
}

TEST_CASE("a rank killed after any system call of a save leaves a whole checkpoint to resume") {
  if (!can_preload()) return;
  SavesPlace place;
  place.begin();
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
      CHECK(!place.has_leftovers());
    }
    CHECK(newest == (rank == 0 ? 4 : 2));
    for (const char* call : {"open", "pwrite", "fsync"}) CHECK(calls.contains(call));
    if (rank == 0)
      for (const char* call : {"mkdir", "create", "write", "ftruncate", "rename", "symlink"})
        CHECK(calls.contains(call));
  }
}

TEST_SUITE_END();
