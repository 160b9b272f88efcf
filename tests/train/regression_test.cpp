// Tests regressions and classifications of CSV files: losses and metrics by their formulas, fits
// against least squares, and runs that keep the normalization of their training rows.
#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <functional>
#include <memory>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/support/near.h"
#include "tests/train/runs.h"
#include "weft/base/numbers/philox.h"
#include "weft/io/files.h"
#include "weft/train/checkpoint/checkpoint.h"
#include "weft/train/task/evaluation.h"
#include "weft/weft.h"

using namespace weft;
using namespace weft::test;
using weft::testing::near;

namespace {
using Row = std::array<double, 3>;  // a, b and y
using Rows = std::vector<Row>;

Rows rows_of(int64_t count, int64_t seed, const std::function<double(double a, double b)>& y,
             double noise = 0) {
  Rows rows;
  for (int64_t i = 0; i < count; ++i) {
    const auto draw = [&](int64_t at) { return philox_uniform({.seed = seed, .step = i}, at); };
    const double a = 1000 + 50 * draw(0), b = 0.01 * draw(1) - 0.02;
    rows.push_back({a, b, y(a, b) + noise * (draw(2) - 0.5)});
  }
  return rows;
}

std::string csv_of(const Rows& rows) {
  std::string text = "a,b,y\n";
  for (const Row& row : rows) text += fmt::format("{},{},{}\n", row[0], row[1], row[2]);
  return text;
}

// Returns the bias and the weights of the least-squares fit y ~ w0 + w1 a + w2 b, by Cramer's rule
// on the normal equations of centred columns.
Row least_squares(const Rows& rows) {
  Row mean = {};
  for (const Row& row : rows)
    for (size_t i = 0; i < 3; ++i) mean[i] += row[i] / static_cast<double>(rows.size());
  double aa = 0, ab = 0, bb = 0, ay = 0, by = 0;
  for (const Row& row : rows) {
    const double a = row[0] - mean[0], b = row[1] - mean[1], y = row[2] - mean[2];
    aa += a * a, ab += a * b, bb += b * b, ay += a * y, by += b * y;
  }
  const double det = aa * bb - ab * ab;
  const double w1 = (ay * bb - by * ab) / det, w2 = (by * aa - ay * ab) / det;
  return {mean[2] - w1 * mean[0] - w2 * mean[1], w1, w2};
}

train::Recipe csv_recipe(const TemporaryFolder& folder, const std::string& more) {
  return train::Recipe::parse(
      fmt::format("data: {{format: csv, path: {}, target: y}}\nlog: {{every: 1000}}\n",
                  folder.path()) +
          more,
      "test.yaml");
}
const std::string linear_model = "model: {layers: [{linear: {out_features: 1}}]}\n";
const std::string small_run =
    "model: {name: mlp, config: {hidden_sizes: [8]}}\n"
    "train: {steps: 40, global_batch_size: 16}\neval: {every: 10}\ncheckpoint: {best: r2}\n";

double total_of(const char* name, double delta = 1) {
  train::Recipe recipe;
  recipe.set("loss.delta", fmt::format("{}", delta), "test");
  const Tensor predictions = tensor(std::vector<float>{1, 2, 3, 4, 5, 6}, {3, 2});
  const Tensor targets =
      tensor(std::vector<float>{1.5F, 0, 3, data::ignored_target, 5.25F, 2}, {3, 2});
  return registry::losses().get(name).total(predictions, targets, recipe).item();
}

// Evaluates a checkpoint, on the recipe's data as they are now.
train::Evaluation evaluated(const train::Recipe& recipe, const std::string& checkpoint) {
  train::Experiment experiment = train::make_experiment(recipe, {.checkpoint = checkpoint});
  train::load_model(checkpoint, experiment);
  return train::evaluate(experiment);
}
}  // namespace

TEST_CASE("losses of numbers have PyTorch's sums, over the targets that count") {
  // The differences are 0.5, 2, 0, 0.25 and 4.
  CHECK(total_of("mse") == near(0.25 + 4 + 0 + 0.0625 + 16));
  CHECK(total_of("l1") == near(0.5 + 2 + 0 + 0.25 + 4));
  CHECK(total_of("huber") == near(0.125 + 1.5 + 0 + 0.03125 + 3.5));
  CHECK(total_of("huber", 0.25) == near(0.25 * 0.375 + 0.25 * 1.875 + 0 + 0.03125 + 0.25 * 3.875));
}

TEST_CASE("a linear model reaches the least-squares fit, in the units of the file") {
  const TemporaryFolder folder;
  const auto y = [](double a, double b) { return 3e4 + 2 * a - 9e3 * b + 0.01 * a * a; };
  const Rows rows = rows_of(128, 1, y, 40), others = rows_of(50, 2, y, 40);
  folder.file("train.csv", csv_of(rows));
  folder.file("validation.csv", csv_of(others));
  const train::Recipe recipe =
      csv_recipe(folder, linear_model +
                             "optimizer: {name: sgd, lr: 0.3, weight_decay: 0}\n"
                             "train: {steps: 200, global_batch_size: 128, precision: fp64}\n"
                             "eval: {every: 1000, batch_size: 16}\n");
  const train::TrainResult result = train_in(folder, recipe);

  const Row fit = least_squares(rows);
  double absolute = 0, squares = 0, sum = 0, variation = 0;
  for (const Row& row : others) sum += row[2];
  for (const Row& row : others) {
    const double error = fit[0] + fit[1] * row[0] + fit[2] * row[1] - row[2];
    absolute += std::fabs(error);
    squares += error * error;
    variation += std::pow(row[2] - sum / 50, 2);
  }
  const train::Evaluation& found = result.evaluation;
  CHECK(found.count == 50);
  CHECK(found.score_name == "r2");
  CHECK(found.score == near(1 - squares / variation, 1e-4));
  REQUIRE(found.others.size() == 2);
  CHECK(found.others[0].first == "mae");
  CHECK(found.others[0].second == near(absolute / 50, 1e-4));
  CHECK(found.others[1].first == "rmse");
  CHECK(found.others[1].second == near(std::sqrt(squares / 50), 1e-4));

  train::Experiment experiment = train::make_experiment(recipe, {.checkpoint = result.checkpoint});
  train::load_model(result.checkpoint, experiment);
  const data::TableColumns columns = data::TableColumns::from_json(
      io::read_file(result.checkpoint + "/columns.json", 1 << 20), "columns.json");
  const std::vector<double> weights = experiment.model->parameters().front().value().to_doubles();
  REQUIRE(weights.size() == 2);
  for (size_t i = 0; i < 2; ++i)
    CHECK(weights[i] * columns.targets[0].std / columns.features[i].std == near(fit[i + 1], 1e-4));
}

TEST_CASE("a multi-layer perceptron explains a smooth function on held-out rows") {
  const TemporaryFolder folder;
  folder.file("train.csv", csv_of(rows_of(1500, 3, [](double a, double b) {
                return 1e6 * std::sin(a / 10) + 2e8 * b * (b + 0.02);
              })));
  train::Recipe recipe = csv_recipe(folder,
                                    "model: {name: mlp, config: {hidden_sizes: [32, 32]}}\n"
                                    "optimizer: {lr: 0.01}\nscheduler: {name: cosine}\n"
                                    "train: {epochs: 60, global_batch_size: 32}\n"
                                    "eval: {every: 10000}\n");
  recipe.set("data.val_split", "0.2", "test");
  const train::TrainResult result = train_in(folder, recipe);
  CHECK(result.evaluation.count == 300);
  CHECK(result.evaluation.score > 0.99);
}

TEST_CASE("rows that are held out come from the whole file and do not depend on the seed") {
  TemporaryFolder folder;
  Rows rows;
  for (int i = 0; i < 40; ++i) rows.push_back({1.0 * i, -1.0 * i, 10.0 * i});  // ascending targets
  folder.file("train.csv", csv_of(rows));
  const auto targets = [](const std::shared_ptr<const data::Source>& source) {
    data::Loader loader(source, {.batch_size = source->size()});
    data::Batch batch;
    REQUIRE(loader.next(batch));
    std::vector<float> all = batch.labels.to_vector<float>();
    std::ranges::sort(all);
    return all;
  };
  std::vector<float> held_out;
  for (const char* seed : {"0", "1"}) {
    auto recipe = csv_recipe(folder, linear_model + "train: {steps: 1, global_batch_size: 10}\n");
    recipe.set("data.val_split", "0.25", "test");
    recipe.set("seed", seed, "test");
    const train::Experiment experiment = train::make_experiment(recipe);
    const std::vector<float> kept = targets(experiment.train);
    const std::vector<float> out = targets(experiment.validation);
    CHECK(kept.size() == 30);
    CHECK(out.size() == 10);
    CHECK(out.front() < kept[15]);
    CHECK(out.back() > kept[15]);
    if (held_out.empty()) held_out = out;
    CHECK(out == held_out);
  }
}

TEST_CASE("several targets are fitted at once and scored by their mean") {
  const TemporaryFolder folder;
  folder.file("train.csv", csv_of(rows_of(64, 4, [](double a, double b) { return a + 5000 * b; })));
  train::Recipe recipe = csv_recipe(folder,
                                    "model: {layers: [{linear: {out_features: 2}}]}\n"
                                    "optimizer: {name: sgd, lr: 0.2, weight_decay: 0}\n"
                                    "train: {steps: 400, global_batch_size: 64}\n");
  recipe.set("data.target", "[y, b]", "test");
  recipe.set("data.features", "a", "test");
  recipe.set("data.val_path", folder.file("train.csv"), "test");
  const train::TrainResult result = train_in(folder, recipe);
  // The r2 of a least-squares line is the square of the correlation of its input and its target.
  const Rows rows = rows_of(64, 4, [](double a, double b) { return a + 5000 * b; });
  const auto correlation = [&](size_t i, size_t j) {
    Row mean = {};
    for (const Row& row : rows)
      for (size_t k = 0; k < 3; ++k) mean[k] += row[k] / 64;
    double ij = 0, ii = 0, jj = 0;
    for (const Row& row : rows) {
      ij += (row[i] - mean[i]) * (row[j] - mean[j]);
      ii += std::pow(row[i] - mean[i], 2);
      jj += std::pow(row[j] - mean[j], 2);
    }
    return ij / std::sqrt(ii * jj);
  };
  CHECK(result.evaluation.score ==
        near((std::pow(correlation(0, 2), 2) + std::pow(correlation(0, 1), 2)) / 2, 1e-3));
}

TEST_CASE("a regression that was stopped and resumed is bit-identical to an uninterrupted one") {
  const TemporaryFolder whole, stopped, files;
  files.file("train.csv", csv_of(rows_of(100, 5, [](double a, double b) { return a * b; })));
  train::Recipe recipe = csv_recipe(files, small_run);
  recipe.set("data.val_split", "0.3", "test");
  for (const char* split : {"1", "4"}) {
    recipe.set("name", fmt::format("run{}", split), "test");
    recipe.set("train.micro_batch_size", fmt::format("{}", 16 / std::stoi(split)), "test");
    const train::TrainResult expected = train_in(whole, recipe);
    REQUIRE(train_in(stopped, recipe, false, {.signal = SIGTERM, .step = 17}).exit_code ==
            train::exit_saved);
    const train::TrainResult result = train_in(stopped, recipe, true);
    check_equal(expected.checkpoint, result.checkpoint);
    CHECK(result.evaluation.score == expected.evaluation.score);
  }
}

TEST_CASE("a checkpoint's normalization is used on other rows, and its own rows are required") {
  const TemporaryFolder folder;
  const Rows rows = rows_of(100, 6, [](double a, double b) { return a * b; });
  folder.file("train.csv", csv_of(rows));
  folder.file("validation.csv", csv_of({rows.begin(), rows.begin() + 30}));
  const train::Recipe recipe = csv_recipe(folder, small_run);
  const train::TrainResult result = train_in(folder, recipe);
  Rows shifted = rows;
  for (Row& row : shifted) row[0] *= 3;
  folder.file("train.csv", csv_of(shifted));
  const train::Evaluation again = evaluated(recipe, result.checkpoint);
  CHECK(again.loss == result.evaluation.loss);
  CHECK(again.others == result.evaluation.others);

  // Scores are scikit-learn's where the targets are alike, and where they are far from the mean.
  const double unit = data::TableColumns::from_json(
                          io::read_file(result.checkpoint + "/columns.json", 1 << 20), "columns")
                          .targets[0]
                          .std;
  Rows others(rows.begin(), rows.begin() + 30);
  for (Row& row : others) row[2] = 1234.567;
  folder.file("validation.csv", csv_of(others));
  CHECK(evaluated(recipe, result.checkpoint).score == 0);
  for (size_t i = 0; i < others.size(); ++i) others[i][2] = 1e4 * unit + (i % 2 == 0 ? unit : 0);
  folder.file("validation.csv", csv_of(others));
  const train::Evaluation far = evaluated(recipe, result.checkpoint);
  const double residual = std::pow(far.others[1].second / unit, 2);  // rmse
  CHECK(far.score == near(1 - residual / 0.25, 1e-4));

  const std::string error = error_of([&] { train_in(folder, recipe, true); });
  CHECK(error.find("it was trained on other data (fingerprint ") != std::string::npos);
}

TEST_CASE("classes of a column are learned, and evaluations report accuracy") {
  const TemporaryFolder folder;
  std::string text = "x;kind;z\r\n";
  for (int64_t i = 0; i < 300; ++i) {
    const double x = philox_uniform({.seed = 7}, 2 * i), z = philox_uniform({.seed = 7}, 2 * i + 1);
    text += fmt::format("{};{};{}\r\n", x, x > z ? "\"be;low\"" : "above", z);
  }
  train::Recipe recipe = csv_recipe(folder,
                                    "task: classification\nmodel: {name: mlp}\n"
                                    "optimizer: {lr: 0.01}\neval: {every: 10000}\n"
                                    "train: {epochs: 30, global_batch_size: 16}\n");
  recipe.set("data.path", folder.file("all.csv", text), "test");
  recipe.set("data.target", "kind", "test");
  recipe.set("data.separator", "';'", "test");
  recipe.set("data.val_split", "0.2", "test");
  const train::TrainResult result = train_in(folder, recipe);
  CHECK(result.evaluation.score_name == "accuracy");
  CHECK(result.evaluation.count == 60);
  CHECK(result.evaluation.score > 0.95);
}

TEST_CASE("a loss, metric or task that does not fit the data is refused") {
  const TemporaryFolder folder;
  folder.file("train.csv", csv_of(rows_of(20, 8, [](double a, double) { return a; })));
  const auto message = [&](const std::string& key, const std::string& value,
                           const std::string& task = "auto") {
    train::Recipe recipe =
        csv_recipe(folder, linear_model + "train: {steps: 1, global_batch_size: 4}\n");
    recipe.set("task", task, "test");
    recipe.set("data.val_split", "0.5", "test");
    recipe.set(key, value, "--" + key);
    return error_of([&] { train::make_experiment(recipe); });
  };
  CHECK(message("loss.name", "huber") == "none");
  CHECK(message("task", "regression") == "none");
  CHECK(message("loss.name", "cross_entropy") ==
        "usage: --loss.name: loss.name cross_entropy takes labels. The task of these data is "
        "regression. Hint: --loss.name auto.");
  CHECK(message("loss.name", "mse", "classification") ==
        "usage: --loss.name: loss.name mse takes numbers. The task of these data is "
        "classification. Hint: --loss.name auto.");
  CHECK(message("loss.delta", "2") ==
        "usage: --loss.delta: loss.delta is a key of huber. Got loss.name auto.");
  CHECK(message("eval.metrics", "accuracy") ==
        "usage: --eval.metrics: eval.metrics: accuracy takes labels. The task of these data is "
        "regression.");
  CHECK(message("checkpoint.best", "accuracy") ==
        "usage: --checkpoint.best: checkpoint.best is loss or r2 with these data. Got accuracy.");
  CHECK(message("task", "causal_lm") ==
        "usage: --task: the task of these data is regression. Got causal_lm. Hint: task: auto.");
  CHECK(message("data.target", "[]") ==
        "usage: --data.target: data.format csv needs data.target, the name of the column to "
        "predict.");
  CHECK(message("data.target", "[y, a]", "classification") ==
        "usage: --data.target: data.target is one column with task classification. Got 2.");
  CHECK(message("data.features", "[a, y]") ==
        "usage: --data.features: data.features names 'y', which is named before.");
  CHECK(message("data.separator", "tab") ==
        "usage: --data.separator: data.separator must be one character, and no quote or line end. "
        "Got 'tab'.");
}
