#include <algorithm>
#include <map>
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

// Each rank sends (n-1)/n of the bytes of a tensor to gather it or to scatter its sum, in n-1
// messages, and twice as much where all get the sum.
TEST_CASE("plans of ranks count what each of them sends, for how long, and its part of the state") {
  constexpr double bytes_per_s = 1.25e9, latency = 3e-5;  // Ethernet 10
  constexpr int passes = 2;
  for (const int n : {2, 8}) {
    for (const int zero : {0, 1, 2, 3}) {
      CAPTURE(n);
      CAPTURE(zero);
      const train::PlannedRun run(
          train::Recipe::parse(
              fmt::format("model: {{name: mlp, config: {{hidden_sizes: [128, 256]}}}}\n"
                          "data: {{dataset: random-images, image_size: 8, classes: 4}}\n"
                          "train: {{steps: 2, global_batch_size: {}, micro_batch_size: 4, "
                          "grad_clip: null}}\noptimizer: {{name: adamw}}\n"
                          "parallel: {{dp: {}, zero: {}, link: Ethernet 10}}\n",
                          4 * passes * n, n, zero),
              "test"),
          {.flops_per_s = 1e12, .bytes_per_s = 1e11});
      double large = 0, small = 0, first = 0;  // bytes of parameters; those below 16 KiB stay whole
      for (const Variable& parameter : run.experiment.model->variables()) {
        const auto bytes = static_cast<double>(parameter.type().bytes());
        (bytes < 16384 ? small : large) += bytes;
        if (first == 0) first = bytes;
      }
      std::map<std::string, Exchange> sent;
      for (const Exchange& each : run.report.exchanges) sent[each.op] = each;
      const double others = (n - 1.0) / n;
      const auto check = [&](const char* op, int64_t count, double whole) {
        CAPTURE(op);
        CHECK(sent[op].count == count);
        CHECK(sent[op].bytes_sent == doctest::Approx(others * whole));
      };
      check("reduce_scatter",
            zero == 0   ? 0
            : zero == 1 ? 2
                        : 2 * passes,
            zero == 0   ? 0
            : zero == 1 ? large
                        : passes * large);
      // The backward pass gathers all weights again but the first, whose input has no gradient.
      check("all_gather",
            zero == 0  ? 0
            : zero < 3 ? 2
                       : 3 * passes,
            zero == 0  ? 0
            : zero < 3 ? large
                       : passes * (2 * large - first));
      const double summed = sent["all_reduce"].bytes_sent / (2 * others);
      const double scalars = summed - small - (zero == 0 ? large : 0);  // loss, count, norm
      CHECK(scalars >= 0);
      CHECK(scalars <= 32);
      double seconds = 0;
      for (const auto& [op, each] : sent)
        seconds += each.bytes_sent / bytes_per_s + static_cast<double>(each.count) * latency *
                                                       (n - 1) * (op == "all_reduce" ? 2 : 1);
      CHECK(run.report.exchange_seconds == doctest::Approx(seconds));
      const auto part = [&](int level) { return small + (zero < level ? large : large / n); };
      CHECK(static_cast<double>(run.report.bytes_of("weights")) == part(3));
      CHECK(static_cast<double>(run.report.bytes_of("accumulated gradients")) == part(2));
      CHECK(static_cast<double>(run.report.bytes_of("optimizer")) == 2 * part(1) + 8);
    }
  }
}
