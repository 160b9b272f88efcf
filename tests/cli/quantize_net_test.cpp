// Tests `weft quantize MODEL OUT.onnx` as a user calls it: on a run, on an ONNX file, and on a run
// that was trained with int8.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/support/images.h"
#include "tests/support/program.h"
#include "weft/onnx/file/model.h"

using namespace weft;
using namespace weft::test;
using nlohmann::json;

namespace {
const std::string recipe =
    "model: {name: cnn, config: {conv_channels: [8, 8], hidden_size: 16}}\n"
    "data: {dataset: random-images, image_size: 8, classes: 4}\n"
    "train: {steps: 4, global_batch_size: 8}\neval: {batch_size: 8}\n";
const std::vector<std::string> data_flags = {"--data.dataset",    "random-images",
                                             "--data.image_size", "8",
                                             "--data.classes",    "4",
                                             "--eval.batch_size", "8"};

struct TrainedNet : Workplace {
  explicit TrainedNet(const std::string& more = "") {
    write("net.yaml", "name: net\n" + recipe + more);
    const Outcome outcome = weft({"train", "net.yaml"});
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  }
  json quantize(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "quantize");
    for (const char* more : {"--to", "int8", "--json"}) arguments.emplace_back(more);
    const Outcome outcome = weft(arguments);
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
    return json::parse(outcome.out);
  }
  double loss_of(const std::string& file) const {
    std::vector<std::string> arguments = {"eval", file, "--json"};
    arguments.insert(arguments.end(), data_flags.begin(), data_flags.end());
    const Outcome outcome = weft(arguments);
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
    return json::parse(outcome.out)["loss"];
  }
};

std::vector<std::string> kept(const json& result) {
  std::vector<std::string> names;
  for (const json& layer : result["layers"])
    if (!layer["quantized"]) names.push_back(layer["name"]);
  return names;
}
using Names = std::vector<std::string>;
}  // namespace

TEST_CASE("a run is quantized to a file with the loss that was reported") {
  const TrainedNet net;
  for (const char* method : {"minmax", "percentile", "entropy"}) {
    CAPTURE(method);
    const std::string file = method + std::string(".onnx");
    const json result = net.quantize({"net", file, "--method", method, "--batches", "3"});
    CHECK(kept(result).empty());
    CHECK(result["bytes"].get<double>() < result["bytes_before"].get<double>() / 3);
    CHECK(result["before"]["loss"] != result["after"]["loss"]);
    CHECK(net.loss_of(file) ==
          doctest::Approx(result["after"]["loss"].get<double>()).epsilon(1e-5));
    for (const json& layer : result["layers"]) CHECK(layer["sqnr_db"] > 0);
  }
  // The most sensitive layer is the one with most noise; more may be named.
  const json all = net.quantize({"net", "all.onnx"});
  std::string worst;
  double least = 1e9;
  for (const json& layer : all["layers"])
    if (layer["sqnr_db"] < least) {
      least = layer["sqnr_db"];
      worst = layer["name"];
    }
  CHECK(kept(net.quantize({"net", "one.onnx", "--keep-sensitive", "1"})) == Names{worst});
  CHECK(kept(net.quantize({"net", "fc.onnx", "--keep", "fc*"})) == Names{"fc1", "fc2"});
  CHECK(kept(net.quantize({"net", "dynamic.onnx", "--dynamic"})) == Names{"conv1", "conv2"});
}

TEST_CASE("an ONNX file is quantized with the ranges of its run") {
  const TrainedNet net;
  REQUIRE(net.weft({"convert", "net", "net.onnx", "--to", "onnx"}).code == 0);
  std::vector<std::string> arguments = {"net.onnx", "int8.onnx"};
  arguments.insert(arguments.end(), data_flags.begin(), data_flags.end());
  const json of_file = net.quantize(arguments), of_run = net.quantize({"net", "run.onnx"});
  CHECK(of_file["after"]["loss"].get<double>() ==
        doctest::Approx(of_run["after"]["loss"].get<double>()).epsilon(1e-4));
  // Dynamic ranges need no data, and nothing is measured without.
  const json dynamic = net.quantize({"net.onnx", "dynamic.onnx", "--dynamic"});
  CHECK(!dynamic.contains("before"));
  CHECK(net.loss_of("dynamic.onnx") > 0);
  // Extents that the file leaves open are those of the data.
  onnx::Model open = onnx::read(net.path("net.onnx"));
  for (size_t axis : {2, 3}) (*open.graph.inputs[0].shape)[axis] = {.symbol = "side"};
  onnx::write(open, net.path("open.onnx"));
  arguments[0] = "open.onnx", arguments[1] = "closed.onnx";
  CHECK(net.quantize(arguments)["after"]["loss"] == of_file["after"]["loss"]);
  CHECK(net.loss_of("closed.onnx") ==
        doctest::Approx(of_file["after"]["loss"].get<double>()).epsilon(1e-5));
}

TEST_CASE("nets are evaluated and quantized on fewer samples than a batch or a run trains on") {
  const Workplace place;
  write_images(place, "many", 48, 4, 2);
  write_images(place, "few", 16, 4, 2);
  place.write("digits.yaml",
              "name: digits\nmodel: {name: mlp, config: {hidden_sizes: [8]}}\n"
              "data: {format: idx, path: many}\neval: {batch_size: 4}\n"
              "train: {epochs: 2, global_batch_size: 24}\n"
              "pruning: {pattern: channels, begin_step: 2}\n"
              "quantization: {activations: static, start_step: 1}\n");
  const Outcome trained = place.weft({"train", "digits.yaml"});
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  REQUIRE(place.weft({"convert", "digits", "net.onnx", "--to", "onnx"}).code == 0);
  REQUIRE(place.weft({"prune", "digits", "small"}).code == 0);
  place.write("float.yaml",
              "name: float\nmodel: {name: mlp, config: {hidden_sizes: [8]}}\n"
              "data: {format: idx, path: many}\n"
              "train: {steps: 1, global_batch_size: 24}\n");
  REQUIRE(place.weft({"train", "float.yaml"}).code == 0);
  REQUIRE(place.weft({"convert", "float", "float.onnx", "--to", "onnx"}).code == 0);
  for (const std::string model : {"digits", "small", "net.onnx", "float", "float.onnx"}) {
    CAPTURE(model);
    std::vector<std::string> few = {"--data.path", "few", "--eval.batch_size", "4"};
    if (model.ends_with(".onnx")) few.insert(few.end(), {"--data.format", "idx"});
    const auto check = [&](std::vector<std::string> arguments) {
      arguments.insert(arguments.end(), few.begin(), few.end());
      const Outcome outcome = place.weft(arguments);
      CHECK_MESSAGE(outcome.code == 0, outcome.err);
    };
    check({"eval", model});
    if (model != "net.onnx") check({"quantize", model, model + "-int8.onnx", "--to", "int8"});
  }
}

TEST_CASE("a run that is quantized by other data than its own says so") {
  const Workplace place;
  for (const char* folder : {"own", "other"}) write_images(place, folder, 16, 4, 2);
  place.write("digits.yaml",
              "name: digits\nmodel: {name: mlp, config: {hidden_sizes: [8]}}\n"
              "data: {format: idx, path: own}\n"
              "train: {steps: 1, global_batch_size: 8}\neval: {batch_size: 8}\n");
  REQUIRE(place.weft({"train", "digits.yaml"}).code == 0);
  CHECK(place.weft({"quantize", "digits", "own.onnx", "--to", "int8"}).err == "");
  const Outcome outcome =
      place.weft({"quantize", "digits", "other.onnx", "--to", "int8", "--data.path", "other"});
  CHECK(outcome.code == 0);
  CHECK(outcome.err.find("digits was trained with data.path own, and is quantized by ranges of "
                         "other.") != std::string::npos);
}

TEST_CASE("a run trained with int8 is written with the ranges that it learned") {
  const TrainedNet net("quantization: {activations: static, exclude: [conv1], weight_bits: 7}\n");
  REQUIRE(net.weft({"convert", "net", "converted.onnx", "--to", "onnx"}).code == 0);
  const json result = net.quantize({"net", "quantized.onnx"});
  CHECK(kept(result) == Names{"conv1"});
  CHECK(net.read("converted.onnx") == net.read("quantized.onnx"));
  const Outcome evaluated = net.weft({"eval", "net", "--json"});
  CHECK(net.loss_of("converted.onnx") ==
        doctest::Approx(json::parse(evaluated.out)["loss"].get<double>()).epsilon(1e-5));
  double largest = 0;
  for (const onnx::Initializer& each : onnx::read(net.path("converted.onnx")).graph.initializers)
    if (each.value.dtype() == DType::i8)
      for (const double number : each.value.to_doubles())
        largest = std::max(largest, std::abs(number));
  CHECK(largest == 63);
}
