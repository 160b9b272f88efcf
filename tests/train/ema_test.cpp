// Tests averages of weights in runs: the averages against a loop in float64 over the weights that
// the run saved, resumed runs, and that evaluations and readers of checkpoints get the averages.
#include <algorithm>
#include <cmath>
#include <csignal>
#include <map>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/support/published_model.h"
#include "tests/support/values.h"
#include "tests/train/runs.h"
#include "weft/io/safetensors.h"
#include "weft/train/checkpoint/checkpoint.h"
#include "weft/train/plan/plan_run.h"
#include "weft/train/task/evaluation.h"

using namespace weft;
using namespace weft::test;
using nlohmann::json;

namespace {
using Numbers = std::vector<double>;

train::Recipe averaged(const TemporaryFolder& data, const Settings& more = {}) {
  return with(with(images_recipe(data, "train: {steps: 8, global_batch_size: 12}\n"),
                   {{"ema.decay", "0.6"},
                    {"checkpoint.every", "1"},
                    {"checkpoint.keep_last", "20"},
                    {"eval.every", "4"}}),
              more);
}

// Returns the tensors of a file of a checkpoint.
std::map<std::string, Numbers> tensors_in(const std::string& file) {
  std::map<std::string, Numbers> all;
  const auto open = io::Safetensors::open(file);
  for (const auto& entry : open.entries())
    all[std::string(entry.name)] = testing::elements(open.tensor(entry.name));
  return all;
}
std::map<std::string, Numbers> model_in(const std::string& checkpoint) {
  return tensors_in(checkpoint + "/model.safetensors");
}
std::map<std::string, Numbers> state_in(const std::string& checkpoint) {
  return tensors_in(checkpoint + "/state-optimizer.safetensors");
}

train::Experiment averaged_model(const std::string& checkpoint) {
  train::Experiment experiment = train::make_experiment(
      train::checkpoint_recipe(checkpoint), {.initialize = false, .checkpoint = checkpoint});
  train::load_model(checkpoint, experiment);
  return experiment;
}

// Returns the first weights of a run.
std::map<std::string, Numbers> first_weights(const train::Recipe& recipe) {
  std::map<std::string, Numbers> all;
  const train::Experiment experiment = train::make_experiment(recipe);
  for (const Variable& parameter : experiment.model->parameters())
    all[std::string(parameter.name())] = parameter.to_doubles();
  return all;
}

double difference(const Numbers& a, const Numbers& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}
}  // namespace

TEST_CASE("the weights of checkpoints are averages of those that trained, by a loop in float64") {
  for (const bool warms_up : {true, false})
    for (const char* micro : {"12", "6"}) {
      CAPTURE(warms_up);
      TemporaryFolder data;
      const train::Recipe recipe = averaged(
          data, {{"ema.warmup", warms_up ? "true" : "false"}, {"train.micro_batch_size", micro}});
      std::map<std::string, Numbers> expected = first_weights(recipe);
      const train::TrainResult result = train_in(data, recipe);
      const auto all = train::list_checkpoints(result.run_folder);
      REQUIRE(all.size() == 8);
      double moved = 0;
      for (const train::CheckpointInfo& checkpoint : all) {
        const auto t = static_cast<double>(checkpoint.step);
        const double keep = warms_up ? std::min(0.6, (1 + t) / (10 + t)) : 0.6;
        const auto model = model_in(checkpoint.path), state = state_in(checkpoint.path);
        for (auto& [name, average] : expected) {
          const Numbers& now = state.at(name);
          for (size_t i = 0; i < now.size(); ++i)
            average[i] = keep * average[i] + (1 - keep) * now[i];
          CHECK(difference(model.at(name), average) < 2e-7);
          moved = std::max(moved, difference(now, average));
        }
      }
      CHECK(moved > 1e-3);  // averages and weights differ by far more than the rounding above
    }
}

TEST_CASE("averages do not change how the weights train, and evaluations are of the averages") {
  TemporaryFolder data, without;
  const train::TrainResult result = train_in(data, averaged(data));
  const train::TrainResult plain =
      train_in(without, averaged(data, {{"ema.decay", "null"}, {"ema.warmup", "true"}}));
  const auto trained = model_in(plain.checkpoint), model = model_in(result.checkpoint),
             state = state_in(result.checkpoint);
  CHECK(result.train_loss == plain.train_loss);
  for (const Variable& parameter : averaged_model(result.checkpoint).model->parameters())
    CHECK(state.at(std::string(parameter.name())) == trained.at(std::string(parameter.name())));
  CHECK(model.at("1.running_mean") == trained.at("1.running_mean"));  // buffers are the model's
  CHECK(model.at("0.weight") != trained.at("0.weight"));
  CHECK(result.evaluation.loss != plain.evaluation.loss);
  CHECK(train::evaluate(averaged_model(result.checkpoint)).loss == result.evaluation.loss);
  // A run that begins with these weights begins with the averages.
  const train::Experiment next =
      train::make_experiment(with(averaged(data), {{"model.weights", result.checkpoint.c_str()}}));
  CHECK(next.model->parameters()[0].to_doubles() == model.at("0.weight"));
}

TEST_CASE("a run with averages that was stopped and resumed is bit-identical") {
  for (const Settings& more :
       {Settings{{"train.micro_batch_size", "6"}}, Settings{{"train.precision", "bf16-mixed"}},
        Settings{{"train.precision", "fp16-mixed"}}, Settings{{"train.offload", "[optimizer]"}},
        Settings{{"quantization.activations", "static"}}}) {
    CAPTURE(more.front().second);
    TemporaryFolder data, whole, stopped;
    const train::Recipe recipe = averaged(data, more);
    const train::TrainResult expected = train_in(whole, recipe);
    REQUIRE(train_in(stopped, recipe, false, {.signal = SIGTERM, .step = 3}).exit_code ==
            train::exit_saved);
    const train::TrainResult result = train_in(stopped, recipe, true);
    check_equal(expected.checkpoint, result.checkpoint);
    CHECK(result.evaluation.loss == expected.evaluation.loss);
    CHECK(train::evaluate(averaged_model(result.checkpoint)).loss == result.evaluation.loss);
    const json closing = json::parse(lines_of(expected.run_folder + "/log.jsonl").back());
    CHECK(closing["state"] == closing["used_state"]);
    CHECK(arena_is_as_planned(closing.dump()));
  }
}

TEST_CASE("plans count the averages as state of their own") {
  TemporaryFolder data;
  const auto plan = [&](const train::Recipe& recipe) { return train::plan_run(recipe); };
  const auto with_average = plan(averaged(data)),
             without = plan(averaged(data, {{"ema.decay", "null"}}));
  const train::RunReport &report = with_average->report, &plain = without->report;
  CHECK(report.bytes_of("averaged weights") == report.trained_bytes);
  CHECK(report.bytes_of("optimizer") == plain.bytes_of("optimizer"));
  CHECK(report.state_bytes() == plain.state_bytes() + report.trained_bytes);
  CHECK(to_table(report).find("\naverages ") != std::string::npos);
  CHECK(to_table(plain).find("\naverages ") == std::string::npos);
  CHECK(json::parse(to_json(report))["average_bytes"] == report.trained_bytes);
}

TEST_CASE("averages of weights that are pruned are zeros where these are") {
  TemporaryFolder data;
  const train::TrainResult result = train_in(
      data, averaged(data, {{"pruning.pattern", "unstructured"}, {"pruning.begin_step", "4"}}));
  const auto model = model_in(result.checkpoint), state = state_in(result.checkpoint);
  const auto zeros = [](const Numbers& numbers) { return std::ranges::count(numbers, 0.0); };
  for (const char* name : {"0.weight", "4.weight"}) {
    CHECK(zeros(model.at(name)) == std::ssize(model.at(name)) / 2);
    CHECK(zeros(model.at(name)) == zeros(state.at(name)));
  }
}

TEST_CASE("an adapter's files have its averages, and a resumed run goes on from its weights") {
  TemporaryFolder whole, stopped;
  write_published(whole.file("base"), {.layers = 1});
  whole.file("text.txt", sixty_lines());
  const train::Recipe recipe = train::Recipe::parse(
      fmt::format("model: {{pretrained: {0}/base}}\n"
                  "data: {{format: text, path: {0}/text.txt, seq_len: 16, val_split: 0.2}}\n"
                  "adapter: {{type: lora, r: 2}}\n"
                  "ema: {{decay: 0.9}}\n"
                  "train: {{steps: 6, global_batch_size: 4}}\n",
                  whole.path()),
      "test.yaml");
  const train::TrainResult expected = train_in(whole, recipe);
  REQUIRE(train_in(stopped, recipe, false, {.signal = SIGTERM, .step = 3}).exit_code ==
          train::exit_saved);
  const train::TrainResult result = train_in(stopped, recipe, true);
  for (const char* file : {"adapter_model.safetensors", "state-optimizer.safetensors"})
    CHECK(tensors_in(expected.checkpoint + "/" + file) ==
          tensors_in(result.checkpoint + "/" + file));
  CHECK(result.evaluation.loss == expected.evaluation.loss);
}

TEST_CASE("a resumed run refuses another average, and bfloat16 weights are refused") {
  TemporaryFolder data;
  REQUIRE(train_in(data, averaged(data), false, {.signal = SIGTERM, .step = 3}).exit_code ==
          train::exit_saved);
  const auto refusal = [&](const char* key, const char* value) {
    return error_of([&] { train_in(data, averaged(data, {{key, value}}), true); });
  };
  CHECK(refusal("ema.decay", "0.7").find("ema.decay is 0.6 there and 0.7 in the recipe") !=
        std::string::npos);
  CHECK(refusal("ema.warmup", "false").find("ema.warmup is true there and false in the recipe") !=
        std::string::npos);
  const std::string narrow =
      error_of([&] { train::make_experiment(averaged(data, {{"train.precision", "bf16"}})); });
  CHECK(narrow.find("ema.decay: 0.weight is bf16, whose average would not move") !=
        std::string::npos);
}
