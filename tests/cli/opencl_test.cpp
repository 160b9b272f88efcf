// The program with --device opencl: what users do with a run, and what goes wrong.
#include <cstdlib>
#include <map>
#include <sstream>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/support/program.h"

using namespace weft::test;
using nlohmann::json;

namespace {
constexpr int does_not_fit = 3, device = 7, stopped = 75;

struct Place : Workplace {
  Place() {
    write("tiny.yaml",
          "name: tiny\nmodel: {name: gpt, config: {hidden_size: 16, num_hidden_layers: 1, "
          "num_attention_heads: 2, dropout: 0.1}}\n"
          "data: {dataset: addition, digits: 1}\n"
          "train: {steps: 60, global_batch_size: 8, device: opencl}\n"
          "eval: {batch_size: 4, every: 20}\nlog: {every: 1}\ncheckpoint: {every: 5}\n");
  }
  // Its losses by step, each as it stood last.
  std::map<int64_t, double> losses(const std::string& run) const {
    std::map<int64_t, double> all;
    std::istringstream lines(read("runs/" + run + "/log.jsonl"));
    for (std::string line; std::getline(lines, line);)
      if (const json entry = json::parse(line); entry.contains("loss") && entry.contains("lr"))
        all[entry["step"].get<int64_t>()] = entry["loss"].get<double>();
    return all;
  }
  // Trains until the checkpoint of a step is there, and then sends a signal. The exit code.
  int train_until(const std::string& run, int64_t step, const char* signal) const {
    const std::string command = fmt::format(
        "cd {0}; \"$WEFT\" train tiny.yaml --name {1} --steps 100000 >/dev/null 2>&1 & pid=$!; "
        "until [ -e {0}/runs/{1}/checkpoints/step-{2:08d}/MANIFEST.json ]; do "
        "kill -0 $pid || break; sleep 0.01; done; kill -{3} $pid; wait $pid",
        folder(), run, step, signal);
    return WEXITSTATUS(std::system(fmt::format("bash -c '{}' 2>/dev/null", command).c_str()));
  }
};

// False, once said, where there is no device.
bool can_train(const Place& place) {
  const Outcome outcome = place.weft({"train", "tiny.yaml", "--json"});
  if (outcome.code == device) {
    MESSAGE("skipped: " << outcome.err);
    return false;
  }
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  return true;
}
}  // namespace

TEST_SUITE("slow opencl program") {
  TEST_CASE("a run that was stopped, or killed, goes on to the losses of one that was not") {
    Place place;
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
  TEST_CASE("a run is planned, offloaded, evaluated, asked and profiled") {
    Place place;
    if (!can_train(place)) return;
    const json plan = json_of(place.weft({"plan", "tiny.yaml", "--json"}));
    CHECK(plan["device"] == "opencl");
    const json moved = json_of(
        place.weft({"plan", "tiny.yaml", "--train.offload", "[parameters, optimizer]", "--json"}));
    CHECK(moved["device"] == "opencl");
    const json trained =
        json_of(place.weft({"train", "tiny.yaml", "--name", "moved", "--train.offload",
                            "[parameters, optimizer]", "--json"}));
    CHECK(place.losses("moved") == place.losses("tiny"));

    const json evaluated = json_of(place.weft({"eval", "runs/tiny", "--json"}));
    CHECK(evaluated["loss"] == trained["loss"]);
    const json asked = json_of(
        place.weft({"generate", "tiny", "--prompt", "1+2=", "--max-new-tokens", "3", "--json"}));
    CHECK(asked["text"].is_string());
    const json elsewhere = json_of(place.weft({"eval", "runs/tiny", "--device", "cpu", "--json"}));
    CHECK(elsewhere["loss"].get<double>() ==
          doctest::Approx(evaluated["loss"].get<double>()).epsilon(1e-5));
    const json likeliest =
        json_of(place.weft({"generate", "tiny", "--prompt", "1+2=", "--temperature", "0",
                            "--device", "reference", "--json"}));
    CHECK(likeliest["text"].is_string());
    const json profile = json_of(place.weft({"profile", "tiny.yaml", "--steps", "3", "--json"}));
    CHECK(!profile["kernels"].empty());
  }
}

TEST_CASE("without an OpenCL driver a run ends with one line and exit code 7") {
  Place place;
  CHECK(fails_with(place.weft({"train", "tiny.yaml"}, {{"OCL_ICD_VENDORS", place.path("none")}}),
                   device, "[opencl] ") == "");
  CHECK(place.weft({"plan", "tiny.yaml"}, {{"OCL_ICD_VENDORS", place.path("none")}}).code == 0);
}

TEST_CASE("an OpenCL device that is not there is refused with what is there") {
  Place place;
  const Outcome wrong = place.weft({"train", "tiny.yaml", "--device", "opencl:no such GPU"});
  CHECK(fails_with(wrong, device, "[opencl] ") == "");
  if (wrong.err.find("goes by") != std::string::npos)
    CHECK(wrong.err.find("no device goes by 'no such GPU'. Here opencl:0 is ") !=
          std::string::npos);
  CHECK(fails_with(place.weft({"train", "tiny.yaml", "--device", "opencl:"}), 2,
                   "train.device must be one of") == "");
}

TEST_CASE("an arena larger than the device gives at once is refused before anything runs") {
  Place place;
  // PoCL's limit in GiB; other drivers do not know it.
  const Outcome outcome =
      place.weft({"train", "tiny.yaml", "--batch", "20K", "--model.config.hidden_size", "64",
                  "--device", "opencl:pthread"},
                 {{"POCL_MEMORY_LIMIT", "1"}});
  if (outcome.code == device) {
    MESSAGE("skipped: " << outcome.err);
    return;
  }
  CHECK(fails_with(outcome, does_not_fit, "The device gives at most 256 MiB at once") == "");
}

TEST_CASE("devices are listed with their driver, and without float64 where they have none") {
  Place place;
  for (const json& one : json_of(place.weft({"devices", "--json"}))["opencl"]) {
    CHECK(!one["driver"].get<std::string>().empty());
    CHECK((one["clock_mhz"].is_null() || one["clock_mhz"] > 0));
  }
  const Outcome without = place.weft({"devices"}, {{"WEFT_NO_FLOAT64", "1"}});
  if (without.out.find("no driver shows a device") != std::string::npos) return;
  CHECK(without.out.find("float64 by integers") != std::string::npos);
}
