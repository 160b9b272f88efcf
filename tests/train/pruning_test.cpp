// Tests pruning in runs: what is pruned stays zero whatever trains, runs resume bit-identically,
// and nets without their pruned channels compute the same.

#include <algorithm>
#include <csignal>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/support/near.h"
#include "tests/support/values.h"
#include "tests/train/runs.h"
#include "weft/io/safetensors.h"
#include "weft/nn/block_activations.h"
#include "weft/train/checkpoint/checkpoint.h"
#include "weft/train/methods/narrowed.h"
#include "weft/train/methods/quantization.h"
#include "weft/train/plan/plan_run.h"
#include "weft/train/run/steps.h"
#include "weft/train/task/evaluation.h"

using namespace weft;
using namespace weft::test;
using nlohmann::json;

namespace {
const Settings gradual = {{"pruning.pattern", "unstructured"},
                          {"pruning.sparsity", "0.6"},
                          {"pruning.initial_sparsity", "0.25"},
                          {"pruning.begin_step", "2"},
                          {"pruning.end_step", "7"},
                          {"pruning.frequency", "3"}};

// Checks that exactly what a checkpoint's state calls pruned is zero in its weights; returns how
// many weights that are.
int64_t check_zeros(const std::string& checkpoint) {
  const auto state = io::Safetensors::open(checkpoint + "/state-optimizer.safetensors");
  const auto model = io::Safetensors::open(checkpoint + "/model.safetensors");
  int64_t count = 0;
  for (const auto& entry : state.entries()) {
    if (!entry.name.starts_with("pruned.")) continue;
    const std::vector<double> pruned = testing::elements(state.tensor(entry.name));
    const std::vector<double> weight = testing::elements(model.tensor(entry.name.substr(7)));
    REQUIRE(weight.size() % pruned.size() == 0);
    const size_t each = weight.size() / pruned.size();
    size_t wrong = 0;
    for (size_t i = 0; i < weight.size(); ++i)
      if ((pruned[i / each] == 1) != (weight[i] == 0)) ++wrong;
    CAPTURE(entry.name);
    CHECK(wrong == 0);
    count += std::ranges::count(pruned, 1.0) * static_cast<int64_t>(each);
  }
  return count;
}
}  // namespace

TEST_CASE("pruned weights stay zero through updates of every kind") {
  const Settings kinds[] = {
      {{"train.precision", "fp32"}, {"optimizer.weight_decay", "0.1"}},
      {{"train.precision", "fp64"}, {"train.micro_batch_size", "6"}},
      {{"train.precision", "bf16-mixed"},
       {"optimizer.name", "adamw"},
       {"optimizer.momentum", "0"},
       {"train.grad_clip", "0.1"}},
      {{"train.precision", "fp16-mixed"}, {"optimizer.nesterov", "true"}},
      {{"train.precision", "bf16"}, {"train.rounding", "stochastic"}},
      {{"train.precision", "bf16"},
       {"train.rounding", "kahan"},
       {"optimizer.name", "adam"},
       {"optimizer.momentum", "0"}},
      {{"train.recompute", "full"}, {"train.offload", "[parameters, optimizer]"}}};
  for (const char* pattern : {"unstructured", "2:4"})
    for (const Settings& kind : kinds) {
      CAPTURE(pattern);
      CAPTURE(kind[0].second);
      TemporaryFolder data;
      train::Recipe recipe =
          with(images_recipe(data, "train: {steps: 10, global_batch_size: 12}\n"), gradual);
      recipe = with(std::move(recipe), kind);
      if (pattern == std::string("2:4"))
        recipe = with(std::move(recipe), {{"pruning.pattern", "2:4"},
                                          {"pruning.sparsity", "0.5"},
                                          {"pruning.initial_sparsity", "0"},
                                          {"pruning.end_step", "null"}});
      const int64_t pruned = check_zeros(train_in(data, recipe).checkpoint);
      // The convolution has 36 weights and one input channel, the linear layer 1,024 weights.
      if (pattern == std::string("2:4"))
        CHECK(pruned == 512);
      else if (recipe.text("train.precision") == "bf16")  // its weights are often equal
        CHECK(std::abs(pruned - 636) <= 40);
      else
        CHECK(pruned == 22 + 614);
    }
}

TEST_CASE("a pruned run that was stopped and resumed is bit-identical to an uninterrupted one") {
  TemporaryFolder data, whole;
  const train::Recipe recipe =
      with(images_recipe(data, "train: {steps: 10, global_batch_size: 12}\n"), gradual);
  const train::TrainResult expected = train_in(whole, recipe);
  for (const int stop : {1, 2, 5, 6, 8}) {
    CAPTURE(stop);
    TemporaryFolder stopped;
    REQUIRE(train_in(stopped, recipe, false, {.signal = SIGTERM, .step = stop}).exit_code ==
            train::exit_saved);
    const train::TrainResult result = train_in(stopped, recipe, true);
    check_equal(expected.checkpoint, result.checkpoint);
    std::vector<int64_t> steps;
    for (const std::string& line : lines_of(result.run_folder + "/log.jsonl"))
      if (const json entry = json::parse(line); entry.contains("pruned_step"))
        steps.push_back(entry["pruned_step"]);
    CHECK(steps == std::vector<int64_t>{2, 5, 7});
  }
}

TEST_CASE("a resumed run refuses other pruning, and a mask of another shape or of other numbers") {
  TemporaryFolder data;
  const train::Recipe recipe = with(
      images_recipe(data, "train: {steps: 10, global_batch_size: 12}\nname: masks\n"), gradual);
  const std::string folder =
      train_in(data, recipe, false, {.signal = SIGTERM, .step = 5}).checkpoint;
  CHECK(error_of([&] {
          train_in(data, with(recipe, {{"pruning.sparsity", "0.7"}}), true);
        }).find("pruning.sparsity is 0.6 there and 0.7 in the recipe") != std::string::npos);
  train::Experiment experiment = train::make_experiment(recipe);
  const std::string path = folder + "/state-optimizer.safetensors";
  const std::string whole = data.file("whole.safetensors"), other = data.file("other.safetensors");
  std::filesystem::copy_file(path, whole);
  const auto error_with = [&](const auto& change) {
    const auto state = io::Safetensors::open(whole);
    std::vector<io::NamedBytes> tensors;
    std::vector<std::byte> mask;
    for (const auto& entry : state.entries()) {
      io::NamedBytes& tensor =
          tensors.emplace_back(io::NamedBytes{entry.name, entry.type, state.bytes(entry)});
      if (entry.name != "pruned.4.weight") continue;
      const std::span<const std::byte> bytes = state.bytes(entry);
      mask.assign(bytes.begin(), bytes.end());
      change(tensor.type, mask);
      tensor.bytes = mask;
    }
    io::write_safetensors(other, tensors);
    std::filesystem::copy_file(other, path, std::filesystem::copy_options::overwrite_existing);
    return error_of([&] { train::load_checkpoint(folder, experiment); });
  };
  const std::string shape =
      error_with([](Type& type, std::vector<std::byte>&) { type.shape = {8, 128}; });
  CAPTURE(shape);
  CHECK(shape.starts_with("checkpoint: [load] " + path));
  CHECK(shape.find("'pruned.4.weight' is bool[8, 128], wanted bool[") != std::string::npos);
  CHECK(error_with([](Type&, std::vector<std::byte>& mask) { mask[5] = std::byte{7}; }) ==
        "checkpoint: [load] " + path +
            ": element 5 of 'pruned.4.weight' is 7, but a bool is 0 or 1.");
}

TEST_CASE("tensors of a whole checkpoint that a changed recipe cannot use are no damage") {
  TemporaryFolder data;
  const train::Recipe recipe = with(
      images_recipe(data, "train: {steps: 10, global_batch_size: 12}\nname: whole\n"), gradual);
  const std::string folder =
      train_in(data, recipe, false, {.signal = SIGTERM, .step = 5}).checkpoint;
  const std::string layers = "[flatten, {linear: {out_features: 4}}]";
  train::Experiment other =
      train::make_experiment(with(recipe, {{"model.layers", layers.c_str()}}));
  const std::string wrong = error_of([&] { train::load_checkpoint(folder, other); });
  CAPTURE(wrong);
  CHECK(wrong.starts_with("usage: [load] " + folder + "/model.safetensors does not fit: "));
  CHECK(wrong.find(". model.layers is [") != std::string::npos);
  CHECK(wrong.ends_with(" there and " + layers + " in the recipe."));
}

TEST_CASE("plans count what is pruned as state, a byte for each weight") {
  TemporaryFolder data;
  const train::Recipe plain = images_recipe(data, "train: {steps: 10, global_batch_size: 12}\n");
  const auto bytes = [](const train::Recipe& recipe) {
    return train::plan_run(recipe)->report.bytes_of("optimizer");
  };
  CHECK(bytes(with(plain, gradual)) - bytes(plain) == 36 + 1024);
  CHECK(bytes(with(with(plain, gradual), {{"pruning.exclude", "[0.*]"}})) - bytes(plain) == 1024);
  const train::TrainResult result = train_in(data, with(plain, gradual));
  const json closing = json::parse(lines_of(result.run_folder + "/log.jsonl").back());
  CHECK(closing["state"] == closing["used_state"]);
}

namespace {
struct Narrower {
  const char *model, *config, *widths;
};
void check_without_channels(const Narrower& each) {
  CAPTURE(each.model);
  TemporaryFolder folder;
  const train::Recipe recipe =
      with(train::Recipe::parse("data: {dataset: random-images, image_size: 32, classes: 4}\n"
                                "train: {steps: 6, global_batch_size: 4}\n"
                                "optimizer: {name: sgd, lr: 0.01, momentum: 0.9}\n"
                                "pruning: {pattern: channels, sparsity: 0.5, end_step: 4, "
                                "frequency: 2}\n",
                                "test.yaml"),
           {{"model.name", each.model}, {"model.config", each.config}});
  const std::string checkpoint = train_in(folder, recipe).checkpoint;
  check_zeros(checkpoint);
  const auto load = [](const std::string& from) {
    train::Experiment experiment = train::make_experiment(train::checkpoint_recipe(from),
                                                          {.with_data = false, .checkpoint = from});
    train::load_model(from, experiment);
    return experiment;
  };
  const train::Experiment whole = load(checkpoint);
  train::Experiment narrow = load(checkpoint);
  train::remove_pruned_channels(narrow);
  CHECK(nn::number_count(*narrow.model) < nn::number_count(*whole.model) * 3 / 4);
  testing::Random random(1);
  const Tensor images = random_values({DType::f32, {4, 3, 32, 32}}, -1, 1, random);
  const std::vector<double> expected = logits_of(*whole.model, images).to_doubles(),
                            got = logits_of(*narrow.model, images).to_doubles();
  for (size_t i = 0; i < expected.size(); ++i)
    CHECK(got[i] == doctest::Approx(expected[i]).epsilon(1e-4));
  // Its checkpoint is a run's: it is evaluated, and trained further by its own recipe.
  const std::string out = folder.file("narrow");
  narrow.recipe.set("model.weights", out, "test");
  train::write_checkpoint(out, narrow, {});
  train::verify_checkpoint(out);
  CHECK(narrow.recipe->model.config.find(each.widths) != nullptr);
  CHECK(!narrow.recipe.has("pruning.pattern"));
  const train::Experiment again = load(out);
  CHECK(logits_of(*again.model, images).to_doubles() == got);
  const train::Experiment begins = train::make_experiment(train::checkpoint_recipe(out));
  CHECK(logits_of(*begins.model, images).to_doubles() == got);
}
}  // namespace

TEST_CASE("a net without its pruned channels computes the same, and trains on") {
  for (const Narrower& each :
       {Narrower{"cnn", "{conv_channels: [8, 12], hidden_size: 10}", "conv_channels"},
        Narrower{"mlp", "{hidden_sizes: [20, 12]}", "hidden_sizes"},
        Narrower{"resnet", "{depth: 8, hidden_size: 8}", "inner_channels"}})
    check_without_channels(each);
}
TEST_SUITE("slow pruned channels") {
  TEST_CASE("a ResNet-50 without its pruned channels computes the same, and trains on") {
    check_without_channels(
        {"resnet", "{form: imagenet, depth: 50, hidden_size: 4}", "inner_channels"});
  }
}

TEST_CASE("a net without its pruned channels keeps the ranges that int8 training learned") {
  // Ranges that are learned are those of convolutions and of linear layers, dynamic ones of linear
  // layers alone.
  for (const auto& [model, activations] :
       {std::pair("{name: cnn, config: {conv_channels: [8, 12], hidden_size: 10}}", "static"),
        std::pair("{name: mlp, config: {hidden_sizes: [20, 12]}}", "dynamic"),
        std::pair("{name: resnet, config: {depth: 8}}", "static")}) {
    CAPTURE(model);
    CAPTURE(activations);
    const TemporaryFolder folder;
    const train::Recipe recipe = train::Recipe::parse(
        fmt::format("model: {}\ndata: {{dataset: random-images, image_size: 16, classes: 4}}\n"
                    "train: {{steps: 6, global_batch_size: 4}}\neval: {{batch_size: 50}}\n"
                    "optimizer: {{name: sgd, lr: 0.01, momentum: 0.9}}\n"
                    "pruning: {{pattern: channels, sparsity: 0.5, end_step: 4, frequency: 2}}\n"
                    "quantization: {{activations: {}, weight_bits: 7}}\n",
                    model, activations),
        "test.yaml");
    const std::string checkpoint = train_in(folder, recipe).checkpoint, out = folder.file("out");
    const auto load = [](const std::string& from) {
      train::Experiment experiment = train::make_experiment(
          train::checkpoint_recipe(from), {.initialize = false, .checkpoint = from});
      train::load_model(from, experiment);
      return experiment;
    };
    const train::Experiment whole = load(checkpoint);
    train::Experiment narrow = load(checkpoint);
    train::remove_pruned_channels(narrow);
    narrow.recipe.set("model.weights", out, "test");
    train::write_checkpoint(out, narrow, {});
    const train::Experiment again = load(out);
    CHECK(nn::number_count(*again.model) < nn::number_count(*whole.model));
    const std::vector<double> ranges = train::quantization_of(whole)->ranges().to_doubles();
    CHECK(std::ranges::all_of(ranges, [activations = std::string(activations)](double range) {
      return range > 0 || activations == "dynamic";
    }));
    CHECK(train::quantization_of(again)->ranges().to_doubles() == ranges);
    const double expected = train::evaluate(whole).loss;
    CHECK(train::evaluate(narrow).loss == doctest::Approx(expected).epsilon(1e-4));
    CHECK(train::evaluate(again).loss == train::evaluate(narrow).loss);
    train::Experiment plain = load(out);
    train::quantize(plain, nullptr);
    CHECK(train::evaluate(plain).loss != train::evaluate(again).loss);
  }
}

TEST_CASE("a model begins with the weights of a run or a file") {
  TemporaryFolder data;
  const train::Recipe recipe =
      images_recipe(data, "train: {steps: 2, global_batch_size: 12}\nname: first\n");
  const train::TrainResult first = train_in(data, recipe);
  const std::string file = first.checkpoint + "/model.safetensors";
  const auto saved = io::Safetensors::open(file);
  for (const std::string& from : {first.run_folder, first.checkpoint, file}) {
    const train::Experiment experiment =
        train::make_experiment(with(recipe, {{"model.weights", from.c_str()}}));
    for (const auto& [name, variable] : experiment.model->state())
      CHECK(variable.to_doubles() == testing::elements(saved.tensor(name)));
  }
  const auto message = [&](const Settings& settings) {
    return error_of([&] { train::make_experiment(with(recipe, settings)); });
  };
  CHECK(message({{"model.weights", "nowhere"}}) ==
        "usage: test: model.weights: nowhere does not exist.");
  const std::string other = message({{"model.weights", file.c_str()},
                                     {"model.layers", "[flatten, {linear: {out_features: 4}}]"}});
  CHECK(other.starts_with("data: [load] " + file));
}
