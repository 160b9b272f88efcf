// Implements run, which gives arrays in files to a model and shows or writes what it computes.
#include <algorithm>
#include <chrono>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/base/suggest.h"
#include "weft/cli/terminal.h"
#include "weft/cli/verbs.h"
#include "weft/io/files.h"
#include "weft/io/json.h"
#include "weft/io/npy.h"
#include "weft/onnx/runner.h"
#include "weft/train/report.h"

namespace weft::cli {
namespace {
using nlohmann::json;

struct RunArguments {
  std::string model, output, device = "auto";
  std::vector<std::string> inputs;  // FILE or NAME=FILE
  int repeat = 0;
  bool as_json = false;
};

std::vector<std::string> names_of(const std::vector<onnx::ValueInfo>& values) {
  std::vector<std::string> names;
  names.reserve(values.size());
  for (const onnx::ValueInfo& value : values) names.push_back(value.name);
  return names;
}

// Reads the arrays of a flag's file under the names that it gives them: "" where it gives none.
std::vector<io::NamedTensor> read_arrays(const std::string& value) {
  std::string name, file = value;
  if (const size_t equals = value.find('='); equals != std::string::npos && !io::exists(value)) {
    name = value.substr(0, equals);
    file = value.substr(equals + 1);
  }
  if (!io::exists(file, ErrorKind::usage))
    throw Error(ErrorKind::usage, "--input {}: there is no such file.", io::printable(file));
  if (file.ends_with(".npz")) {
    if (!name.empty())
      throw Error(ErrorKind::usage, "--input {}: a .npz names its arrays itself. Hint: --input {}.",
                  io::printable(value), io::printable(file));
    return io::read_npz(file);
  }
  if (file.ends_with(".pb")) return {{name, onnx::read_tensor(file)}};
  if (!file.ends_with(".npy"))
    throw Error(ErrorKind::usage, "--input {}: inputs are .npy, .npz or .pb files.",
                io::printable(file));
  return {{name, io::read_npy(file)}};
}

// Gives each array its input: by name, and those without one in the order of the model's.
std::vector<Tensor> bind_inputs(const onnx::Net& net, const std::vector<std::string>& flags) {
  const std::vector<std::string> names = names_of(net.inputs());
  std::vector<Tensor> bound(names.size());
  std::vector<Tensor> unnamed;
  for (const std::string& flag : flags)
    for (io::NamedTensor& array : read_arrays(flag)) {
      if (array.name.empty()) {
        unnamed.push_back(std::move(array.tensor));
        continue;
      }
      const auto found = std::ranges::find(names, array.name);
      if (found == names.end()) {
        const std::vector<std::string_view> known(names.begin(), names.end());
        const std::string_view similar = nearest(array.name, known);
        throw Error(ErrorKind::usage, "{}: it has no input '{}'.{} Its inputs: {}.",
                    io::printable(net.model().file), io::printable(array.name),
                    similar.empty() ? "" : fmt::format(" Did you mean {}?", similar),
                    fmt::join(names, ", "));
      }
      bound[static_cast<size_t>(found - names.begin())] = std::move(array.tensor);
    }
  auto next = unnamed.begin();
  for (Tensor& tensor : bound)
    if (!tensor.defined() && next != unnamed.end()) tensor = *next++;
  if (next != unnamed.end())
    throw Error(ErrorKind::usage, "{}: it takes {} inputs. Got {} more.",
                io::printable(net.model().file), names.size(), unnamed.end() - next);
  std::vector<std::string> missing;
  for (size_t i = 0; i < bound.size(); ++i)
    if (!bound[i].defined())
      missing.push_back(fmt::format("'{}' ({})", names[i], to_string(net.inputs()[i])));
  if (!missing.empty())
    throw Error(ErrorKind::usage, "{}: inputs are missing: {}. Hint: --input NAME=FILE.npy.",
                io::printable(net.model().file), fmt::join(missing, ", "));
  return bound;
}

// Returns the first elements of an output.
std::string preview(const Tensor& values) {
  constexpr int64_t most = 6;
  const Tensor flat = reshape(values, {values.elements()});
  const std::vector<double> first =
      slice(flat, 0, 0, std::min(most, values.elements())).to_doubles();
  std::vector<std::string> texts;
  texts.reserve(first.size());
  for (double number : first) texts.push_back(fmt::format("{:.6g}", number));
  return fmt::format("{}{}", fmt::join(texts, " "), values.elements() > most ? " ..." : "");
}

double median_seconds(onnx::Runner& runner, std::span<const Tensor> inputs, int times) {
  std::vector<double> seconds;
  for (int i = 0; i < times; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    eval(runner.run(inputs));
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::ranges::sort(seconds);
  return seconds[seconds.size() / 2];
}

void write_outputs(const std::string& path, std::span<const io::NamedTensor> outputs) {
  if (path.ends_with(".npz")) return io::write_npz(path, outputs);
  if (!path.ends_with(".npy"))
    throw Error(ErrorKind::usage, "--output {}: outputs are written to .npy or .npz files.",
                io::printable(path));
  if (outputs.size() != 1)
    throw Error(ErrorKind::usage,
                "--output {}: a .npy holds one array, and the model has {} outputs. "
                "Hint: .npz.",
                io::printable(path), outputs.size());
  io::write_npy(path, outputs[0].tensor);
}

int run_model(const RunArguments& arguments) {
  if (!onnx::is_model_file(arguments.model))
    throw Error(ErrorKind::usage, "{}: weft run takes an ONNX file (.onnx).",
                io::printable(arguments.model));
  if (!io::exists(arguments.model, ErrorKind::usage))
    throw Error(ErrorKind::usage, "{}: there is no such file.", io::printable(arguments.model));
  const onnx::Net net(onnx::read(arguments.model));
  const std::vector<Tensor> inputs = bind_inputs(net, arguments.inputs);
  onnx::Runner runner(net, {.mode = Mode::eval, .device = arguments.device});
  const std::span<const Tensor> results = runner.run(inputs);
  std::vector<io::NamedTensor> outputs;
  outputs.reserve(results.size());
  for (size_t i = 0; i < results.size(); ++i)
    outputs.push_back({net.outputs()[i].name, results[i].eval()});
  if (!arguments.output.empty()) write_outputs(arguments.output, outputs);
  const double seconds =
      arguments.repeat > 0 ? median_seconds(runner, inputs, arguments.repeat) : 0;
  if (arguments.as_json) {
    json result{{"model", arguments.model}};
    for (const io::NamedTensor& output : outputs)
      result["outputs"].push_back({{"name", output.name},
                                   {"dtype", name(output.tensor.dtype())},
                                   {"shape", std::vector<int64_t>(output.tensor.shape().begin(),
                                                                  output.tensor.shape().end())}});
    if (arguments.repeat > 0) result["median_ms"] = 1e3 * seconds;
    line(io::json_text(result));
    return 0;
  }
  Table table({"output", "type", "elements"});
  for (const io::NamedTensor& output : outputs)
    table.row({output.name, to_string(output.tensor.type()), preview(output.tensor)});
  show(table.text());
  if (arguments.repeat > 0)
    line(fmt::format("median of {} runs: {}", arguments.repeat, train::time_text(seconds)));
  return 0;
}
}  // namespace

void add_infer_verb(Program& program) {
  auto arguments = std::make_shared<RunArguments>();
  Verb& verb = program.root.add(
      {.name = "run",
       .group = "Models",
       .doc = "Gives arrays in files to a model and shows, or writes, what it computes.",
       .examples = "weft run resnet50.onnx --input image=cat.npy --output logits.npy\n"
                   "weft run bert.onnx --input tokens.npz --output hidden.npz\n"
                   "weft run mobilenet.onnx --input cat.npy --repeat 100",
       .run = [arguments] { return run_model(*arguments); }});
  verb.options = {
      {.type = "MODEL", .doc = "an ONNX file", .target = &arguments->model, .required = true},
      {.flag = "--input",
       .type = "[NAME=]FILE",
       .doc = "a .npy or .pb (TensorProto) for an input by name, or for the next one; or a .npz, "
              "whose arrays have the inputs' names; may be repeated",
       .target = &arguments->inputs,
       .most = 1000},
      {.flag = "--output",
       .letter = 'o',
       .type = "FILE",
       .doc = "write the outputs: all to a .npz, or one to a .npy",
       .target = &arguments->output,
       .written = true},
      {.flag = "--device",
       .type = "DEVICE",
       .doc = "cpu, cuda, opencl, or auto",
       .target = &arguments->device},
      {.flag = "--repeat",
       .type = "N",
       .doc = "run N more times and print the median time",
       .target = &arguments->repeat,
       .range = {{1, 1000000}}},
      {.flag = "--json", .doc = "one JSON object instead of text", .target = &arguments->as_json}};
}

}  // namespace weft::cli
