// Tests the program on a device, with what users do with a run. The device is the one that the
// environment variable BACKEND names, which must exist, or else OpenCL's, if there is one.
#include "tests/models/device.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <sstream>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/cli/tiny_gpt.h"
#include "tests/support/exit_codes.h"
#include "tests/support/near.h"
#include "tests/support/program.h"
#include "tests/support/skip.h"

using namespace weft::test;
using nlohmann::json;
using weft::testing::near;

namespace {
struct DeviceRuns : Workplace {
  DeviceRuns() { write("tiny.yaml", tiny_gpt(weft::testing::device())); }
  // Returns the losses of a run by step; the last log line of a step counts.
  std::map<int64_t, double> losses(const std::string& run) const {
    std::map<int64_t, double> all;
    std::istringstream lines(read("runs/" + run + "/log.jsonl"));
    for (std::string line; std::getline(lines, line);)
      if (const json entry = json::parse(line); entry.contains("loss") && entry.contains("lr"))
        all[entry["step"].get<int64_t>()] = entry["loss"].get<double>();
    return all;
  }
  // Trains until the checkpoint of a step exists, sends a signal, and returns the exit code.
  int train_until(const std::string& run, int64_t step, const char* signal) const {
    const std::string command = fmt::format(
        "cd {0}; \"$WEFT\" train tiny.yaml --name {1} --steps 100000 >/dev/null 2>&1 & pid=$!; "
        "until [ -e {0}/runs/{1}/checkpoints/step-{2:08d}/MANIFEST.json ]; do "
        "kill -0 $pid || break; sleep 0.01; done; kill -{3} $pid; wait $pid",
        folder(), run, step, signal);
    return WEXITSTATUS(std::system(fmt::format("bash -c '{}' 2>/dev/null", command).c_str()));
  }
};

// Returns whether training works. Reports a skipped test where there is no device and BACKEND names
// none.
bool can_train(const DeviceRuns& place) {
  const Outcome outcome = place.weft({"train", "tiny.yaml", "--json"});
  if (outcome.code == device_code && std::getenv("BACKEND") == nullptr) {
    weft::testing::skipped(outcome.err);
    return false;
  }
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  return true;
}

// Returns the largest difference of two runs in a step.
double largest_difference(const std::map<int64_t, double>& a, const std::map<int64_t, double>& b) {
  REQUIRE(a.size() == b.size());
  double most = 0;
  for (const auto& [step, loss] : a) {
    REQUIRE(std::isfinite(loss));
    most = weft::testing::larger(most, std::abs(loss - b.at(step)));
  }
  return most;
}
}  // namespace

TEST_SUITE("slow device program") {
  TEST_CASE("a run that was stopped or killed resumes with the losses of an uninterrupted run") {
    DeviceRuns place;
    if (!can_train(place)) return;
    const std::map<int64_t, double> whole = place.losses("tiny");
    REQUIRE(whole.size() == 60);
    CHECK(place.train_until("stopped", 5, "TERM") == stopped);
    CHECK(place.train_until("killed", 10, "KILL") == 128 + 9);
    for (const char* run : {"stopped", "killed"}) {
      const int64_t reached = place.losses(run).rbegin()->first;
      CAPTURE(run);
      const Outcome outcome = place.weft({"train", "tiny.yaml", "--name", run, "--resume",
                                          "--steps", std::to_string(reached + 20), "--json"});
      REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
      const std::map<int64_t, double> resumed = place.losses(run);
      CHECK(resumed.rbegin()->first == reached + 20);
      const Outcome unbroken = place.weft({"train", "tiny.yaml", "--name", "unbroken", "--steps",
                                           std::to_string(reached + 20), "--overwrite", "--json"});
      REQUIRE_MESSAGE(unbroken.code == 0, unbroken.err);
      CHECK(resumed == place.losses("unbroken"));
    }
  }
  TEST_CASE("a run is planned, offloaded, evaluated, prompted and profiled") {
    DeviceRuns place;
    if (!can_train(place)) return;
    const json plan = json_of(place.weft({"plan", "tiny.yaml", "--json"}));
    CHECK(plan["device"] == weft::testing::device());
    const json moved = json_of(
        place.weft({"plan", "tiny.yaml", "--train.offload", "[parameters, optimizer]", "--json"}));
    CHECK(moved["device"] == weft::testing::device());
    const json trained =
        json_of(place.weft({"train", "tiny.yaml", "--name", "moved", "--train.offload",
                            "[parameters, optimizer]", "--json"}));
    CHECK(place.losses("moved") == place.losses("tiny"));

    const json evaluated = json_of(place.weft({"eval", "runs/tiny", "--json"}));
    CHECK(evaluated["loss"] == trained["eval_loss"]);
    const json asked = json_of(
        place.weft({"generate", "tiny", "--prompt", "1+2=", "--max-new-tokens", "3", "--json"}));
    CHECK(asked["text"].is_string());
    const json elsewhere = json_of(place.weft({"eval", "runs/tiny", "--device", "cpu", "--json"}));
    CHECK(elsewhere["loss"].get<double>() == near(evaluated["loss"].get<double>(), 1e-5));
    const json likeliest =
        json_of(place.weft({"generate", "tiny", "--prompt", "1+2=", "--temperature", "0",
                            "--device", "reference", "--json"}));
    CHECK(likeliest["text"].is_string());
    const json profile = json_of(place.weft({"profile", "tiny.yaml", "--steps", "3", "--json"}));
    CHECK(!profile["kernels"].empty());
  }
  TEST_CASE("a run in any precision has the same losses as on the CPU") {
    DeviceRuns place;
    if (!can_train(place)) return;
    const auto losses = [&](const std::string& precision, const std::string& on) {
      const Outcome outcome = place.weft({"train", "tiny.yaml", "--steps", "10", "--precision",
                                          precision, "--device", on, "--overwrite", "--json"});
      REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
      return place.losses("tiny");
    };
    const auto exact = losses("fp32", "cpu");
    CHECK(largest_difference(losses("fp32", weft::testing::device()), exact) < 1e-5 * exact.at(1));
    std::map<std::string, double> rounding;
    for (const char* precision : {"bf16-mixed", "fp16-mixed", "bf16"}) {
      CAPTURE(precision);
      const auto want = losses(precision, "cpu");
      rounding[precision] = largest_difference(want, exact);
      REQUIRE(rounding[precision] > 0);
      CHECK(largest_difference(losses(precision, weft::testing::device()), want) <=
            2 * rounding[precision]);
    }
    // TF32 has three more mantissa bits than bfloat16.
    CHECK(largest_difference(losses("tf32", weft::testing::device()), exact) <=
          rounding["bf16-mixed"]);
  }
}
