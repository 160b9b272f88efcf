// Tests QDQ files of nets with int8 layers: what is written is read as the same graph, with the
// same outputs, and onnxruntime runs it.
#include <array>
#include <cstdlib>
#include <filesystem>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/support/peers.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/values.h"
#include "weft/io/npy.h"
#include "weft/models/model.h"
#include "weft/onnx/export/export.h"
#include "weft/onnx/net/net.h"
#include "weft/quantization/int8.h"
#include "weft/tensor/compile.h"

using namespace weft;
using namespace weft::testing;
using weft::test::TemporaryFolder;

namespace {
const TaskShape images{.kind = InputKind::images, .input = {3, 16, 16}, .classes = 10};

Graph forward(const Model& model, int64_t batch) {
  const ModeScope mode(Mode::eval);
  const Tensor x = input(images.batch(batch), 0);
  return {.inputs = {x}, .outputs = {model(x)}};
}

// Returns a net of the zoo with int8 layers.
quantization::Int8 int8_of(const Model& model, bool dynamic) {
  const quantization::Layers layers = quantization::layers_of(forward(model, 1));
  return {layers,
          {.dynamic = dynamic, .ranges = std::vector<double>(layers.activations.size(), 2)}};
}

onnx::Model exported(const Model& model, const quantization::Int8& int8) {
  return onnx::export_model([&](int64_t batch) { return int8(forward(model, batch)); },
                            {.inputs = {"images"}, .outputs = {"logits"}})
      .model;
}

std::vector<double> outputs_of(const std::function<Tensor(const Tensor&)>& net, const Tensor& x) {
  auto step = compile([&](Tensor in) { return net(in); }, {.mode = Mode::eval});
  return step(x).to_doubles();
}

// Counts the layers of a graph in the form that kernels of integers recognize.
size_t int8_layers(const Graph& graph) {
  size_t count = 0;
  for (const Value& value : graph.nodes()) {
    if (!value->is("conv") && !value->is("matmul")) continue;
    const Value& x = value->inputs[0];
    Value weight = value->inputs[1];
    while (weight->is("permute") || weight->is("reshape")) weight = weight->inputs[0];
    const bool is_activation =
        x->is("fake_quantize") && x->inputs.size() == 2 && x->inputs[1].elements() == 1;
    const bool is_weight = weight->is("dequantize") && weight->inputs.size() == 2 &&
                           weight->inputs[0].dtype() == DType::i8;
    if (is_activation && is_weight) ++count;
  }
  return count;
}
}  // namespace

TEST_CASE("a quantized net is written and read as the same graph") {
  for (const char* name : {"cnn", "resnet", "mlp"})
    for (const bool dynamic : {false, true}) {
      CAPTURE(name);
      CAPTURE(dynamic);
      const auto model = make_model(
          name, std::string(name) == "resnet" ? nn::Options{{"depth", int64_t{8}}} : nn::Options{},
          images);
      const quantization::Int8 int8 = int8_of(*model, dynamic);
      const TemporaryFolder folder;
      const std::string file = folder.file("net.onnx");
      onnx::write(exported(*model, int8), file);
      const onnx::Net net(onnx::read(file));
      // A batch of any size.
      Random random(3);
      const Tensor x = random_values(images.batch(3), -1, 1, random);
      const std::vector<double> wanted = outputs_of(
          [&](const Tensor& in) {
            return int8({.inputs = {in}, .outputs = {(*model)(in)}}).outputs[0];
          },
          x);
      const std::vector<double> got =
          outputs_of([&](const Tensor& in) { return net(std::array{in})[0]; }, x);
      for (size_t i = 0; i < wanted.size(); ++i)
        CHECK(got[i] == doctest::Approx(wanted[i]).epsilon(1e-5));
      const ModeScope inference(Mode::eval);
      const Tensor leaf = input(images.batch(3), 0);
      CHECK(int8_layers({.inputs = {leaf}, .outputs = {net(std::array{leaf})[0]}}) ==
            int8.quantized_layers());
      // It has no layers that can be quantized again.
      CHECK(quantization::layers_of({.inputs = {leaf}, .outputs = {net(std::array{leaf})[0]}})
                .layers.size() ==
            quantization::layers_of(forward(*model, 1)).layers.size() - int8.quantized_layers());
    }
}

TEST_SUITE("slow onnx") {
  TEST_CASE("onnxruntime runs quantized nets with weft's outputs") {
    const std::string python = python_with("onnxruntime");
    if (python.empty()) return;
    for (const char* name : {"cnn", "mlp"}) {
      CAPTURE(name);
      const auto model = make_model(name, {}, images);
      const quantization::Int8 int8 = int8_of(*model, false);
      const TemporaryFolder folder;
      onnx::write(exported(*model, int8), folder.file("model.onnx"));
      for (const int64_t batch : {1, 3}) {
        Random random(4);
        const Tensor x = random_values(images.batch(batch), -1, 1, random);
        const std::vector<double> y = outputs_of(
            [&](const Tensor& in) {
              return int8({.inputs = {in}, .outputs = {(*model)(in)}}).outputs[0];
            },
            x);
        io::write_npy(folder.file(fmt::format("input_{}.npy", batch)), x);
        io::write_npy(folder.file(fmt::format("output_{}.npy", batch)),
                      tensor(y, {batch, images.classes}, DType::f32));
      }
      const std::string said = folder.file("said");
      const int status = std::system(fmt::format("{} tests/pytorch/check_onnx.py '{}' >'{}' 2>&1",
                                                 python, folder.file("."), said)
                                         .c_str());
      const std::string line = test::contents_of(said);
      REQUIRE_MESSAGE(status == 0, line);
      const nlohmann::json result = nlohmann::json::parse(line);
      // A sum in another order may round to the next of 127 levels.
      CHECK_MESSAGE(result.at("difference") < 0.02, line);
      CHECK_MESSAGE(result.at("largest") > 1e-2, line);
    }
  }
}
