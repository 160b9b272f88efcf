#include <algorithm>
#include <string>

#include <doctest/doctest.h>

#include "weft/base/memory/memory.h"
#include "weft/device/link.h"
#include "weft/train/run/trainer.h"

using namespace weft;

namespace {
// Plans a step of a language model and returns its report. The process must grow by less than 1
// GiB.
train::RunReport planned_report(const std::string& model, int64_t seq_len) {
  train::Recipe recipe = train::Recipe::parse(
      fmt::format("model: {{name: {}}}\ndata: {{dataset: random-tokens, seq_len: {}}}\n"
                  "train: {{steps: 10, global_batch_size: 1}}\n",
                  model, seq_len),
      "test");
  size_t before = resident_memory();
  const train::PlannedRun run(recipe, {});
  CHECK(resident_memory() < before + (size_t{1} << 30));
  return run.report;
}
}  // namespace

TEST_CASE("planning a model far beyond this machine does not allocate its memory") {
  train::RunReport report = planned_report("llama-8b", 128);
  CHECK(report.parameters == 8'030'261'248);
  CHECK(report.bytes_of("weights") == 4 * size_t{8'030'261'248});
  CHECK(report.bytes_of("optimizer") > 8 * size_t{8'030'261'248});
  CHECK(report.arena_bytes > 0);
  // Every matrix but the embedding takes 2 operations per weight and token, once forward and twice
  // backward.
  double products = 6.0 * (8'030'261'248.0 - 128256.0 * 4096) * 128;
  CHECK(report.flops > products);
  CHECK(report.flops < 1.2 * products);
}

TEST_CASE("the memory limit covers evaluation and accumulated gradients") {
  auto report = [](const std::string& memory, int global_batch_size) {
    return train::PlannedRun(
               train::Recipe::parse(
                   fmt::format("model: {{name: mlp, config: {{hidden_sizes: [256]}}}}\n"
                               "data: {{dataset: random-images, image_size: 8, classes: 4}}\n"
                               "eval: {{batch_size: 4096}}\n"
                               "train: {{steps: 2, global_batch_size: {}, micro_batch_size: 8, "
                               "recompute: none, memory: {}}}\n",
                               global_batch_size, memory),
                   "test"),
               {})
        .report;
  };
  const train::RunReport whole = report("1GiB", 16);
  REQUIRE(whole.bytes_of("accumulated gradients") > size_t{1} << 16);
  CHECK(report(std::to_string(whole.total_bytes()), 16).total_bytes() == whole.total_bytes());
  // The evaluation has the same minimal arena in both runs, which depends on this CPU's
  // kernels.
  auto least = [&](int global_batch_size) {
    try {
      report("1KiB", global_batch_size);
    } catch (const StepTooLarge& error) {
      CHECK_MESSAGE(std::string(error.what()).starts_with("evaluate: [compile]"), error.what());
      return error.least_bytes;
    }
    FAIL("a run of a kibibyte");
    return size_t{0};
  };
  const size_t alone = least(8);
  CHECK(least(16) == alone + whole.bytes_of("accumulated gradients"));
}

TEST_SUITE("slow largest model") {
  TEST_CASE("a model of 405 billion parameters can be planned") {
    train::RunReport report = planned_report("llama-405b", 2048);
    CHECK(report.bytes_of("weights") == 4 * size_t{405'853'388'800});
  }
}

TEST_CASE("parallel.link takes the links of the table") {
  std::string names;
  for (const Link& link : links()) names += (names.empty() ? "" : ", ") + std::string(link.name);
  const auto& keys = train::recipe_keys();
  const auto key = std::ranges::find(keys, std::string_view("parallel.link"), &RecipeKey::path);
  REQUIRE(key != keys.end());
  CHECK(key->choices == names);
}
