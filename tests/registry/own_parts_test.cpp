// Tests user-defined parts, one of each kind, used in recipes. This is one file because runs
// combine them.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/io/helpers.h"
#include "tests/support/near.h"
#include "weft/base/numbers/philox.h"
#include "weft/io/files.h"
#include "weft/train/checkpoint/checkpoint.h"
#include "weft/train/run/trainer.h"
#include "weft/train/task/evaluation.h"
#include "weft/weft.h"

using namespace weft;
using namespace weft::test;
using weft::testing::near;

namespace {
struct Point {
  std::array<float, 2> at;
  int64_t label;
};

class Points : public data::Source {
 public:
  explicit Points(std::vector<Point> points) : points_(std::move(points)) {}
  int64_t size() const override { return std::ssize(points_); }
  Type input_type() const override { return {DType::f32, {2}}; }
  Shape label_shape() const override { return {}; }
  void write(const data::SampleKey& key, std::byte* input, int64_t* labels) const override {
    const Point& point = points_[static_cast<size_t>(key.index)];
    std::memcpy(input, point.at.data(), sizeof point.at);
    *labels = point.label;
  }

 private:
  std::vector<Point> points_;
};

// Distances has numbers as targets: how far a point is from the origin.
class Distances : public data::Source {
 public:
  explicit Distances(std::vector<Point> points) : points_(std::move(points)) {}
  int64_t size() const override { return std::ssize(points_); }
  Type input_type() const override { return {DType::f32, {2}}; }
  Shape label_shape() const override { return {1}; }
  DType label_dtype() const override { return DType::f32; }
  void write_targets(const data::SampleKey& key, std::byte* input, float* target) const override {
    const auto& at = points_[static_cast<size_t>(key.index)].at;
    std::memcpy(input, at.data(), sizeof at);
    *target = std::hypot(at[0], at[1]);
  }

 private:
  std::vector<Point> points_;
};

Tensor quartic(const Tensor& predictions, const Tensor& targets, const train::Recipe&) {
  const Tensor counts = targets != data::ignored_target;
  const Tensor difference = select(counts, predictions - targets, 0);
  return sum(square(square(difference)));
}

// Returns the label of a point: the index of its quadrant.
int64_t quadrant(float x, float y) { return (x > 0 ? 1 : 0) + (y > 0 ? 2 : 0); }

std::vector<Point> quadrants(int64_t count, int64_t seed) {
  std::vector<Point> points;
  for (int64_t i = 0; i < count; ++i) {
    auto draw = [&](int64_t axis) {
      return static_cast<float>(philox_uniform({.seed = seed, .step = i}, axis) * 2 - 1);
    };
    const float x = draw(0), y = draw(1);
    points.push_back({{x, y}, quadrant(x, y)});
  }
  return points;
}

train::TaskData task_of(std::vector<Point> train, std::vector<Point> test) {
  return {.task = train::Task::classification,
          .shape = {InputKind::features, {2}, 4},
          .train = std::make_shared<Points>(std::move(train)),
          .validation = std::make_shared<Points>(std::move(test))};
}

train::TaskData read_points(const std::string& path) {
  std::istringstream file(io::read_file(path, 1 << 20));
  std::vector<Point> points;
  for (Point p; file >> p.at[0] >> p.at[1] >> p.label;) points.push_back(p);
  return task_of(points, points);
}

// Implements sign descent: w -= stride * lr * sign(g).
class SignDescent : public optim::Optimizer {
 public:
  SignDescent(std::vector<Variable> parameters, const optim::OptimizerSettings& settings)
      : Optimizer("SignDescent", std::move(parameters), settings.lr, 0, settings.groups,
                  settings.rounding),
        stride_(settings.keys.number("optimizer.stride")) {}

 private:
  std::vector<Tensor> scalars(const Tensor&, const Tensor& rate, double) const override {
    return {stride_ * rate};
  }
  Tensor update(size_t, const Tensor& value, const Tensor& gradient,
                std::span<const Tensor> scalars, double) const override {
    return value - scalars[0] * sign(gradient);
  }

  double stride_;
};

// Counts the labels whose score fewer than eval.within others exceed.
Tensor top2(const Tensor& scores, const Tensor& labels, const train::Recipe& recipe) {
  const Tensor own = sum(scores * one_hot(labels, scores.dim(-1)), {.axes = {1}, .keepdim = true});
  const Tensor higher = sum(cast(scores > own, DType::f32), {.axes = {1}});
  return sum(select(labels != data::ignored_label,
                    cast(higher < recipe.integer("eval.within"), DType::f32), 0));
}

constexpr RecipeKey stride = {.path = "optimizer.stride",
                              .type = KeyType::number,
                              .initial = "1",
                              .low = 0.5,
                              .high = 8,
                              .help = "sign: length of a step, in learning rates"};

const bool registered = [] {
  using enum KeyType;
  registry::models().add({.name = "plane",
                          .doc = "a small net",
                          .make = [](const nn::Options&, const TaskShape& task) {
                            return make_model("mlp", {{"hidden_sizes", std::vector<int64_t>{8}}},
                                              task);
                          }});
  registry::datasets().add({.name = "quadrants",
                            .doc = "points and the quadrants that they are in",
                            .read =
                                [](const train::Recipe& recipe, const train::DataOptions&) {
                                  return task_of(quadrants(recipe.integer("data.points"), 1),
                                                 quadrants(40, 2));
                                },
                            .keys = {{.path = "data.points",
                                      .type = integer,
                                      .initial = "64",
                                      .low = 1,
                                      .high = 1 << 20,
                                      .help = "quadrants: points to train on"}},
                            .unit = "points"});
  registry::datasets().add({.name = "distances",
                            .doc = "points and their distances from the origin",
                            .read = [](const train::Recipe&, const train::DataOptions&) {
                              return train::TaskData{
                                  .task = train::Task::regression,
                                  .shape = {InputKind::features, {2}, 1},
                                  .train = std::make_shared<Distances>(quadrants(64, 1)),
                                  .validation = std::make_shared<Distances>(quadrants(40, 2))};
                            }});
  registry::losses().add({.name = "quartic",
                          .doc = "fourth powers of the differences",
                          .total = quartic,
                          .labels = DType::f32});
  registry::formats().add({.name = "points",
                           .doc = "lines of x, y and a label",
                           .read = [](const train::Recipe& recipe, const train::DataOptions&) {
                             return read_points(train::find_data(recipe.text("data.path")));
                           }});
  registry::losses().add(
      {.name = "multiple",
       .doc = "so many times the cross entropy",
       .total =
           [](const Tensor& scores, const Tensor& labels, const train::Recipe& recipe) {
             return recipe.number("loss.factor") *
                    cross_entropy(scores, labels, {.reduction = Reduction::sum});
           },
       .keys = {{.path = "loss.factor",
                 .type = number,
                 .initial = "2",
                 .low = 0,
                 .high = 100,
                 .help = "multiple: how many times"}}});
  registry::metrics().add({.name = "top2",
                           .doc = "the part of labels among the two highest scores",
                           .value =
                               [](const train::EvalSums& all, std::span<const double> own,
                                  const train::Recipe& recipe) {
                                 return recipe.number("eval.scale") * own[0] / all.count;
                               },
                           .sums = top2,
                           .keys = {{.path = "eval.within",
                                     .type = integer,
                                     .initial = "2",
                                     .low = 1,
                                     .high = 4,
                                     .help = "top2: the highest scores that count"},
                                    {.path = "eval.scale",
                                     .type = number,
                                     .initial = "1",
                                     .low = 0,
                                     .high = 100,
                                     .help = "top2: a factor of the result"}}});
  registry::optimizers().add(
      {.name = "sign",
       .doc = "steps of one length",
       .settings = "lr",
       .make =
           [](std::vector<Variable> parameters, const optim::OptimizerSettings& settings) {
             return std::make_unique<SignDescent>(std::move(parameters), settings);
           },
       .keys = {stride}});
  registry::schedules().add(
      {.name = "inverse",
       .doc = "falls as one over the steps",
       .rate =
           [](const auto& step, double lr, const optim::ScheduleOptions& options) {
             return lr / (step * options.keys.number("scheduler.slope") + 1.0);
           },
       .keys = {{.path = "scheduler.slope",
                 .type = number,
                 .initial = "1",
                 .low = 0,
                 .high = 10,
                 .help = "inverse: how fast the rate falls"}}});
  return true;
}();

train::Recipe recipe_of(const std::string& more = "") {
  return train::Recipe::parse(
      "model: {name: plane}\n"
      "data: {dataset: quadrants}\n"
      "optimizer: {name: sign, lr: 0.015625}\n"
      "scheduler: {name: inverse}\n"
      "eval: {metrics: [top2], batch_size: 16}\n"
      "log: {every: 1}\n"
      "train: {steps: 3, global_batch_size: 16}\n" +
          more,
      "own.yaml");
}

data::Batch first_batch(const train::Experiment& experiment) {
  data::Loader loader(experiment.train, {.batch_size = experiment.global_batch});
  data::Batch batch;
  loader.next(batch);
  return batch;
}

std::vector<double> weights_of(const train::Experiment& experiment) {
  std::vector<double> all;
  for (const Variable& parameter : experiment.model->parameters())
    for (double value : parameter.value().to_doubles()) all.push_back(value);
  return all;
}
}  // namespace

TEST_CASE("a user's optimizer and schedule move every weight by the step's learning rate") {
  train::Experiment experiment = train::make_experiment(recipe_of());
  train::Steps steps(experiment, "cpu");
  const data::Batch batch = first_batch(experiment);
  for (int step = 1; step <= 3; ++step) {
    const std::vector<double> before = weights_of(experiment);
    steps.run(batch.inputs, batch.labels);
    const std::vector<double> after = weights_of(experiment);
    size_t moved = 0;
    for (size_t i = 0; i < before.size(); ++i) {
      const double by = std::abs(after[i] - before[i]);
      if (by == 0) continue;  // its gradient is zero
      ++moved;
      CHECK(by == near(0.015625 / step, 1e-4));
    }
    CHECK(moved > before.size() / 2);
    CHECK(experiment.optimizer->schedule().at(int64_t{step - 1}) == near(0.015625 / step));
  }
}

TEST_CASE("a user's optimizer and schedule read their own keys") {
  train::Recipe recipe = recipe_of();
  recipe.set("optimizer.stride", "2", "--optimizer.stride");
  recipe.set("scheduler.slope", "3", "--scheduler.slope");
  train::Experiment experiment = train::make_experiment(recipe);
  train::Steps steps(experiment, "cpu");
  const data::Batch batch = first_batch(experiment);
  for (int step = 0; step < 3; ++step) {
    const double rate = 0.015625 / (3 * step + 1);
    CHECK(experiment.optimizer->schedule().at(int64_t{step}) == near(rate));
    const std::vector<double> before = weights_of(experiment);
    steps.run(batch.inputs, batch.labels);
    const std::vector<double> after = weights_of(experiment);
    double longest = 0;
    for (size_t i = 0; i < before.size(); ++i)
      longest = std::max(longest, std::abs(after[i] - before[i]));
    CHECK(longest == near(2 * rate, 1e-4));
  }
}

TEST_CASE("a user's metric reads its keys in the graph and on the host") {
  auto evaluated = [](const char* within, const char* scale) {
    train::Recipe recipe = recipe_of();
    recipe.set("eval.within", within, "--eval.within");
    recipe.set("eval.scale", scale, "--eval.scale");
    return train::evaluate(train::make_experiment(recipe));
  };
  CHECK(evaluated("1", "1").others[0].second == near(evaluated("1", "1").score));
  CHECK(evaluated("4", "1").others[0].second == 1);
  CHECK(evaluated("4", "50").others[0].second == near(50));
}

TEST_CASE("keys of a user's optimizer, schedule and metric become recipe keys") {
  const train::Recipe recipe = recipe_of();
  CHECK(recipe.number("optimizer.stride") == 1);
  CHECK(recipe.number("scheduler.slope") == 1);
  CHECK(recipe.integer("eval.within") == 2);
  CHECK(recipe.to_yaml().find("  stride: 1\n") != std::string::npos);
  CHECK(train::recipe_reference().find("| `optimizer.stride` | number | `1` | 0.5 to 8 | sign: "
                                       "length of a step, in learning rates |\n") !=
        std::string::npos);
  CHECK(train::recipe_schema().find("\"slope\"") != std::string::npos);
  auto message = [](const std::string& yaml) {
    return error_of([&] { train::Recipe::parse(yaml, "r"); });
  };
  CHECK(message("optimizer: {stride: 9}") ==
        "usage: r:1: optimizer.stride must be in 0.5 .. 8. Got '9'.");
  CHECK(message("scheduler: {slope: steep}") ==
        "usage: r:1: scheduler.slope must be a number. Got 'steep'.");
  CHECK(message("optimizer: {strid: 2}") ==
        "usage: r:1: optimizer.strid is no recipe key. Did you mean optimizer.stride?");
  CHECK(message("eval: {withn: 2}") ==
        "usage: r:1: eval.withn is no recipe key. Did you mean eval.within?");
}

TEST_CASE("a key of an unused optimizer, schedule or metric is refused") {
  auto message = [](std::string_view path, const char* value, std::string_view by,
                    const char* name) {
    train::Recipe recipe = recipe_of();
    recipe.set(path, value, "--" + std::string(path));
    recipe.set(by, name, "test");
    return error_of([&] { train::make_experiment(recipe); });
  };
  CHECK(message("optimizer.stride", "2", "optimizer.name", "sgd") ==
        "usage: --optimizer.stride: optimizer.stride is a key of sign. Got optimizer.name sgd.");
  CHECK(message("scheduler.slope", "2", "scheduler.name", "constant") ==
        "usage: --scheduler.slope: scheduler.slope is a key of inverse. Got scheduler.name "
        "constant.");
  CHECK(message("eval.within", "3", "eval.metrics", "[perplexity]") ==
        "usage: --eval.within: eval.within is a key of top2. Got eval.metrics [perplexity].");
  CHECK(message("optimizer.momentum", "0.9", "optimizer.name", "sign") ==
        "usage: [optimizer] sign has no momentum. It has: lr, stride.");
  // Recipes of runs have all keys.
  train::Recipe recipe = recipe_of();
  recipe.set("optimizer.stride", "1.0", "test");
  recipe.set("optimizer.name", "sgd", "test");
  CHECK(train::make_experiment(recipe).optimizer != nullptr);

  const std::vector<Variable> w = {Variable("w", {DType::f32, {2}})};
  auto made = [&](const char* name, const KeyValues& keys) {
    return error_of([&] { optim::make_optimizer(name, w, {.lr = 0.5, .keys = keys}); });
  };
  CHECK(made("sgd", {{"optimizer.stride", 2}}) ==
        "usage: [optimizer] sgd has no stride. It has: lr, momentum, dampening, nesterov, "
        "weight_decay.");
  CHECK(made("sign", {}).starts_with("usage: [recipe] the key optimizer.stride has no value."));
  const auto own = optim::make_optimizer("sign", w, {.lr = 0.5, .keys = {{"optimizer.stride", 2}}});
  own->step(std::vector{tensor({1.0, -3.0}, {2})});
  CHECK(w[0].to_doubles() == std::vector<double>{-1, 1});
}

TEST_CASE("a user's loss with its own key is trained and evaluated") {
  auto losses = [](const char* loss) {
    train::Recipe recipe = recipe_of(loss);
    train::Experiment experiment = train::make_experiment(recipe);
    train::Steps steps(experiment, "cpu");
    const double evaluated = train::evaluate(experiment).loss;
    const data::Batch batch = first_batch(experiment);
    steps.run(batch.inputs, batch.labels);
    return std::pair(steps.loss(), evaluated);
  };
  const auto [trained, evaluated] = losses("");
  CHECK(losses("loss: {name: multiple}\n").first == near(2 * trained, 1e-6));
  CHECK(losses("loss: {name: multiple, factor: 5}\n").first == near(5 * trained, 1e-6));
  CHECK(losses("loss: {name: multiple, factor: 5}\n").second == near(5 * evaluated, 1e-6));
}

TEST_CASE("a user's metric accumulates over batches beside accuracy") {
  train::Experiment experiment = train::make_experiment(recipe_of());
  double right = 0, among_two = 0;
  for (const Point& point : quadrants(40, 2)) {
    const ModeScope mode(Mode::eval);
    const std::vector<float> at(point.at.begin(), point.at.end());
    const std::vector<double> scores = (*experiment.model)(tensor(at, {1, 2})).to_doubles();
    const auto higher = std::ranges::count_if(
        scores, [&](double score) { return score > scores[static_cast<size_t>(point.label)]; });
    right += higher == 0;
    among_two += higher < 2;
  }
  REQUIRE(right < among_two);
  REQUIRE(among_two < 40);
  const train::Evaluation evaluation =
      train::evaluate(experiment);  // batches of 16, the last one partial
  CHECK(evaluation.count == 40);
  CHECK(evaluation.score == near(right / 40));
  REQUIRE(evaluation.others.size() == 1);
  CHECK(evaluation.others[0].first == "top2");
  CHECK(evaluation.others[0].second == near(among_two / 40));
}

TEST_CASE("a run with a user's optimizer, loss and metric is logged and saved") {
  TemporaryFolder folder;
  const train::TrainResult result =
      train::train(recipe_of("name: own\nloss: {name: multiple, factor: 3}\n"),
                   {.runs = folder.file("runs"), .quiet = true});
  CHECK(result.step == 3);
  const std::string log = io::read_file(result.run_folder + "/log.jsonl", 1 << 20);
  CHECK(log.find("\"top2\":") != std::string::npos);
  const train::Recipe saved = train::Recipe::load(result.run_folder + "/recipe.yaml");
  CHECK(saved.number("loss.factor") == 3);
  CHECK(saved.text("scheduler.name") == "inverse");
  train::TrainResult again =
      train::train(saved, {.runs = folder.file("runs"), .resume = true, .quiet = true});
  CHECK(again.step == 3);
}

TEST_CASE("a user's data set and format read their own keys and files") {
  train::Recipe recipe = recipe_of();
  CHECK(train::make_experiment(recipe).train->size() == 64);
  recipe.set("data.points", "32", "--data.points");
  const train::Experiment experiment = train::make_experiment(recipe);
  CHECK(experiment.train->size() == 32);
  CHECK(experiment.dataset->unit == "points");

  TemporaryFolder folder;
  folder.file("some.points", "0.5 0.5 3\n-0.5 0.5 2\n0.25 -1 1\n");
  recipe = recipe_of("");
  recipe.set("data.dataset", "null", "test");
  recipe.set("data.format", "points", "test");
  recipe.set("data.path", folder.file("some.points"), "test");
  recipe.set("train.global_batch_size", "3", "test");
  const train::Experiment read = train::make_experiment(recipe);
  CHECK(read.train->size() == 3);
  CHECK(first_batch(read).labels.to_doubles() == std::vector<double>{3, 2, 1});
}

TEST_CASE("a user's data set of numbers is a regression, with a loss of the user's") {
  TemporaryFolder folder;
  train::Recipe recipe = recipe_of("loss: {name: quartic}\n");
  recipe.set("data.dataset", "distances", "test");
  recipe.set("eval.metrics", "mae", "test");
  const train::TrainResult result =
      train::train(recipe, {.runs = folder.file("runs"), .quiet = true});
  train::Experiment experiment = train::make_experiment(recipe);
  train::load_model(result.checkpoint, experiment);
  double powers = 0, absolute = 0, squares = 0, sum = 0, squares_of_targets = 0;
  data::Loader loader(experiment.validation, {.batch_size = 40});
  data::Batch batch;
  REQUIRE(loader.next(batch));
  const std::vector<double> targets = batch.labels.to_doubles(),
                            predictions = (*experiment.model)(batch.inputs).to_doubles();
  for (size_t i = 0; i < 40; ++i) {
    const double error = predictions[i] - targets[i];
    powers += std::pow(error, 4);
    absolute += std::fabs(error);
    squares += error * error;
    sum += targets[i];
    squares_of_targets += targets[i] * targets[i];
  }
  const train::Evaluation& found = result.evaluation;  // of batches of 16, the last one short
  CHECK(found.count == 40);
  CHECK(found.loss == near(powers / 40, 1e-5));
  CHECK(found.score == near(1 - squares / (squares_of_targets - sum * sum / 40), 1e-5));
  CHECK(found.others[0].second == near(absolute / 40, 1e-5));
  CHECK(found.others[1].second == near(std::sqrt(squares / 40), 1e-5));
  recipe.set("loss.name", "multiple", "--loss.name");
  CHECK(error_of([&] { train::make_experiment(recipe); }) ==
        "usage: --loss.name: loss.name multiple takes labels. The task of these data is "
        "regression. Hint: --loss.name auto.");
}

TEST_CASE("refusals list the entries of weft and of the user's program") {
  auto message = [](const std::string& yaml) {
    return error_of([&] { train::Recipe::parse(yaml, "r"); });
  };
  CHECK(message("loss: {name: hinge}") ==
        "usage: r:1: loss.name must be one of auto, cross_entropy, mse, l1, huber, quartic, "
        "multiple. Got "
        "'hinge'.");
  CHECK(message("eval: {metrics: [recall]}") ==
        "usage: r:1: eval.metrics must be one of accuracy, exact_match, perplexity, mae, rmse, r2, "
        "top2. Got "
        "'recall'.");
  CHECK(message("optimizer: {name: lion}") ==
        "usage: r:1: optimizer.name must be one of adamw, adam, sgd, sign. Got 'lion'.");
  CHECK(message("scheduler: {name: sine}") ==
        "usage: r:1: scheduler.name must be one of constant, linear, cosine, step, wsd, inverse. "
        "Got 'sine'.");
  CHECK(message("data: {format: png}") ==
        "usage: r:1: data.format must be one of idx, cifar, text, jsonl, csv, image_folder, "
        "points. Got 'png'.");
  CHECK(message("data: {dataset: imagenet}") ==
        "usage: r:1: data.dataset must be one of mnist, fashion-mnist, cifar10, addition, "
        "random-images, random-tokens, quadrants, distances. Got 'imagenet'.");
  CHECK(message("data: {points: 0}") ==
        "usage: r:1: data.points must be in 1 .. 1048576. Got '0'.");
  CHECK(message("data: {pionts: 4}") ==
        "usage: r:1: data.pionts is no recipe key. Did you mean data.points?");
  CHECK(error_of([] { registry::losses().add({.name = "multiple"}); }) ==
        "usage: [loss] the name \"multiple\" is taken or empty.");
  // The task needs a key that these data do not have.
  train::Recipe recipe = recipe_of("task: masked_lm\n");
  CHECK(error_of([&] { train::make_experiment(recipe); }) ==
        "usage: own.yaml:8: task masked_lm needs text or random-tokens.");
  recipe = train::Recipe::parse(
      "model: {name: gpt}\ndata: {dataset: addition}\neval: {metrics: [accuracy]}\ntrain: {steps: "
      "1}\n",
      "sums.yaml");
  CHECK(error_of([&] { train::make_experiment(recipe); }) ==
        "usage: sums.yaml:3: eval.metrics: evaluations report exact_match as accuracy with these "
        "data.");
}

TEST_CASE("a recipe parsed before an entry was registered has the defaults of its keys") {
  const train::Recipe older = recipe_of();
  const RecipeKey* lr = train::find_key("optimizer.lr");
  registry::losses().add({.name = "later",
                          .doc = "added late",
                          .keys = {{.path = "loss.later",
                                    .type = KeyType::integer,
                                    .initial = "7",
                                    .help = "a key that comes late"}}});
  CHECK(older.integer("loss.later") == 7);
  CHECK(older.to_yaml().find("  later: 7\n") != std::string::npos);
  CHECK(train::find_key("loss.later") != nullptr);
  CHECK(lr->path == "optimizer.lr");
}

TEST_CASE("entries share a key only where they describe it alike") {
  auto make = [](std::vector<Variable> parameters, const optim::OptimizerSettings& settings) {
    return std::make_unique<SignDescent>(std::move(parameters), settings);
  };
  registry::optimizers().add(
      {.name = "walk", .doc = "as sign", .settings = "lr", .make = make, .keys = {stride}});
  train::Recipe recipe = recipe_of();
  recipe.set("optimizer.name", "walk", "test");
  recipe.set("optimizer.stride", "4", "test");
  CHECK(train::make_experiment(recipe).optimizer != nullptr);
  recipe.set("optimizer.name", "sgd", "test");
  CHECK(error_of([&] { train::make_experiment(recipe); }) ==
        "usage: test: optimizer.stride is a key of sign, walk. Got optimizer.name sgd.");
}
