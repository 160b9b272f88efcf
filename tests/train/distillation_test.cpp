// Tests distillation: loss and gradients against PyTorch's, and runs with a teacher.
#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/support/published_model.h"
#include "tests/support/reference_file.h"
#include "tests/support/values.h"
#include "tests/train/runs.h"
#include "weft/data/loader.h"
#include "weft/io/safetensors.h"
#include "weft/models/pretrained.h"
#include "weft/train/checkpoint/checkpoint.h"
#include "weft/train/methods/method.h"
#include "weft/train/plan/plan_run.h"
#include "weft/train/run/steps.h"

using namespace weft;
using namespace weft::test;
using nlohmann::json;

namespace {
std::string layers_with(int64_t hidden) {
  return fmt::format(
      "[flatten, {{linear: {{out_features: {}}}}}, relu, {{linear: {{out_features: "
      "4}}}}]",
      hidden);
}

// Returns the elements that make_distillation.py gives a tensor.
Tensor numbers(const Type& type, int64_t seed, double scale = 1) {
  std::vector<double> values;
  values.reserve(static_cast<size_t>(type.elements()));
  for (int64_t i = 0; i < type.elements(); ++i)
    values.push_back(scale * static_cast<double>((i * 7919 + seed * 104729) % 1009 - 504) / 2048);
  return tensor(values, type.shape, type.dtype);
}

// Writes a checkpoint of a perceptron with those elements; returns its folder.
std::string write_teacher(const TemporaryFolder& folder, const train::Recipe& recipe) {
  const train::Experiment teacher = train::make_experiment(recipe);
  int64_t seed = 20;
  for (const auto& [name, variable] : teacher.model->state())
    variable.assign(numbers(variable.type(), seed++));
  std::string path = folder.file("teacher");
  train::write_checkpoint(path, teacher, {});
  return path;
}

// A small teacher with batch norm and dropout, trained for some steps; returns its run.
std::string train_teacher(const TemporaryFolder& data) {
  return train_in(data, with(images_recipe(data, "train: {steps: 8, global_batch_size: 12}\n"),
                             {{"name", "teacher"},
                              {"model.layers",
                               "[{conv2d: {out_channels: 6, kernel_size: 3, padding: 1}}, "
                               "batch_norm, relu, {dropout: {p: 0.3}}, flatten, {linear: "
                               "{out_features: 4}}]"}}))
      .run_folder;
}
// Returns the teacher's variables by the names that they have in the teacher.
std::vector<nn::NamedVariable> teacher_of(const train::Experiment& experiment) {
  std::vector<nn::NamedVariable> named;
  for (const Variable& variable : experiment.read_only()) {
    REQUIRE(variable.name().starts_with("teacher."));
    named.push_back({std::string(variable.name().substr(8)), variable});
  }
  return named;
}
}  // namespace

TEST_CASE("the loss of distillation and its gradients are PyTorch's") {
  const auto expected = testing::reference_file("distillation.json");
  TemporaryFolder data;
  const train::Recipe base =
      with(images_recipe(data, "train: {steps: 1, global_batch_size: 5, precision: fp64}\n"),
           {{"optimizer.lr", "1"}, {"optimizer.momentum", "0"}});
  const std::string teacher = write_teacher(data, with(base, {{"model.layers", layers_with(9)}}));
  const train::Recipe recipe = with(base, {{"model.layers", layers_with(6)},
                                           {"distillation.teacher", teacher},
                                           {"distillation.temperature", "3"},
                                           {"distillation.alpha", "0.3"},
                                           {"distillation.features", "['1']"},
                                           {"distillation.feature_weight", "0.7"}});
  for (const char* device : {"cpu", "reference"}) {
    CAPTURE(device);
    const train::Experiment student = train::make_experiment(recipe);
    const std::vector<Variable> trained = student.trained();
    const std::vector<std::string> names = {
        "1.weight", "1.bias", "3.weight", "3.bias", "projection.weight", "projection.bias"};
    REQUIRE(trained.size() == names.size());
    for (size_t i = 0; i < trained.size(); ++i)
      trained[i].assign(numbers(trained[i].type(), static_cast<int64_t>(i)));
    train::Steps steps(student, device);
    steps.run(numbers({DType::f32, {5, 1, 8, 8}}, 9, 4),
              tensor(expected["labels"].get<std::vector<int64_t>>(), {5}));
    CHECK(steps.loss() == doctest::Approx(expected["loss"].get<double>()).epsilon(1e-13));
    for (size_t i = 0; i < trained.size(); ++i) {
      CAPTURE(names[i]);
      // Stochastic gradient descent at rate 1 has subtracted the gradient.
      const Tensor before = numbers(trained[i].type(), static_cast<int64_t>(i));
      const std::vector<double> gradient = (before - trained[i].value()).to_doubles();
      const auto wanted = expected["gradients"][names[i]].get<std::vector<double>>();
      REQUIRE(gradient.size() == wanted.size());
      double worst = 0;
      for (size_t k = 0; k < wanted.size(); ++k)
        worst = std::max(worst, std::abs(gradient[k] - wanted[k]));
      CHECK(worst < 1e-14);
    }
  }
}

TEST_CASE("a teacher keeps its bits, and is no part of the student's checkpoint") {
  TemporaryFolder data;
  const std::string teacher = train_teacher(data);
  const train::Recipe recipe =
      with(images_recipe(data, "train: {steps: 10, global_batch_size: 12}\n"),
           {{"distillation.teacher", teacher}, {"distillation.features", "['2', 0=1]"}});
  const train::Experiment experiment = train::make_experiment(recipe);
  const auto saved = io::Safetensors::open(train::find_checkpoint(teacher) + "/model.safetensors");
  train::Steps steps(experiment, "cpu");
  data::Loader loader(experiment.train, {.batch_size = 12});
  data::Batch batch;
  for (int i = 0; i < 3; ++i) {
    loader.next(batch);
    steps.run(batch.inputs, batch.labels);
  }
  const auto named = teacher_of(experiment);
  CHECK(named.size() == saved.entries().size());
  for (const auto& [name, variable] : named)
    CHECK(variable.to_doubles() == testing::elements(saved.tensor(name)));
  const train::TrainResult result = train_in(data, recipe);
  const auto student = io::Safetensors::open(result.checkpoint + "/model.safetensors");
  CHECK(student.entries().size() == experiment.model->state().size());
  // Bytes of the teacher are planned, and are there.
  const json closing = json::parse(lines_of(result.run_folder + "/log.jsonl").back());
  CHECK(closing["state"] == closing["used_state"]);
  const json plan = json::parse(contents_of(result.run_folder + "/plan.json"));
  size_t bytes = 0;
  for (const auto& entry : saved.entries()) bytes += entry.type.bytes();
  CHECK(plan["teacher_bytes"] == bytes);
}

TEST_CASE("a distilled run that was stopped and resumed is bit-identical to an uninterrupted one") {
  const Settings kinds[] = {
      {{"train.precision", "fp32"}},
      {{"train.precision", "bf16-mixed"}, {"train.micro_batch_size", "6"}},
      {{"train.precision", "bf16"}, {"train.rounding", "kahan"}},
      {{"train.recompute", "full"}, {"train.offload", "[parameters, optimizer]"}}};
  TemporaryFolder data;
  const std::string teacher = train_teacher(data);
  for (const Settings& kind : kinds) {
    CAPTURE(kind[0].second);
    TemporaryFolder whole, stopped;
    const train::Recipe recipe =
        with(with(images_recipe(data, "train: {steps: 9, global_batch_size: 12}\n"),
                  {{"distillation.teacher", teacher},
                   {"distillation.features", "['2']"},
                   {"pruning.pattern", "unstructured"},
                   {"pruning.begin_step", "3"}}),
             kind);
    const train::TrainResult expected = train_in(whole, recipe);
    REQUIRE(train_in(stopped, recipe, false, {.signal = SIGTERM, .step = 4}).exit_code ==
            train::exit_saved);
    check_equal(expected.checkpoint, train_in(stopped, recipe, true).checkpoint);
  }
}

TEST_CASE("without weight on the teacher a student trains as alone, and is evaluated without it") {
  TemporaryFolder data, alone, taught;
  const std::string teacher = train_teacher(data);
  const train::Recipe recipe = images_recipe(data, "train: {steps: 6, global_batch_size: 12}\n");
  const train::TrainResult expected = train_in(alone, recipe);
  const train::TrainResult result = train_in(
      taught, with(recipe, {{"distillation.teacher", teacher}, {"distillation.alpha", "1"}}));
  CHECK(*result.train_loss == doctest::Approx(*expected.train_loss).epsilon(1e-5));
  std::filesystem::remove_all(teacher);
  train::Experiment student =
      train::make_experiment(train::checkpoint_recipe(result.checkpoint),
                             {.initialize = false, .checkpoint = result.checkpoint});
  CHECK(student.methods.empty());
  train::load_model(result.checkpoint, student);
}

TEST_CASE("a language model learns from another") {
  TemporaryFolder folder;
  const std::string teacher =
      train_in(folder, with(sums_recipe("train: {steps: 4, global_batch_size: 8}\n"),
                            {{"name", "teacher"}, {"model.config.hidden_size", "32"}}))
          .checkpoint;
  const train::TrainResult result =
      train_in(folder, with(sums_recipe("train: {steps: 4, global_batch_size: 8}\n"),
                            {{"distillation.teacher", teacher}}));
  CHECK(std::isfinite(*result.train_loss));
}

TEST_CASE("a published language model teaches a smaller one of its vocabulary") {
  TemporaryFolder folder;
  write_published(folder.file("student"), {.layers = 1});
  write_published(folder.file("teacher"), {.layers = 3, .width = 32});
  write_published(folder.file("other"), {.vocabulary = 120});
  folder.file("text.txt", sixty_lines());
  const train::Recipe recipe = train::Recipe::parse(
      fmt::format("model: {{pretrained: {0}/student}}\n"
                  "data: {{format: text, path: {0}/text.txt, seq_len: 16, val_split: 0.2}}\n"
                  "distillation: {{teacher: {0}/teacher}}\n"
                  "train: {{steps: 2, global_batch_size: 4, precision: bf16-mixed}}\n",
                  folder.path()),
      "test.yaml");
  const train::Experiment experiment = train::make_experiment(recipe);
  const auto files = io::Safetensors::open(folder.file("teacher") + "/model.safetensors");
  const auto named = teacher_of(experiment);
  for (const auto& entry : files.entries()) {
    const auto found = std::ranges::find(named, entry.name, &nn::NamedVariable::name);
    if (found != named.end())
      CHECK(found->variable.to_doubles() == testing::elements(files.tensor(entry.name)));
  }
  const train::TrainResult result = train_in(folder, recipe);
  CHECK(std::isfinite(*result.train_loss));
  // What is resumed or converted is the student alone.
  CHECK(models::load_pretrained(result.checkpoint).model->state().size() < named.size());
  CHECK(error_of([&] {
          train::make_experiment(with(recipe, {{"distillation.teacher", folder.file("other")}}));
        })
            .find("answers a sample with logits [16, 120], and the model of this run with [16, "
                  "100].") != std::string::npos);
}
