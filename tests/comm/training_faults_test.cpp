// Tests faults inside the collectives of real training: the culprit is named, the newest checkpoint
// is whole, and the resumed run has the bits of one that nobody disturbed.
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/comm/busy_loops.h"
#include "tests/comm/fault_times.h"
#include "tests/comm/ranks_program.h"
#include "tests/support/exit_codes.h"
#include "tests/support/program.h"
#include "tests/support/skip.h"
#include "weft/base/numbers/philox.h"
#include "weft/train/checkpoint/checkpoint.h"

using namespace weft;
using namespace weft::test;

namespace {
constexpr int ranks = 4;
constexpr int64_t save_every = 10;
constexpr const char* recipe =
    "name: gpt\nmodel: {name: gpt, config: {hidden_size: 64, num_hidden_layers: 1, "
    "num_attention_heads: 4, dropout: 0}}\n"
    "data: {dataset: random-tokens, seq_len: 16, classes: 64}\noptimizer: {name: adamw, lr: 0.01}\n"
    "train: {steps: 1000000, global_batch_size: 8}\neval: {every: 1000000}\n"
    "checkpoint: {every: 10, keep_last: 3}\nlog: {every: 100}\n";

struct Fault {
  std::string what;
  int rank = 0;
  int operation = 0;  // of the futex: 0 awaits, 1 wakes
  int64_t call = 1;

  std::string text() const {
    return what + " " + std::to_string(rank) + " " + std::to_string(operation) + " " +
           std::to_string(call);
  }
};

struct GptPlace : Workplace {
  GptPlace() { write("gpt.yaml", recipe); }

  Running start_training(int zero, const std::vector<std::string>& more,
                         const Environment& environment = {}) const {
    std::vector<std::string> words = {"launch",
                                      "-n",
                                      "4",
                                      "--oversubscribe",
                                      "train",
                                      "gpt.yaml",
                                      "--parallel.zero",
                                      std::to_string(zero)};
    words.insert(words.end(), more.begin(), more.end());
    return start(std::getenv("WEFT"), words, environment);
  }
  Outcome train(int zero, const std::vector<std::string>& more) const {
    return start_training(zero, more).wait();
  }
  std::string run() const { return path("runs/gpt"); }
  std::string saved(int64_t step, const std::string& file) const {
    const std::string number = std::to_string(step);
    return read("runs/gpt/checkpoints/step-" + std::string(8 - number.size(), '0') + number + "/" +
                file);
  }
};

void check_verdict(const Fault& fault, const Outcome& outcome) {
  if (fault.what == "terminate") {
    CHECK(outcome.code == stopped);
    CHECK(!says(outcome.err, "weft: error:"));
    return;
  }
  CHECK(outcome.code == rank_lost);
  CHECK(says(outcome.err, "weft: error: rank " + std::to_string(fault.rank) + " (host "));
  CHECK(says(outcome.err, fault.what == "loop"   ? "is hung"
                          : fault.what == "stop" ? "is stopped"
                                                 : "is dead"));
}

// An Undisturbed is a run without faults, which is trained anew, from its start, where it must be
// longer: ranks that have a core each sleep less, so that a fault comes later.
class Undisturbed {
 public:
  Undisturbed(int zero, int64_t steps) : zero_(zero) { reach(steps); }
  int zero() const { return zero_; }
  void reach(int64_t step) {
    if (step <= steps_) return;
    steps_ = std::max(step, 2 * steps_);
    const Outcome outcome =
        place_.train(zero_, {"--overwrite", "--steps", std::to_string(steps_),
                             "--checkpoint.keep_last", std::to_string(steps_ / save_every + 1)});
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
  }
  std::string saved(int64_t step, const std::string& file) const {
    return place_.saved(step, file);
  }

 private:
  GptPlace place_;
  int zero_;
  int64_t steps_ = 0;
};

// Lets a rank of a training misbehave, resumes the run, and compares it with `undisturbed` at the
// next step that both save.
void check_fault(const Fault& fault, Undisturbed& undisturbed, FaultTimes& times) {
  const int zero = undisturbed.zero();
  CAPTURE(fault.text());
  CAPTURE(zero);
  const GptPlace place;
  const std::string library = std::string(std::getenv("BUILD")) + "/tests/collective_fault.so";
  const Outcome outcome =
      times.wait(place, fault.what,
                 place.start_training(
                     zero, {}, {{"LD_PRELOAD", library}, {"COLLECTIVE_FAULT", fault.text()}}));
  CAPTURE(outcome.err);
  check_verdict(fault, outcome);

  const auto all = train::list_checkpoints(place.run());
  for (const auto& checkpoint : all) train::verify_checkpoint(checkpoint.path);
  if (fault.what == "terminate") CHECK(!all.empty());
  const int64_t newest = all.empty() ? 0 : all.back().step;
  const int64_t next = (newest / save_every + 1) * save_every;
  std::vector<std::string> words = {"--steps", std::to_string(next)};
  if (std::filesystem::exists(place.run())) words.emplace_back("--resume");
  const Outcome resumed = place.train(zero, words);
  CAPTURE(resumed.err);
  REQUIRE(resumed.code == 0);
  undisturbed.reach(next);
  for (const char* file : {"model.safetensors", "state-optimizer.safetensors", "rng.json"}) {
    CAPTURE(file);
    const std::string want = undisturbed.saved(next, file);
    REQUIRE(!want.empty());
    CHECK(place.saved(next, file) == want);
  }
}

bool can_preload() {
  if (testing::sanitized) testing::skipped("sanitizers must be the first library that is loaded");
  return !testing::sanitized;
}
}  // namespace

TEST_CASE("a fault inside a collective of training is named, and the run resumes to the bit") {
  if (!can_preload()) return;
  Undisturbed undisturbed(/*zero=*/3, /*steps=*/60);
  FaultTimes times;
  // The first comes before the first checkpoint.
  for (const Fault& fault : {Fault{"kill", 2, 1, 1}, {"exit", 0, 1, 60}, {"terminate", 1, 0, 20}})
    check_fault(fault, undisturbed, times);
}

TEST_SUITE_BEGIN("slow ranks");

TEST_CASE("of 50 random faults inside collectives of training every one is named rightly") {
  if (!can_preload()) return;
  constexpr std::array<const char*, 5> faults = {"kill", "stop", "terminate", "exit", "loop"};
  FaultTimes times;
  for (const int zero : {1, 3}) {
    Undisturbed undisturbed(zero, /*steps=*/1000);
    for (int64_t round = 0; round < 25; ++round) {
      const auto draw = [&](int64_t seed, int64_t limit) {
        return static_cast<int64_t>(philox_word({.seed = seed + zero}, round) %
                                    static_cast<uint64_t>(limit));
      };
      const Fault fault{.what = faults[static_cast<size_t>(round) % faults.size()],
                        .rank = static_cast<int>(draw(10, ranks)),
                        .operation = static_cast<int>(draw(20, 2)),
                        .call = 1 + draw(30, 400)};
      check_fault(fault, undisturbed, times);
    }
  }
  MESSAGE(times.text());
}

// BUSY_MINUTES=60 tests for an hour.
TEST_CASE("nobody is accused in a training beside four busy loops") {
  const char* const minutes = std::getenv("BUSY_MINUTES");
  const double seconds = 60 * (minutes != nullptr ? std::atof(minutes) : 0.5);
  const GptPlace place;
  Running run =
      place.start(std::getenv("WEFT"), {"launch", "-n", "2", "--oversubscribe", "train", "gpt.yaml",
                                        "--steps", "1000000000", "--checkpoint.every", "1000",
                                        "--checkpoint.keep_last", "2", "--log.every", "1000"});
  const BusyLoops busy(4);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  CHECK(run.until([&] {
    return std::chrono::steady_clock::now() > end &&
           std::filesystem::exists(place.path("runs/gpt/checkpoints/latest"));
  }));
  run.signal(SIGTERM);
  const Outcome outcome = run.wait();
  CHECK(outcome.code == stopped);
  CHECK(outcome.err == "");
}

TEST_SUITE_END();
