// Tests saves beside training: updates go on while a save is held, and the run has the bits of one
// that waits.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/comm/ranks_program.h"
#include "tests/ranks/saves_place.h"
#include "tests/support/exit_codes.h"
#include "tests/support/program.h"

namespace fs = std::filesystem;
using namespace weft;
using namespace weft::test;

namespace {
class BesidePlace : public SavesPlace {
 public:
  BesidePlace() : SavesPlace(/*beside=*/true) {}

  // Starts ranks, of which the last one's saves are held from their second system call on.
  Running start_held(int ranks, const std::vector<std::string>& more) const {
    fs::remove_all(path("runs"));
    hold_again();
    return start(std::getenv("WEFT"), command(more, ranks),
                 fault(fmt::format("hold {} 2 step-", ranks - 1)));
  }
  bool is_held() const { return !failed_call().empty(); }
  void release() const { write("fault.log.go", ""); }
  void hold_again() const {
    fs::remove(path("fault.log"));
    fs::remove(path("fault.log.go"));
  }

  struct Logged {
    int64_t step = 0;
    double loss = 0;
    bool operator==(const Logged&) const = default;
  };
  // Returns the step lines of the log.
  std::vector<Logged> curve() const {
    std::vector<Logged> lines;
    const std::string text = read("runs/gpt/log.jsonl");
    for (size_t at = 0, end = 0; (end = text.find('\n', at)) != text.npos; at = end + 1)
      if (const auto line = nlohmann::json::parse(text.substr(at, end - at)); line.contains("step"))
        lines.push_back({line["step"], line["loss"]});
    return lines;
  }
  int64_t newest_step() const {
    const std::vector<Logged> all = curve();
    return all.empty() ? 0 : all.back().step;
  }
  std::vector<int64_t> saved_steps() const {
    std::vector<int64_t> steps;
    for (const auto& checkpoint : train::list_checkpoints(path("runs/gpt"))) {
      train::verify_checkpoint(checkpoint.path);
      steps.push_back(checkpoint.step);
    }
    return steps;
  }
};
}  // namespace

TEST_CASE("updates go on while a save is held, and bits are those of a run that waits") {
  if (!can_preload()) return;
  const std::vector<std::string> steps = {
      "--steps",     "30", "--checkpoint.every", "20", "--checkpoint.keep_last", "9",
      "--log.every", "1"};
  // Two ranks have the bits of one that accumulates two parts, at every level of ZeRO.
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), steps.begin(), steps.end());
    return more;
  };
  const BesidePlace place;
  REQUIRE(place
              .weft(BesidePlace::command(
                  with({"--train.micro_batch_size", "2", "--checkpoint.beside", "false"}), 1))
              .code == 0);
  const auto curve = place.curve();
  const auto files = place.files("step-00000020"), last = place.files("step-00000030");
  struct Way {
    int ranks = 1;
    std::vector<std::string> more = {};
  };
  for (const auto& [ranks, more] :
       {Way{1, {"--train.micro_batch_size", "2"}}, Way{2, {"--parallel.zero", "1"}},
        Way{2, {"--parallel.zero", "3"}}}) {
    CAPTURE(ranks);
    CAPTURE(more.back());
    Running run = place.start_held(ranks, with(more));
    REQUIRE(run.until([&] { return place.newest_step() == 30 && place.is_held(); }));
    CHECK(place.saved_steps().empty());
    CHECK(!fs::exists(fs::symlink_status(place.path("runs/gpt/checkpoints/latest"))));
    place.release();
    const Outcome outcome = run.wait();
    CAPTURE(outcome.err);
    CHECK(outcome.code == 0);
    CHECK(outcome.err == "");
    CHECK(place.curve() == curve);
    CHECK(place.files("step-00000020") == files);
    const auto got = place.files("step-00000030");
    for (const size_t file : {0, 1, 3}) CHECK(got[file] == last[file]);  // losses are in data.json
  }
}

TEST_CASE("signals while a save is held save and stop after it") {
  if (!can_preload()) return;
  const BesidePlace place;
  Running run = place.start_held(2, {"--steps", "100000000", "--checkpoint.every", "100000000",
                                     "--checkpoint.keep_last", "9", "--log.every", "10"});
  const auto save_and_hold = [&] {
    place.hold_again();
    kill(pid_of_rank(place, 1), SIGUSR1);
    REQUIRE(run.until([&] { return place.is_held(); }));
    const int64_t held = place.newest_step();
    REQUIRE(run.until([&] { return place.newest_step() >= held + 30; }));
  };
  REQUIRE(run.until([&] { return place.newest_step() > 0; }));
  save_and_hold();
  CHECK(place.saved_steps().empty());
  kill(pid_of_rank(place, 0), SIGUSR1);
  place.release();
  REQUIRE(run.until([&] { return place.saved_steps().size() == 2; }));
  save_and_hold();
  CHECK(place.saved_steps().size() == 2);
  run.signal(SIGTERM);
  place.release();
  const Outcome outcome = run.wait();
  CAPTURE(outcome.err);
  CHECK(outcome.code == stopped);
  CHECK(outcome.err == "");
  const std::vector<int64_t> saved = place.saved_steps();
  CHECK(saved.size() == 4);
  CHECK(place.newest_whole() == saved.back());
}

TEST_CASE("a save beside training takes the memory that the plan says") {
  const BesidePlace place;
  const Outcome outcome = place.weft({"train", "gpt.yaml", "--model.config.hidden_size", "576",
                                      "--train.precision", "fp32", "--steps", "3"});
  CAPTURE(outcome.err);
  REQUIRE(outcome.code == 0);
  const auto plan = nlohmann::json::parse(place.read("runs/gpt/plan.json"));
  const std::string log = place.read("runs/gpt/log.jsonl");
  const auto closing = nlohmann::json::parse(log.substr(log.rfind('\n', log.size() - 2) + 1));
  const size_t parameters = plan["parameters"], planned = closing["planned_process"],
               peak = closing["process_peak"];
  // Weights and two moments in float32, and the number of updates.
  CHECK(plan["snapshot_bytes"] == 12 * parameters + 8);
  CHECK(12 * parameters > size_t{40} << 20);
  CHECK(plan["process_bytes"] == planned);
  CHECK(peak <= planned);
  CHECK(peak + std::max(planned / 50, size_t{32} << 20) >= planned);
}
