// Compares one loss curve under every setting: settings that preserve bits do so in every
// precision, and those that change the order of summation stay close.
#include <cmath>

#include <doctest/doctest.h>

#include "tests/support/near.h"
#include "tests/support/threads.h"
#include "tests/train/runs.h"
#include "weft/data/loader.h"
#include "weft/train/run/steps.h"

using namespace weft;
using namespace weft::test;

namespace {
struct Setting {
  std::string precision, recompute = "none";
  bool fuse = true;
  int threads = 2;
  std::string keep = "fp32";
  int chunks = 1;
};

// Returns the losses and gradient norms of three steps.
std::vector<double> curve(train::Recipe recipe, const Setting& setting) {
  testing::Threads threads(setting.threads);
  recipe.set("train.precision", setting.precision, "test");
  recipe.set("train.recompute", setting.recompute, "test");
  recipe.set("train.keep", setting.keep, "test");
  recipe.set("train.chunks", std::to_string(setting.chunks), "test");
  random_step().assign(tensor(std::vector<int64_t>{0}, {}));  // resets dropout
  train::Experiment experiment = train::make_experiment(recipe);
  StepOptions options = train::step_options(experiment, "cpu");
  if (!setting.fuse) options.skip = {"fuse"};
  train::Steps steps(experiment, options);
  data::Loader loader(experiment.train, {.batch_size = experiment.global_batch, .seed = 1});
  std::vector<double> values;
  data::Batch batch;
  for (int step = 0; step < 3; ++step) {
    REQUIRE(loader.next(batch));
    steps.run(batch.inputs, batch.labels);
    values.push_back(steps.loss());
    values.push_back(steps.grad_norm());
  }
  return values;
}

double farthest(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i)
    most = testing::larger(most, std::abs(a[i] - b[i]) / std::abs(a[i]));
  return most;
}

// Sums that are split differently differ by rounding, which can make a later value round to the
// other neighbour in the narrow type of the products.
double tolerance(const std::string& precision) {
  if (precision == "fp32") return 1e-5;
  return precision == "fp16-mixed" ? 2e-3 : 1e-2;
}

void check_matrix(const train::Recipe& recipe, const std::vector<std::string>& precisions) {
  for (const std::string& precision : precisions) {
    CAPTURE(precision);
    const std::vector<double> plain = curve(recipe, {precision});
    CHECK(std::isfinite(plain.back()));
    CHECK(curve(recipe, {precision, "full"}) == plain);
    for (auto [fuse, threads] : {std::pair(true, 1), std::pair(false, 3)}) {
      CAPTURE(threads);
      CAPTURE(fuse);
      const std::vector<double> kept = curve(recipe, {precision, "none", fuse, threads});
      CHECK(curve(recipe, {precision, "full", fuse, threads}) == kept);
      CHECK(farthest(plain, kept) <= tolerance(precision));
    }
    const std::vector<double> cut = curve(recipe, {precision, "none", true, 2, "fp32", 2});
    CHECK(curve(recipe, {precision, "full", true, 2, "fp32", 2}) == cut);
    if (precision == "fp32" || precision == "fp64")
      CHECK(cut == plain);
    else
      CHECK(farthest(plain, cut) <= tolerance(precision));
    if (precision == "fp64" || precision == "bf16") continue;
    // Activation compression changes gradients, but not the first loss of unfused kernels, which
    // are the same forward, and it does not affect the exactness of rematerialization.
    const std::vector<double> rounded = curve(recipe, {precision, "none", true, 2, "bf16"});
    CHECK(curve(recipe, {precision, "full", true, 2, "bf16"}) == rounded);
    const std::vector<double> unfused = curve(recipe, {precision, "none", false, 2});
    CHECK(curve(recipe, {precision, "none", false, 2, "bf16"}).front() == unfused.front());
    CHECK(farthest({plain.front()}, {rounded.front()}) <= tolerance(precision));
    CHECK(farthest(plain, rounded) <= 1e-2);
  }
}

train::Recipe gpt_recipe() { return sums_recipe("train: {steps: 3, global_batch_size: 8}\n"); }
train::Recipe lstm_recipe() {
  train::Recipe recipe = gpt_recipe();
  recipe.set("model.name", "lstm", "test");
  recipe.set("model.config", "{hidden_size: 16, num_hidden_layers: 2, dropout: 0.1}", "test");
  return recipe;
}
train::Recipe convolutions_recipe(const TemporaryFolder& folder) {
  return images_recipe(folder, "train: {steps: 3}\n");
}
train::Recipe mlp_recipe(const TemporaryFolder& folder) {
  train::Recipe recipe = images_recipe(folder, "train: {steps: 3, global_batch_size: 16}\n");
  recipe.set("model.layers",
             "[flatten, {linear: {out_features: 32}}, relu, {linear: {out_features: 4}}]", "test");
  return recipe;
}
}  // namespace

TEST_CASE("losses agree under every recomputation, fusion and thread count") {
  TemporaryFolder folder;
  check_matrix(gpt_recipe(), {"bf16-mixed"});
  check_matrix(convolutions_recipe(folder), {"fp32"});
}

TEST_SUITE("slow matrix") {
  TEST_CASE("losses agree under every precision, recomputation, fusion and thread count") {
    const std::vector<std::string> all{"fp32", "fp64", "bf16-mixed", "fp16-mixed", "bf16"};
    TemporaryFolder folder;
    SUBCASE("MLP") { check_matrix(mlp_recipe(folder), all); }
    SUBCASE("convolutions") { check_matrix(convolutions_recipe(folder), all); }
    SUBCASE("GPT") { check_matrix(gpt_recipe(), all); }
    SUBCASE("LSTM") { check_matrix(lstm_recipe(), all); }
  }
}
