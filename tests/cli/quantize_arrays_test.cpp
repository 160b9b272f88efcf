// Tests `weft quantize net.onnx OUT.onnx --input FILE...`: calibration on arrays of every input,
// and how far the outputs are from those in float32.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/support/images.h"
#include "tests/support/peers.h"
#include "tests/support/program.h"
#include "tests/support/two_inputs.h"
#include "weft/data/loader.h"
#include "weft/io/npy.h"
#include "weft/train/experiment.h"

using namespace weft;
using namespace weft::test;
using nlohmann::json;

namespace {
using Arguments = std::vector<std::string>;

struct QuantizedArrays : Workplace {
  json quantize(Arguments arguments) const {
    arguments.insert(arguments.begin(), "quantize");
    for (const char* more : {"--to", "int8", "--json"}) arguments.emplace_back(more);
    const Outcome outcome = weft(arguments);
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
    return json::parse(outcome.out);
  }
  // Runs a net of two inputs on archives and returns each output, of all of them.
  std::array<std::vector<double>, 2> run(const std::string& net, const Arguments& archives) const {
    std::array<std::vector<double>, 2> outputs;
    for (const std::string& archive : archives) {
      const Outcome outcome = weft({"run", net, "--input", archive, "-o", "run.npz"});
      REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
      const std::vector<io::NamedTensor> arrays = io::read_npz(path("run.npz"));
      for (size_t i = 0; i < outputs.size(); ++i)
        std::ranges::copy(arrays[i].tensor.to_doubles(), std::back_inserter(outputs[i]));
    }
    return outputs;
  }
};

double relative_error(const std::vector<double>& wanted, const std::vector<double>& got) {
  double signal = 0, noise = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    signal += wanted[i] * wanted[i];
    noise += (wanted[i] - got[i]) * (wanted[i] - got[i]);
  }
  return std::sqrt(noise / signal);
}

// Returns the scale of what a layer reads.
double input_scale(const QuantizedArrays& place, const std::string& file,
                   const std::string& layer) {
  for (const onnx::Initializer& each : onnx::read(place.path(file)).graph.initializers)
    if (each.name == layer + ".input_scale") return each.value.item();
  return 0;
}
}  // namespace

TEST_CASE("a net of two inputs is calibrated on arrays and is as close as was reported") {
  const QuantizedArrays place;
  write_two_inputs(place.path("net.onnx"), {-1, "rows"});
  write_samples(place.path("a.npz"), 8, 1);
  write_samples(place.path("b.npz"), 5, 2);
  const auto [wanted, labels] = place.run("net.onnx", {"a.npz", "b.npz"});
  for (const std::string method : {"minmax", "percentile", "entropy"}) {
    CAPTURE(method);
    const std::string file = method + ".onnx";
    const json result =
        place.quantize({"net.onnx", file, "--method", method, "--input", "a.npz", "b.npz"});
    CHECK(result["layers"].size() == 2);
    for (const json& layer : result["layers"]) {
      CHECK(layer["quantized"] == true);
      CHECK(layer["sqnr_db"] > 10);
    }
    // The errors are over both batches; labels are integers, of which a share differs.
    const auto [got, labels_in_int8] = place.run(file, {"a.npz", "b.npz"});
    CHECK(result["outputs"][0]["name"] == "scores");
    const double error = result["outputs"][0]["relative_error"];
    CHECK(error > 0);
    CHECK(error < 0.1);
    CHECK(error == doctest::Approx(relative_error(wanted, got)).epsilon(1e-4));
    double differing = 0;
    for (size_t i = 0; i < labels.size(); ++i)
      differing += labels[i] != labels_in_int8[i] ? 1.0 / 13 : 0;
    CHECK(result["outputs"][1]["name"] == "label");
    CHECK(result["outputs"][1]["differing"] == doctest::Approx(differing));
  }
  // minmax covers the largest of both files: samples of a seed reach to it.
  CHECK(input_scale(place, "minmax.onnx", "w1") ==
        doctest::Approx(std::max(largest_of(place.path("a.npz")), largest_of(place.path("b.npz"))) /
                        127));
  // The text says the same.
  const Outcome text = place.weft(
      {"quantize", "net.onnx", "text.onnx", "--to", "int8", "--input", "a.npz", "b.npz"});
  CHECK(text.out.find("\nscores: relative error 0.0") != std::string::npos);
  CHECK(text.out.find("\nlabel: ") != std::string::npos);
}

TEST_CASE("layers are kept by name and by what they cost the outputs on arrays") {
  const QuantizedArrays place;
  write_two_inputs(place.path("net.onnx"), {-1, "rows"});
  write_samples(place.path("a.npz"), 8, 1);
  const auto kept = [&](const std::string& file, const Arguments& more) {
    Arguments arguments = {"net.onnx", file, "--input", "a.npz"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const json result = place.quantize(arguments);
    Arguments names;
    for (const json& layer : result["layers"])
      if (!layer["quantized"]) names.push_back(layer["name"]);
    return std::pair(names, result);
  };
  const auto [none, all] = kept("all.onnx", {});
  CHECK(none.empty());
  const bool first_is_worse = all["layers"][0]["sqnr_db"] < all["layers"][1]["sqnr_db"];
  CHECK(kept("worst.onnx", {"--keep-sensitive", "1"}).first ==
        Arguments{first_is_worse ? "w1" : "w2"});
  const auto [named, less] = kept("named.onnx", {"--keep", "w1"});
  CHECK(named == Arguments{"w1"});
  CHECK(less["outputs"][0]["relative_error"] < all["outputs"][0]["relative_error"]);
  const auto [dynamic, measured] = kept("dynamic.onnx", {"--dynamic", "--weight-bits", "7"});
  CHECK(dynamic.empty());
  CHECK(measured["outputs"][0]["relative_error"] > 0);
}

TEST_CASE("arrays of separate files, and of many rows at a time, give the same ranges") {
  const QuantizedArrays place;
  write_two_inputs(place.path("net.onnx"), {-1, "rows"});
  write_two_inputs(place.path("fixed.onnx"), {2, ""});
  write_samples(place.path("a.npz"), 8, 1);
  for (const io::NamedTensor& each : io::read_npz(place.path("a.npz")))
    io::write_npy(place.path(each.name + ".npy"), each.tensor);
  const json whole = place.quantize({"net.onnx", "whole.onnx", "--input", "a.npz"});
  const auto same = [&](const std::string& net, const std::string& file, const Arguments& more) {
    Arguments arguments = {net, file, "--input"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const json result = place.quantize(arguments);
    for (const char* layer : {"w1", "w2"})
      CHECK(input_scale(place, file, layer) ==
            doctest::Approx(input_scale(place, "whole.onnx", layer)).epsilon(1e-6));
    CHECK(result["outputs"][0]["relative_error"].get<double>() ==
          doctest::Approx(whole["outputs"][0]["relative_error"].get<double>()).epsilon(1e-3));
  };
  same("net.onnx", "named.onnx", {"mask=mask.npy", "x=x.npy"});
  same("net.onnx", "unnamed.onnx", {"x.npy", "mask.npy"});
  same("net.onnx", "twice.onnx", {"x.npy", "mask.npy", "x.npy", "mask.npy"});
  same("net.onnx", "parts.onnx", {"a.npz", "--eval.batch_size", "3"});
  same("fixed.onnx", "two.onnx", {"a.npz"});
  CHECK((*onnx::read(place.path("whole.onnx")).graph.inputs[1].shape)[0].symbol == "batch");
  CHECK((*onnx::read(place.path("two.onnx")).graph.inputs[1].shape)[0].extent == 2);
}

TEST_CASE("the arrays bind what an ONNX file leaves open") {
  const QuantizedArrays place;
  onnx::Model open = two_inputs({-1, ""});  // each input has rows of its own
  (*open.graph.inputs[0].shape)[1] = {-1, "width"};
  (*open.graph.inputs[1].shape)[1] = {-1, ""};
  onnx::write(open, place.path("net.onnx"));
  write_samples(place.path("a.npz"), 8, 1);
  CHECK(place.quantize({"net.onnx", "out.onnx", "--input", "a.npz"})["layers"].size() == 2);
  const onnx::Model out = onnx::read(place.path("out.onnx"));
  for (const onnx::ValueInfo& each : out.graph.inputs) {
    CHECK((*each.shape)[0].symbol == "batch");
    CHECK((*each.shape)[1].extent == 6);
  }
  CHECK(place.run("out.onnx", {"a.npz"})[0].size() == 8 * 4);
}

TEST_CASE("arrays with the samples of a data set give its ranges") {
  const QuantizedArrays place;
  write_images(place, "digits", 32, 8, 4);
  place.write("digits.yaml",
              fmt::format("name: digits\nmodel: {{name: cnn, config: {{conv_channels: [8, 8], "
                          "hidden_size: 16}}}}\ndata: {{format: idx, path: {}}}\n"
                          "train: {{steps: 2, global_batch_size: 8}}\neval: {{batch_size: 8}}\n",
                          place.path("digits")));
  const Outcome trained = place.weft({"train", "digits.yaml"});
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  REQUIRE(place.weft({"convert", "digits", "net.onnx", "--to", "onnx"}).code == 0);
  const train::Experiment experiment =
      train::make_experiment(train::Recipe::load(place.path("digits.yaml")));
  data::Loader loader(experiment.train, {.batch_size = 8});
  data::Batch batch;
  Arguments files;
  while (files.size() < 4 && loader.next(batch)) {
    files.push_back(fmt::format("batch{}.npy", files.size()));
    io::write_npy(place.path(files.back()), batch.inputs);
  }
  REQUIRE(files.size() == 4);
  for (const std::string method : {"minmax", "percentile", "entropy"}) {
    CAPTURE(method);
    const std::string of_data = method + "-data.onnx", of_arrays = method + "-arrays.onnx";
    place.quantize({"net.onnx", of_data, "--method", method, "--data.format", "idx", "--data.path",
                    "digits", "--eval.batch_size", "8"});
    Arguments arguments = {"net.onnx", of_arrays, "--method", method, "--input"};
    arguments.insert(arguments.end(), files.begin(), files.end());
    place.quantize(arguments);
    CHECK(place.read(of_data) == place.read(of_arrays));
  }
}

TEST_SUITE("slow onnx") {
  TEST_CASE("onnxruntime has the error of outputs that was reported") {
    const std::string python = testing::python_with("onnxruntime");
    if (python.empty()) return;
    const QuantizedArrays place;
    write_two_inputs(place.path("net.onnx"), {-1, "rows"});
    write_samples(place.path("a.npz"), 8, 1);
    write_samples(place.path("b.npz"), 5, 2);
    const json result = place.quantize({"net.onnx", "int8.onnx", "--input", "a.npz", "b.npz"});
    std::string command = python + " tests/pytorch/check_int8.py";
    for (const char* file : {"net.onnx", "int8.onnx", "a.npz", "b.npz"})
      command += " '" + place.path(file) + "'";
    const int status = std::system((command + " >'" + place.path("said") + "' 2>&1").c_str());
    REQUIRE_MESSAGE(status == 0, place.read("said"));
    // A sum in another order may round to the next of 255 levels.
    CHECK(json::parse(place.read("said"))["scores"] ==
          doctest::Approx(result["outputs"][0]["relative_error"].get<double>()).epsilon(0.1));
  }
}
