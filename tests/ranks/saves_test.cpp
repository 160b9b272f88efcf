// Tests saves of several ranks, each of which writes its ranges of one file: where a rank is killed
// in the middle or its disk fails, a whole checkpoint is there, and the run goes on from it with
// the bits of an undisturbed run. So do saves beside training.
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/comm/ranks_program.h"
#include "tests/ranks/saves_place.h"
#include "tests/support/exit_codes.h"
#include "tests/support/program.h"
#include "weft/train/checkpoint/checkpoint.h"

namespace fs = std::filesystem;
using namespace weft;
using namespace weft::test;

TEST_CASE("a save that a full disk of one rank prevents is a warning that names the rank") {
  if (!can_preload()) return;
  const SavesPlace place;
  REQUIRE(place.train({"--steps", "6"}).code == 0);
  const std::vector<std::string> undisturbed = place.files();
  for (const char* beside : {"false", "true"}) {
    CAPTURE(beside);
    const Outcome outcome =
        place.train({"--steps", "6", "--overwrite", "--checkpoint.beside", beside},
                    place.fault("full 1 1 step-00000004"));
    CHECK(goes_on_with(outcome, "checkpoint of step 4: rank 1 (host ") == "");
    CHECK(says(outcome.err, ": No space left on device. Earlier checkpoints are intact. The run "));
    CHECK(!fs::exists(place.path("runs/gpt/checkpoints/step-00000004")));
    CHECK(place.newest_whole() == 6);
    CHECK(place.files() == undisturbed);
  }
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

// The last save of a run is never beside training, and step 4 is not the last one of a run of 6.
TEST_CASE("a rank killed after any system call of a save leaves a whole checkpoint to resume") {
  if (!can_preload()) return;
  for (int rank = 0; rank < saving_ranks; ++rank) {
    int calls_of_save = 0;  // of step 4
    for (const bool beside : {false, true}) {
      SavesPlace place(beside);
      place.begin();
      std::set<std::string> calls;
      int64_t newest = 2;
      for (int call = 1; !beside || call <= calls_of_save; ++call) {
        CAPTURE(rank);
        CAPTURE(beside);
        CAPTURE(call);
        const Outcome outcome = place.train_with("kill", rank, call, beside ? "6" : "4");
        CAPTURE(outcome.err);
        if (place.failed_call().empty()) {
          CHECK(outcome.code == 0);
          break;
        }
        calls.insert(place.failed_call());
        if (!beside) calls_of_save = call;
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
}

TEST_SUITE_END();
