// Tests the program with --device opencl: what goes wrong, and what is listed.
#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/tiny_gpt.h"
#include "tests/support/exit_codes.h"
#include "tests/support/known_peaks.h"
#include "tests/support/program.h"
#include "tests/support/skip.h"
#include "weft/base/host/parallel.h"

using namespace weft::test;
using nlohmann::json;

namespace {
struct OpenclRuns : Workplace {
  OpenclRuns() { write("tiny.yaml", tiny_gpt("opencl")); }

  // Each of these runs on PoCL, or reports a skipped test and returns nullopt where it is missing.
  std::optional<Outcome> train_on_pocl(const std::vector<std::string>& flags,
                                       const Environment& environment) const {
    std::vector<std::string> words{"train", "tiny.yaml"};
    words.insert(words.end(), flags.begin(), flags.end());
    return on_pocl(words, environment);
  }
  std::optional<Outcome> one_kernel_on_pocl(const Environment& environment) const {
    return on_pocl({"bench", "softmax", "--batch", "4", "--length", "4", "--steps", "1"},
                   environment);
  }
  std::optional<Outcome> on_pocl(std::vector<std::string> words,
                                 const Environment& environment) const {
    words.insert(words.end(), {"--device", "opencl:pthread"});
    Outcome outcome = weft(words, environment);
    if (outcome.code != device_code) return outcome;
    ::weft::testing::skipped(outcome.err);
    return std::nullopt;
  }
  // Returns losses and norms of a run's steps, a line each.
  std::string losses(const std::string& run) const {
    std::istringstream lines(read("runs/" + run + "/log.jsonl"));
    std::string all;
    for (std::string line; std::getline(lines, line);)
      if (const json entry = json::parse(line); entry.contains("lr"))
        all += entry["loss"].dump() + " " + entry["grad_norm"].dump() + "\n";
    return all;
  }
  // Trains with schedule, clipping, scaled losses, several passes and metrics, whose scalars are
  // float64 where a device has it.
  void check_without_float64(const std::string& model_and_data,
                             const std::vector<std::string>& precisions) const {
    write("tiny.yaml",
          "name: tiny\n" + model_and_data +
              "scheduler: {name: cosine, warmup_steps: 4}\n"
              "train: {steps: 10, global_batch_size: 8, micro_batch_size: 4, grad_clip: 1}\n"
              "eval: {batch_size: 4, every: 10}\nlog: {every: 1}\n");
    for (const std::string& precision : precisions) {
      CAPTURE(precision);
      const std::vector<std::string> flags{"--train.precision", precision, "--overwrite"};
      const auto outcome = train_on_pocl(flags, {});
      if (!outcome) return;
      REQUIRE_MESSAGE(outcome->code == 0, outcome->err);
      const std::string with = losses("tiny");
      CHECK(std::ranges::count(with, '\n') == 10);
      const Outcome without = pocl_without_float64(flags);
      REQUIRE_MESSAGE(without.code == 0, without.err);
      CHECK(losses("tiny") == with);
    }
  }
  Outcome pocl_without_float64(const std::vector<std::string>& flags) const {
    std::vector<std::string> words{"train", "tiny.yaml", "--device", "opencl:pthread"};
    words.insert(words.end(), flags.begin(), flags.end());
    return weft(words, {{"WEFT_NO_FLOAT64", "1"}});
  }
};
}  // namespace

TEST_CASE("a run without an OpenCL driver fails with one line and exit code 7") {
  OpenclRuns place;
  CHECK(fails_with(place.weft({"train", "tiny.yaml"}, {{"OCL_ICD_VENDORS", place.path("none")}}),
                   device_code, "[opencl] ") == "");
  CHECK(place.weft({"plan", "tiny.yaml"}, {{"OCL_ICD_VENDORS", place.path("none")}}).code == 0);
}

TEST_CASE("weft devices gives the reason why it lists no OpenCL device") {
  OpenclRuns place;
  const std::map<std::string, std::string> none{{"OCL_ICD_VENDORS", place.path("none")}};
  const json listed = json_of(place.weft({"devices", "--json"}, none));
  CHECK(listed["opencl"].empty());
  const auto why = listed["opencl_missing"].get<std::string>();
  CHECK((why == "no driver shows a device." || why == "this weft was built without OpenCL."));
  CHECK(place.weft({"devices"}, none).out.find("opencl: " + why) != std::string::npos);
}

TEST_CASE("a missing OpenCL device is refused with a list of the devices") {
  OpenclRuns place;
  const Outcome wrong = place.weft({"train", "tiny.yaml", "--device", "opencl:no such GPU"});
  CHECK(fails_with(wrong, device_code, "[opencl] ") == "");
  if (wrong.err.find("there is no device '") != std::string::npos)
    CHECK(wrong.err.find("there is no device 'no such GPU'. Here opencl:0 is ") !=
          std::string::npos);
  CHECK(fails_with(place.weft({"train", "tiny.yaml", "--device", "opencl:"}), 2,
                   "train.device must be one of") == "");
}

TEST_CASE("files of an OpenCL driver go to the cache and never below the current folder") {
  OpenclRuns place;
  write_peaks(place, "cache", weft::thread_count());
  const auto outcome = place.one_kernel_on_pocl(
      {{"HOME", "."}, {"XDG_CACHE_HOME", "kept"}, {"WEFT_CACHE_DIR", place.path("cache")}});
  if (!outcome) return;
  CHECK(outcome->code == 0);
  CHECK(std::filesystem::exists(place.path("cache/pocl")));
  CHECK_FALSE(std::filesystem::is_empty(place.path("cache/pocl")));
  CHECK_FALSE(std::filesystem::exists(place.path(".cache")));
  CHECK_FALSE(std::filesystem::exists(place.path("kept")));
}

TEST_CASE("without a cache an OpenCL driver compiles in a temporary folder that is removed") {
  OpenclRuns place;
  std::filesystem::create_directory(place.path("tmp"));
  const auto outcome = place.one_kernel_on_pocl({{"HOME", "."},
                                                 {"XDG_CACHE_HOME", ""},
                                                 {"WEFT_CACHE_DIR", ""},
                                                 {"TMPDIR", place.path("tmp")}});
  if (!outcome) return;
  CHECK(outcome->code == 0);
  CHECK(std::filesystem::is_empty(place.path("tmp")));
  CHECK_FALSE(std::filesystem::exists(place.path(".cache")));
}

TEST_CASE("an arena larger than the device's largest allocation is refused before the run starts") {
  OpenclRuns place;
  // POCL_MEMORY_LIMIT is in GiB; only PoCL reads it.
  const auto outcome = place.train_on_pocl({"--batch", "20K", "--model.config.hidden_size", "64"},
                                           {{"POCL_MEMORY_LIMIT", "1"}});
  if (!outcome) return;
  CHECK(fails_with(*outcome, does_not_fit, "The device allows at most 256 MiB per allocation") ==
        "");
}

TEST_CASE("an OpenCL device without float64 trains in float32 to the losses of a device with it") {
  OpenclRuns().check_without_float64(
      "model: {layers: [flatten, {linear: {out_features: 4, bias: false}}]}\n"
      "data: {dataset: random-images, image_size: 2, classes: 4}\n",
      {"fp32"});
}
TEST_SUITE("slow opencl recipes") {
  TEST_CASE("a GPT without float64 trains in any precision to the losses of a device with it") {
    OpenclRuns().check_without_float64(
        "model: {name: gpt, config: {hidden_size: 16, num_hidden_layers: 1, "
        "num_attention_heads: 2, dropout: 0.1}}\ndata: {dataset: addition, digits: 1}\n",
        {"fp32", "bf16-mixed", "fp16-mixed", "bf16"});
  }
}

TEST_CASE("an OpenCL device without float64 refuses fp64 with one line and exit code 7") {
  OpenclRuns place;
  const json all = json_of(place.weft({"devices", "--json"}))["opencl"];
  if (std::ranges::none_of(all, [](const json& one) {
        return one["name"].get<std::string>().starts_with("pthread");
      }))
    return weft::testing::skipped("there is no PoCL");
  const Outcome refused = place.pocl_without_float64({"--steps", "1", "--train.precision", "fp64"});
  CHECK(fails_with(refused, device_code, " has no float64, in which ") == "");
  CHECK(refused.err.find("Hint: train.precision fp32") != std::string::npos);
}

TEST_CASE("devices are listed with their driver and without float64 where they lack it") {
  OpenclRuns place;
  const json all = json_of(place.weft({"devices", "--json"}))["opencl"];
  for (size_t i = 0; i < all.size(); ++i) {
    const json& one = all[i];
    CHECK(one["device"] == "opencl:" + std::to_string(i));
    CHECK(!one["driver"].get<std::string>().empty());
    CHECK((one["clock_mhz"].is_null() || one["clock_mhz"] > 0));
  }
  const Outcome without = place.weft({"devices"}, {{"WEFT_NO_FLOAT64", "1"}});
  if (all.empty()) {
    weft::testing::skipped("there is no OpenCL device");
    return;
  }
  CHECK(without.out.find("no float64") != std::string::npos);
}
