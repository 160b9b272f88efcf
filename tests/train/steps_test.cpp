#include "weft/train/run/steps.h"

#include <array>
#include <cmath>

#include <doctest/doctest.h>

#include "tests/support/near.h"
#include "tests/support/values.h"
#include "tests/train/runs.h"
#include "weft/data/loader.h"
#include "weft/train/checkpoint/checkpoint.h"
#include "weft/train/task/evaluation.h"

using namespace weft;
using namespace weft::test;
using weft::testing::larger;
using weft::testing::near;

namespace {
constexpr const char* with_dropout =
    "{hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2, dropout: 0.1}";

// Returns all parameters after three updates of 24 sums each.
std::vector<double> parameters_after(const std::string& micro_batch, const std::string& optimizer,
                                     const std::string& grad_clip = "0.5") {
  auto recipe = sums_recipe("train: {steps: 3, global_batch_size: 24, precision: fp64}\n");
  recipe.set("train.grad_clip", grad_clip, "test");
  recipe.set("model.config", with_dropout, "test");
  recipe.set("train.micro_batch_size", micro_batch, "test");
  recipe.set("optimizer.name", optimizer, "test");
  train::Experiment experiment = train::make_experiment(recipe);
  train::Steps steps(experiment, "cpu");
  data::Loader loader(experiment.train, {.batch_size = 24, .shuffle = true});
  data::Batch batch;
  double loss = 0;
  for (int i = 0; i < 3; ++i) {
    loader.next(batch);
    for (int64_t pass = 0; pass < experiment.passes_per_step(); ++pass) {
      int64_t rows = experiment.micro_batch;
      steps.pass(slice(batch.inputs, 0, pass * rows, (pass + 1) * rows).eval(),
                 slice(batch.labels, 0, pass * rows, (pass + 1) * rows).eval());
    }
    steps.update();
    loss = steps.loss();
  }
  std::vector<double> all = {loss, steps.grad_norm()};
  for (const Variable& parameter : experiment.model->parameters())
    for (double x : parameter.value().to_doubles()) all.push_back(x);
  return all;
}

// Expected has the sums of loss, correct positions and correct rows over the held-out sums,
// computed from the logits.
struct Expected {
  double loss = 0, right = 0, count = 0, rows = 0, whole = 0;
};
Expected by_loops(const train::Experiment& experiment) {
  CompiledStep logits_step(
      [&](std::span<const Tensor> in) { return std::vector{(*experiment.model)(in[0])}; },
      {.mode = Mode::eval, .device = "cpu"});
  data::Loader loader(experiment.validation, {.batch_size = 1});
  Expected expected;
  for (data::Batch batch; loader.next(batch);) {
    std::vector<double> logits = logits_step.run(std::array{batch.inputs})[0].to_doubles();
    auto labels = batch.labels.to_vector<int64_t>();
    size_t classes = logits.size() / labels.size();
    bool whole = true;
    for (size_t t = 0; t < labels.size(); ++t) {
      if (labels[t] == data::ignored_label) continue;
      const double* row = logits.data() + t * classes;
      double total = 0;
      for (size_t c = 0; c < classes; ++c) total += std::exp(row[c]);
      expected.loss += std::log(total) - row[labels[t]];
      bool right = std::max_element(row, row + classes) - row == labels[t];
      expected.right += right;
      whole = whole && right;
      ++expected.count;
    }
    expected.whole += whole;
    ++expected.rows;
  }
  return expected;
}
}  // namespace

// Dropout draws for each sample what it draws in the whole batch.
TEST_CASE("gradient accumulation equals a single pass even with unequal counts per pass") {
  for (const char* optimizer : {"adamw", "sgd"}) {
    std::vector<double> whole = parameters_after("24", optimizer),
                        split = parameters_after("4", optimizer);
    REQUIRE(whole.size() == split.size());
    double difference = 0;
    for (size_t i = 0; i < whole.size(); ++i)
      difference = larger(difference, std::abs(whole[i] - split[i]));
    INFO(optimizer);
    CHECK(difference < (std::string(optimizer) == "sgd" ? 1e-12 : 1e-7));
  }
}

// Returns the first batches of training and of evaluation.
std::array<Tensor, 2> first_images(const TemporaryFolder& folder,
                                   const std::vector<std::pair<std::string, std::string>>& keys) {
  auto recipe = images_recipe(folder, "train: {steps: 1, global_batch_size: 8}\n");
  for (const auto& [key, value] : keys) recipe.set(key, value, "test");
  const train::Experiment experiment = train::make_experiment(recipe);
  std::array<data::Batch, 2> batches;
  data::Loader(experiment.train, {.batch_size = 8}).next(batches[0]);
  data::Loader(experiment.validation, {.batch_size = 8}).next(batches[1]);
  return {batches[0].inputs, batches[1].inputs};
}

TEST_CASE("images are normalised as the recipe says in training and evaluation") {
  const TemporaryFolder folder;
  const auto plain = first_images(folder, {});
  const auto changed = first_images(folder, {{"data.mean", "[0.5]"}, {"data.std", "[0.25]"}});
  for (size_t part : {0, 1}) {
    const std::vector<double> before = plain[part].to_doubles(), got = changed[part].to_doubles();
    for (size_t i = 0; i < got.size(); ++i)
      CHECK(std::abs(got[i] - (before[i] - 0.5) / 0.25) < 1e-6);
  }
}

TEST_CASE("images are flipped as the recipe says") {
  const TemporaryFolder folder;
  const Tensor plain = first_images(folder, {{"data.transforms", "[]"}})[0];
  const Tensor turned =
      first_images(folder, {{"data.transforms", "[{random_horizontal_flip: {p: 1}}]"}})[0];
  CHECK(testing::same_bits(turned.to_doubles(), flip(plain, {3}).to_doubles()));
  CHECK(turned.to_doubles() != plain.to_doubles());
}

TEST_CASE("a gradient limit of 0 disables clipping") {
  std::vector<double> off = parameters_after("24", "sgd", "null");
  CHECK(parameters_after("24", "sgd", "0") == off);
  CHECK(parameters_after("24", "sgd", "0.01") != off);
}

TEST_CASE("evaluation counts every sample once at any batch size without padding") {
  auto recipe = sums_recipe("train: {steps: 60, global_batch_size: 32}\neval: {every: 1000}\n");
  TemporaryFolder folder;
  std::string checkpoint = train_in(folder, recipe).checkpoint;
  Expected expected;
  for (const char* batch : {"7", "64", "1000"}) {
    recipe.set("eval.batch_size", batch, "test");
    train::Experiment experiment = train::make_experiment(recipe);
    train::load_model(checkpoint, experiment);
    if (expected.count == 0) expected = by_loops(experiment);
    REQUIRE(expected.right > 0);
    REQUIRE(expected.right < expected.count);

    train::Steps steps(experiment, "cpu");
    data::Loader loader(experiment.validation, {.batch_size = experiment.eval_batch});
    train::EvalSums sums;
    for (data::Batch rows; loader.next(rows);) sums += steps.evaluate(rows.inputs, rows.labels);
    CHECK(sums.count == expected.count);
    CHECK(sums.rows == expected.rows);
    CHECK(sums.correct == expected.right);
    CHECK(sums.exact_rows == expected.whole);
    CHECK(sums.loss == near(expected.loss, 1e-5));

    train::Evaluation evaluation = train::evaluate(experiment);
    CHECK(evaluation.score == near(expected.whole / expected.rows));
    CHECK(evaluation.loss == near(expected.loss / expected.count, 1e-5));
    CHECK(evaluation.count == static_cast<int64_t>(expected.rows));
  }
}

TEST_CASE("label smoothing changes the training loss and not the evaluation loss") {
  auto recipe = sums_recipe("train: {steps: 1, global_batch_size: 16}\n");
  auto losses = [&](const char* smoothing) {
    recipe.set("loss.label_smoothing", smoothing, "test");
    train::Experiment experiment = train::make_experiment(recipe);
    train::Steps steps(experiment, "cpu");
    data::Loader loader(experiment.train, {.batch_size = 16});
    data::Batch batch;
    loader.next(batch);
    double evaluated = steps.evaluate(batch.inputs, batch.labels).loss;
    steps.pass(batch.inputs, batch.labels);
    steps.update();
    return std::pair(steps.loss(), evaluated);
  };
  auto [hard, hard_eval] = losses("0");
  auto [soft, soft_eval] = losses("0.3");
  CHECK(hard != soft);
  CHECK(hard_eval == soft_eval);
}
