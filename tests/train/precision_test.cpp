// Compares loss curves of narrow precisions with those of float32 on real data.
#include <cmath>

#include <doctest/doctest.h>

#include "tests/train/runs.h"
#include "weft/data/loader.h"
#include "weft/train/run/steps.h"

using namespace weft;
using namespace weft::test;

namespace {
constexpr int steps_of_run = 500, window = 25;

struct PrecisionSettings {
  std::string precision, rounding = "null", keep = "fp32";
};

// Returns the mean losses of windows of 25 steps.
std::vector<double> window_means(train::Recipe recipe, const PrecisionSettings& kind, int seed) {
  recipe.set("train.precision", kind.precision, "test");
  recipe.set("train.rounding", kind.rounding, "test");
  recipe.set("train.keep", kind.keep, "test");
  recipe.set("seed", std::to_string(seed), "test");
  train::Experiment experiment = train::make_experiment(recipe);
  train::Steps steps(experiment, "cpu");
  data::Loader loader(experiment.train,
                      {.batch_size = experiment.global_batch, .shuffle = true, .seed = seed});
  std::vector<double> means(steps_of_run / window);
  data::Batch batch;
  for (size_t step = 0; step < steps_of_run; ++step) {
    if (!loader.next(batch)) REQUIRE(loader.next(batch));
    steps.pass(batch.inputs, batch.labels);
    means[step / window] += steps.loss() / window;
  }
  return means;
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double squares = 0;
  for (size_t i = 0; i < a.size(); ++i) squares += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(squares / static_cast<double>(a.size()));
}

const std::vector<PrecisionSettings> mixed = {
    {"bf16-mixed"}, {"fp16-mixed"}, {"fp32", "null", "bf16"}};
const std::vector<PrecisionSettings> narrow = {{"bf16-mixed"},
                                               {"fp16-mixed"},
                                               {"fp32", "null", "bf16"},
                                               {"bf16", "stochastic"},
                                               {"bf16", "kahan"}};

void check_curves(const train::Recipe& recipe, const std::vector<PrecisionSettings>& kinds) {
  const std::vector<double> exact = window_means(recipe, {"fp32"}, 1);
  const double spread = distance(exact, window_means(recipe, {"fp32"}, 2));
  CHECK(exact.back() < 0.8 * exact.front());
  for (const PrecisionSettings& kind : kinds) {
    const double off = distance(exact, window_means(recipe, kind, 1));
    MESSAGE(kind.precision << ", rounding " << kind.rounding << ", kept in " << kind.keep << ": "
                           << off << " from float32, whose seeds differ by " << spread);
    CHECK(off <= spread);
  }
}
}  // namespace

TEST_SUITE("slow precision curves") {
  TEST_CASE("ResNet-20: loss curves of every precision agree") {
    if (!has_data("cifar-10-binary")) return;
    check_curves(train::Recipe::parse(R"(
model: {name: resnet20}
data: {dataset: cifar10}
optimizer: {name: sgd, lr: 0.1, momentum: 0.9, weight_decay: 5.0e-4}
scheduler: {name: cosine, warmup_steps: 50}
train: {steps: 500, global_batch_size: 32}
)",
                                      "test.yaml"),
                 mixed);  // bf16 parameters exceed the spread (docs/roadmap.md)
  }
  TEST_CASE("GPT: loss curves of every precision agree") {
    if (!has_data("text/tinyshakespeare.txt")) return;
    check_curves(train::Recipe::parse(R"(
model: {name: gpt, config: {hidden_size: 128, num_hidden_layers: 4, num_attention_heads: 4}}
data: {format: text, path: text/tinyshakespeare.txt, tokenizer: characters, seq_len: 64, val_split: 0.1}
optimizer: {name: adamw, lr: 1.0e-3}
scheduler: {name: cosine, warmup_steps: 50}
train: {steps: 500, global_batch_size: 12, grad_clip: 1.0}
)",
                                      "test.yaml"),
                 narrow);
  }
}
