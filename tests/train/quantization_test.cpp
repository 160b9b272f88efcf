// Tests quantization-aware training in runs: resumed runs are bit-identical, evaluation computes
// with what the run learned, and batch norm's statistics are those of the rounded net.
#include "weft/train/methods/quantization.h"

#include <csignal>

#include <doctest/doctest.h>

#include "tests/support/values.h"
#include "tests/train/runs.h"
#include "weft/io/safetensors.h"
#include "weft/train/checkpoint/checkpoint.h"
#include "weft/train/plan/plan_run.h"
#include "weft/train/task/evaluation.h"

using namespace weft;
using namespace weft::test;

namespace {
train::Recipe quantized(const TemporaryFolder& data, const std::string& more = "") {
  return images_recipe(data,
                       "train: {steps: 10, global_batch_size: 12}\nquantization: "
                       "{activations: static, momentum: 0.1" +
                           more + "}\n");
}
}  // namespace

TEST_CASE("a quantized run that was stopped and resumed is bit-identical") {
  for (const auto& [more, micro] :
       {std::pair("", "6"), std::pair(", start_step: 4, weight_bits: 7", "12")}) {
    CAPTURE(more);
    TemporaryFolder data, whole, stopped;
    train::Recipe recipe = quantized(data, more);
    recipe.set("train.micro_batch_size", micro, "test");
    const train::TrainResult expected = train_in(whole, recipe);
    REQUIRE(train_in(stopped, recipe, false, {.signal = SIGTERM, .step = 3}).exit_code ==
            train::exit_saved);
    check_equal(expected.checkpoint, train_in(stopped, recipe, true).checkpoint);
  }
}

TEST_CASE("a checkpoint is evaluated with the ranges that its run learned") {
  TemporaryFolder data;
  const train::Recipe recipe = quantized(data);
  const train::TrainResult result = train_in(data, recipe);
  train::Experiment experiment =
      train::make_experiment(recipe, {.initialize = false, .checkpoint = result.checkpoint});
  train::load_model(result.checkpoint, experiment);
  const auto state = io::Safetensors::open(result.checkpoint + "/state-optimizer.safetensors");
  CHECK(train::quantization_of(experiment)->ranges().to_doubles() ==
        testing::elements(state.tensor("quantization.ranges")));
  CHECK(train::evaluate(experiment).loss == result.evaluation.loss);
  train::quantize(experiment, nullptr);
  CHECK(train::evaluate(experiment).loss != result.evaluation.loss);
}

TEST_CASE("all that training computes is rounded, and what is excluded is not") {
  TemporaryFolder data, plain, excluded, rounded;
  train::Recipe recipe = quantized(data);
  const auto statistics = [](const std::string& checkpoint) {
    return testing::elements(
        io::Safetensors::open(checkpoint + "/model.safetensors").tensor("1.running_mean"));
  };
  const std::vector<double> with = statistics(train_in(rounded, recipe).checkpoint);
  recipe.set("quantization.exclude", "[0]", "test");
  const std::vector<double> without = statistics(train_in(excluded, recipe).checkpoint);
  CHECK(with != without);
  recipe.set("quantization.exclude", "[]", "test");
  recipe.set("quantization.activations", "dynamic", "test");  // convolutions stay
  CHECK(statistics(train_in(plain, recipe).checkpoint) != with);
}

TEST_CASE("plans count the ranges, and a resumed run refuses other quantization") {
  TemporaryFolder data;
  const train::Recipe recipe = quantized(data);
  train::Recipe plain = recipe;
  plain.set("quantization.activations", "null", "test");
  plain.set("quantization.momentum", "0.01", "test");
  const auto bytes = [](const train::Recipe& of) {
    return train::plan_run(of)->report.bytes_of("optimizer");
  };
  CHECK(bytes(recipe) - bytes(plain) == 2 * 4);  // of two activations
  REQUIRE(train_in(data, recipe, false, {.signal = SIGTERM, .step = 3}).exit_code ==
          train::exit_saved);
  train::Recipe other = recipe;
  other.set("quantization.momentum", "0.5", "test");
  CHECK(error_of([&] {
          train_in(data, other, true);
        }).find("quantization.momentum is 0.1 there and 0.5 in the recipe") != std::string::npos);
}
