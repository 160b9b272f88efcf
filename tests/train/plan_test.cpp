#include <doctest/doctest.h>

#include "weft/base/memory.h"
#include "weft/train/trainer.h"

using namespace weft;

namespace {
// Plans a step of a model of tokens and yields its report; the process grows by less than a
// gibibyte.
train::RunReport planned(const std::string& model, int64_t seq_len) {
  train::Recipe recipe = train::Recipe::parse(
      fmt::format("model: {{name: {}}}\ndata: {{dataset: random-tokens, seq_len: {}}}\n"
                  "train: {{steps: 10, global_batch_size: 1}}\n",
                  model, seq_len),
      "test");
  size_t before = resident_memory();
  std::unique_ptr<train::PlannedRun> run = train::plan_run(recipe, {});
  CHECK(resident_memory() < before + (size_t{1} << 30));
  return run->report;
}
}  // namespace

TEST_CASE("a plan of a model far beyond this machine allocates none of it") {
  train::RunReport report = planned("llama-8b", 128);
  CHECK(report.parameters == 8'030'261'248);
  CHECK(report.model_bytes == 4 * size_t{8'030'261'248});
  CHECK(report.optimizer_bytes > 8 * size_t{8'030'261'248});
  CHECK(report.arena_bytes > 0);
  // Of every matrix but the embedding, 2 operations for each weight and token, forward and twice
  // backward.
  double products = 6.0 * (8'030'261'248.0 - 128256.0 * 4096) * 128;
  CHECK(report.flops > products);
  CHECK(report.flops < 1.2 * products);
}

TEST_SUITE("slow: the largest model") {
  TEST_CASE("405 billion parameters are planned") {
    train::RunReport report = planned("llama-405b", 2048);
    CHECK(report.model_bytes == 4 * size_t{405'853'388'800});
  }
}
