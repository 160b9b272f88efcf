// Tests channels of imported nets: which can be removed, that they are pruned as those of the same
// nets of weft's own, and that nets without them compute the same, for weft and for onnxruntime.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/support/peers.h"
#include "tests/support/values.h"
#include "tests/train/runs.h"
#include "weft/io/npy.h"
#include "weft/nn/block_activations.h"
#include "weft/onnx/export/export.h"
#include "weft/onnx/file/model.h"
#include "weft/tensor/compile.h"
#include "weft/train/checkpoint/checkpoint.h"
#include "weft/train/methods/narrowed.h"
#include "weft/train/methods/quantization.h"
#include "weft/train/task/evaluation.h"

using namespace weft;
using namespace weft::test;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {
using Names = std::vector<std::string>;

// A NetFile is an ONNX file on its way, whose initializers are random numbers.
struct NetFile {
  NetFile() {
    model.ir_version = 8;
    model.opsets = {{"", 18}};
    model.graph.name = "net";
    model.graph.inputs = {{.name = "x", .dtype = DType::f32, .shape = dims({1, 8, 8})}};
  }
  // Adds a node and returns the name of its result, which is the node's.
  std::string node(const std::string& op, const std::string& name, Names inputs,
                   std::map<std::string, onnx::Attribute, std::less<>> attributes = {}) {
    model.graph.nodes.push_back({.op = op,
                                 .domain = "",
                                 .name = name,
                                 .inputs = std::move(inputs),
                                 .outputs = {name},
                                 .attributes = std::move(attributes)});
    return name;
  }
  std::string weight(const std::string& name, const Shape& shape, double low = -1) {
    model.graph.initializers.push_back(
        {.name = name, .value = random_values({DType::f32, shape}, low, 1, random)});
    return name;
  }
  std::string integers(const std::string& name, const std::vector<int64_t>& values) {
    model.graph.initializers.push_back(
        {.name = name, .value = tensor(values, {std::ssize(values)})});
    return name;
  }
  std::string conv(const std::string& name, const std::string& x, const Shape& shape,
                   int64_t groups = 1) {
    const int64_t side = shape[2] / 2;
    return node("Conv", name,
                {x, weight(name + ".weight", shape), weight(name + ".bias", {shape[0]})},
                {{"pads", std::vector<int64_t>{side, side, side, side}}, {"group", groups}});
  }
  // As exporters write it of a net that trains.
  std::string norm(const std::string& name, const std::string& x, int64_t channels) {
    node("BatchNormalization", name,
         {x, weight(name + ".scale", {channels}), weight(name + ".bias", {channels}),
          weight(name + ".mean", {channels}), weight(name + ".var", {channels}, 0.5)},
         {{"training_mode", int64_t{1}}});
    for (const char* statistic : {".next_mean", ".next_var"})
      model.graph.nodes.back().outputs.push_back(name + statistic);
    return name;
  }
  std::string linear(const std::string& name, const std::string& x, int64_t in, int64_t out) {
    return node("Gemm", name,
                {x, weight(name + ".weight", {out, in}), weight(name + ".bias", {out})},
                {{"transB", int64_t{1}}});
  }
  void write(const std::string& path, const std::string& output) {
    model.graph.outputs = {{.name = output, .dtype = DType::f32, .shape = dims({4})}};
    onnx::write(model, path);
  }

  static std::vector<onnx::Dim> dims(const std::vector<int64_t>& sample) {
    std::vector<onnx::Dim> dims = {{.symbol = "batch"}};
    for (const int64_t extent : sample) dims.push_back({.extent = extent});
    return dims;
  }

  onnx::Model model;
  testing::Random random{1};
};

// A Place trains files on images of 1 x 8 x 8 in four classes.
struct Place {
  Place()
      : recipe(images_recipe(folder,
                             "train: {steps: 6, global_batch_size: 12}\n"
                             "pruning: {pattern: channels, sparsity: 0.5, end_step: 4, "
                             "frequency: 2}\n")) {
    recipe.set("model.layers", "null", "test");
    recipe.set("model.pretrained", file, "test");
  }
  // Returns the weights whose channels can be removed.
  Names channels() const {
    train::Recipe plain = recipe;
    for (const char* key : {"pruning.pattern", "pruning.end_step"}) plain.set(key, "null", "test");
    for (const auto& [key, value] :
         {std::pair{"pruning.sparsity", "0.5"}, std::pair{"pruning.frequency", "100"}})
      plain.set(key, value, "test");
    Names names;
    const train::Experiment experiment = train::make_experiment(plain);
    const train::TracedModel traced = train::traced(experiment);
    for (const train::ChannelGroup& group : traced.channels.groups())
      names.push_back(group.weight.variable.name());
    return names;
  }

  TemporaryFolder folder;
  std::string file = folder.file("net.onnx");
  train::Recipe recipe;
};

train::Experiment loaded(const std::string& checkpoint) {
  train::Experiment experiment = train::make_experiment(
      train::checkpoint_recipe(checkpoint), {.initialize = false, .checkpoint = checkpoint});
  train::load_model(checkpoint, experiment);
  return experiment;
}

double relative_to_largest(const Tensor& a, const Tensor& b) {
  return max(abs(a - b)).item() / max(abs(a)).item();
}

// A Narrowed net is a checkpoint without the pruned channels, and what its net computes.
struct Narrowed {
  std::string checkpoint;
  Tensor x, y;
  double share;  // of the whole net's numbers
};

void check_in_onnxruntime(const std::string& python, const Narrowed& net) {
  const TemporaryFolder folder;
  fs::copy(net.checkpoint + "/model.onnx", folder.file("model.onnx"));
  fs::copy(net.checkpoint + "/model.safetensors", folder.file("model.safetensors"));
  io::write_npy(folder.file("input_1.npy"), net.x);
  io::write_npy(folder.file("output_1.npy"), net.y);
  const std::string said = folder.file("said");
  const int status = std::system(
      fmt::format("{} tests/pytorch/check_onnx.py '{}' >'{}' 2>&1", python, folder.file("."), said)
          .c_str());
  const std::string line = contents_of(said);
  REQUIRE_MESSAGE(status == 0, line);
  const json result = json::parse(line);
  CHECK_MESSAGE(result.at("difference") < 1e-5 * std::max(1.0, result.at("largest").get<double>()),
                line);
}

double share(const train::Experiment& narrow, const train::Experiment& whole) {
  return static_cast<double>(nn::number_count(*narrow.model)) /
         static_cast<double>(nn::number_count(*whole.model));
}

// Trains a run with pruned channels, removes them, and checks that the narrower net computes the
// same in every way that it can be loaded.
Narrowed check_removal(const Place& place) {
  const std::string checkpoint = train_in(place.folder, place.recipe).checkpoint;
  const train::Experiment whole = loaded(checkpoint);
  train::Experiment narrow = loaded(checkpoint);
  train::remove_pruned_channels(narrow);
  testing::Random random(2);
  const Tensor x = random_values(whole.shape.batch(3), -1, 1, random);
  const Tensor expected = logits_of(*whole.model, x), got = logits_of(*narrow.model, x);
  CHECK(relative_to_largest(expected, got) < 1e-5);
  const std::string out = place.folder.file("narrow");
  fs::remove_all(out);
  narrow.recipe.set("model.pretrained", out + "/model.onnx", "test");
  train::write_checkpoint(out, narrow, {});
  train::verify_checkpoint(out);
  const train::Experiment again = loaded(out);
  CHECK(logits_of(*again.model, x).to_doubles() == got.to_doubles());
  CHECK(train::evaluate(again).loss ==
        doctest::Approx(train::evaluate(whole).loss)
            .epsilon(train::quantization_of(whole) != nullptr ? 1e-3 : 1e-5));
  // Its file is a net of its own, which evaluates in other runtimes and trains on without pruning.
  for (const onnx::Node& node : onnx::read(out + "/model.onnx").graph.nodes) {
    CHECK(node.outputs.size() == 1);
    CHECK(!node.attributes.contains("training_mode"));
  }
  train::Recipe tuned = train::checkpoint_recipe(out);
  tuned.set("name", "tuned", "test");
  const train::Experiment begins = train::make_experiment(tuned);
  CHECK(logits_of(*begins.model, x).to_doubles() == got.to_doubles());
  CHECK(std::ranges::none_of(begins.update_state(), [](const Variable& variable) {
    return variable.name().starts_with("pruned.");
  }));
  const train::TrainResult trained = train_in(place.folder, tuned);
  CHECK(train::evaluate(loaded(trained.checkpoint)).loss ==
        doctest::Approx(trained.evaluation.loss).epsilon(1e-6));
  return {out, x, got, share(narrow, whole)};
}

Narrowed check_resnet(const TemporaryFolder& folder, int depth) {
  const std::string text =
      "data: {dataset: random-images, image_size: 32, classes: 10}\n"
      "optimizer: {name: sgd, lr: 0.02, momentum: 0.9, weight_decay: 1.0e-4}\n"
      "pruning: {pattern: channels, sparsity: 0.5, end_step: 4, frequency: 2}\n"
      "train: {steps: 8, global_batch_size: 8}\nlog: {every: 1}\n";
  const train::Recipe native = train::Recipe::parse(
      fmt::format("name: native\nmodel: {{name: resnet, config: {{depth: {}}}}}\n{}", depth, text),
      "native");
  const train::Experiment ours = train::make_experiment(native);
  const auto build = [&](int64_t batch) {
    return train::forward_graph(*ours.model, ours.shape.batch(batch));
  };
  const std::string file = folder.file("resnet.onnx");
  onnx::write(onnx::export_model(build, {.inputs = {"images"}, .outputs = {"logits"}}).model, file);
  const train::Recipe imported = train::Recipe::parse(
      fmt::format("name: imported\nmodel: {{pretrained: {}}}\n{}", file, text), "imported");
  const auto losses = [&](const train::Recipe& recipe, std::string& checkpoint) {
    const train::TrainResult result = train_in(folder, recipe);
    checkpoint = result.checkpoint;
    std::vector<double> found;
    for (const std::string& line : lines_of(result.run_folder + "/log.jsonl"))
      if (const json entry = json::parse(line); entry.contains("loss"))
        found.push_back(entry["loss"]);
    return found;
  };
  std::string a, b;
  const std::vector<double> expected = losses(native, a), got = losses(imported, b);
  REQUIRE(expected.size() >= 8);
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i)
    CHECK(got[i] == doctest::Approx(expected[i]).epsilon(1e-4));

  train::Experiment narrow_ours = loaded(a), narrow_theirs = loaded(b);
  const train::Experiment whole = loaded(b);
  train::remove_pruned_channels(narrow_ours);
  train::remove_pruned_channels(narrow_theirs);
  CHECK(nn::number_count(*narrow_theirs.model) == nn::number_count(*narrow_ours.model));
  testing::Random random(2);
  const Tensor x = random_values(whole.shape.batch(2), -1, 1, random);
  const Tensor y = logits_of(*narrow_theirs.model, x);
  CHECK(relative_to_largest(logits_of(*whole.model, x), y) < 1e-5);
  const std::string out = folder.file("narrow");
  train::write_checkpoint(out, narrow_theirs, {});
  return {out, x, y, share(narrow_theirs, whole)};
}

Narrowed check_depthwise(const Place& place) {
  NetFile net;
  net.model.graph.initializers.push_back({.name = "zero", .value = constant({{0.0F}}, {})});
  net.model.graph.initializers.push_back({.name = "six", .value = constant({{6.0F}}, {})});
  std::string y = net.norm("bn1", net.conv("conv1", "x", {8, 1, 3, 3}), 8);
  y = net.node("Clip", "relu1", {y, "zero", "six"});
  y = net.norm("bn2", net.conv("depthwise", y, {16, 1, 3, 3}, 8), 16);  // two for each channel
  y = net.node("HardSwish", "relu2", {y});
  y = net.node("Relu", "relu3", {net.conv("conv2", y, {12, 16, 1, 1})});
  y = net.node("Flatten", "flat", {net.node("GlobalAveragePool", "pool", {y})});
  net.write(place.file, net.linear("fc", y, 12, 4));
  CHECK(place.channels() == Names{"conv1.weight", "conv2.weight"});
  return check_removal(place);
}

Narrowed check_concatenation(const Place& place) {
  NetFile net;
  const std::string left = net.conv("left", "x", {6, 1, 3, 3});
  const std::string right = net.node(
      "MaxPool", "pool", {net.conv("right", "x", {4, 1, 3, 3})},
      {{"kernel_shape", std::vector<int64_t>{3, 3}}, {"pads", std::vector<int64_t>{1, 1, 1, 1}}});
  std::string y = net.node("Concat", "joined", {left, right}, {{"axis", int64_t{1}}});
  y = net.node("Relu", "relu1", {net.norm("bn", y, 10)});
  y = net.node("Relu", "relu2", {net.conv("conv", y, {8, 10, 3, 3})});
  y = net.node("Reshape", "flat", {y, net.integers("shape", {-1, 512})});
  y = net.node("MatMul", "product", {y, net.weight("inner", {512, 16})});
  y = net.node("Relu", "relu3", {net.node("Add", "sum", {y, net.weight("bias", {1, 16})})});
  net.write(place.file, net.node("MatMul", "logits", {y, net.weight("outer", {16, 4})}));
  CHECK(place.channels() == Names{"left.weight", "right.weight", "conv.weight", "inner"});
  return check_removal(place);
}
}  // namespace

TEST_CASE("channels of an imported ResNet-8 are pruned and removed like those of the native one") {
  const TemporaryFolder folder;
  CHECK(check_resnet(folder, 8).share < 0.6);
}

TEST_CASE("channels pass depthwise convolutions, whose groups become fewer") {
  const Place place;
  CHECK(check_depthwise(place).share < 0.7);
}

TEST_CASE("channels are removed through concatenations, reshapes and transposed products") {
  const Place place;
  CHECK(check_concatenation(place).share < 0.5);
}

TEST_CASE("an imported net without its pruned channels keeps what int8 training learned") {
  Place depthwise, concatenation;
  for (Place* place : {&depthwise, &concatenation})
    place->recipe.set("quantization.activations", "static", "test");
  CHECK(check_depthwise(depthwise).share < 0.7);
  CHECK(check_concatenation(concatenation).share < 0.5);
}

TEST_SUITE("slow onnx") {
  TEST_CASE("onnxruntime runs nets without their pruned channels with weft's outputs") {
    const std::string python = testing::python_with("onnxruntime");
    if (python.empty()) return;
    const TemporaryFolder folder;
    const Place depthwise, concatenation;
    check_in_onnxruntime(python, check_resnet(folder, 20));
    check_in_onnxruntime(python, check_depthwise(depthwise));
    check_in_onnxruntime(python, check_concatenation(concatenation));
  }
}

TEST_CASE("channels stay where something else needs all of them, or zeros do not stay zeros") {
  const Place place;
  const auto channels = [&](auto build) {
    NetFile net;
    std::string y = net.conv("conv1", "x", {8, 1, 3, 3});
    y = net.conv("conv2", build(net, y), {8, 8, 3, 3});
    y = net.node("Flatten", "flat", {net.node("GlobalAveragePool", "pool", {y})});
    net.write(place.file, net.linear("fc", y, 8, 4));
    return place.channels();
  };
  const Names both = {"conv1.weight", "conv2.weight"}, last = {"conv2.weight"};
  using Net = NetFile;
  CHECK(channels([](Net& net, const auto& y) { return net.node("Tanh", "act", {y}); }) == both);
  CHECK(channels([](Net& net, const auto& y) { return net.node("Sigmoid", "act", {y}); }) == last);
  CHECK(channels([](Net& net, const auto& y) {
          return net.node("Softmax", "act", {y}, {{"axis", int64_t{1}}});
        }) == last);
  CHECK(channels([](Net& net, const auto& y) {  // a residual sum
          return net.node("Add", "sum", {y, net.conv("inside", y, {8, 8, 3, 3})});
        }) == last);
  CHECK(channels([](Net& net, const auto& y) {  // groups of two channels
          return net.conv("grouped", y, {8, 2, 3, 3}, 4);
        }) == last);
  CHECK(channels([](Net& net, const auto& y) {  // a product with the mean over the channels
          return net.node("Mul", "gated",
                          {y, net.node("ReduceMean", "mean", {y, net.integers("axes", {1})})});
        }) == last);
  CHECK(channels([](Net& net, const auto& y) {  // padding with ones beside the image
          return net.node("MaxPool", "cut",
                          {net.node("Pad", "ones",
                                    {y, net.integers("pads", {0, 0, 1, 1, 0, 0, 1, 1}),
                                     net.weight("value", {})})},
                          {{"kernel_shape", std::vector<int64_t>{3, 3}}});
        }) == last);
  NetFile shared;  // one weight twice
  std::string y = shared.conv("conv", "x", {8, 1, 3, 3});
  y = shared.conv("twice", y, {8, 8, 3, 3});
  y = shared.node("Conv", "again", {y, "twice.weight"},
                  {{"pads", std::vector<int64_t>{1, 1, 1, 1}}});
  y = shared.node("Flatten", "flat", {shared.node("GlobalAveragePool", "pool", {y})});
  shared.write(place.file, shared.linear("fc", y, 8, 4));
  CHECK(place.channels().empty());

  NetFile merged;  // one bias of two layers
  y = merged.node("Flatten", "flat", {"x"});
  y = merged.node("Relu", "relu1", {merged.linear("first", y, 64, 16)});
  merged.linear("second", y, 16, 16);
  merged.model.graph.nodes.back().inputs[2] = "first.bias";
  merged.write(place.file, merged.linear("third", merged.node("Relu", "relu2", {"second"}), 16, 4));
  CHECK(place.channels().empty());
  CHECK(error_of([&] {
          train::make_experiment(place.recipe);
        }).find("need all of them. 'first.bias' is part of several layers.") != std::string::npos);
}

TEST_CASE("a file whose nodes compute the number of channels is refused by the node's name") {
  const Place place;
  NetFile net;
  std::string y = net.node("Relu", "relu", {net.conv("conv", "x", {8, 1, 3, 3})});
  const std::string rows =
      net.node("Gather", "rows", {net.node("Shape", "dims", {y}), net.integers("first", {0})});
  const std::string shape =
      net.node("Concat", "shape", {rows, net.integers("width", {512})}, {{"axis", int64_t{0}}});
  y = net.node("Reshape", "flat", {y, shape});
  net.write(place.file, net.linear("fc", y, 512, 4));
  CHECK(place.channels() == Names{"conv.weight"});
  const std::string said = error_of([&] { train::make_experiment(place.recipe); });
  CAPTURE(said);
  CHECK(said.starts_with("usage: "));
  CHECK(said.find("pruning.pattern channels: channels of this net cannot be removed: ") !=
        std::string::npos);
  CHECK(said.find("net.onnx: node 'flat' (Reshape)") != std::string::npos);
}
