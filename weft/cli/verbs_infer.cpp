// Implements run, which gives arrays or pictures in files to a model and shows, or writes, what it
// computes.
#include <algorithm>
#include <chrono>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/base/suggest.h"
#include "weft/cli/array_model.h"
#include "weft/cli/outputs.h"
#include "weft/cli/picture_input.h"
#include "weft/cli/recipe_arguments.h"
#include "weft/cli/terminal.h"
#include "weft/cli/verbs.h"
#include "weft/data/image_folder.h"
#include "weft/io/files.h"
#include "weft/io/json.h"
#include "weft/io/npy.h"
#include "weft/onnx/net.h"
#include "weft/train/report.h"

namespace weft::cli {
namespace {
using nlohmann::json;

struct RunArguments {
  std::string model, output;
  RecipeFlags flags;
  std::vector<std::string> inputs;  // FILE or NAME=FILE
  int repeat = 0, top = 3;
  bool as_json = false;
};

// ---- inputs

// An InputFile is the value of a flag: a file, and the name of the input that it is for.
struct InputFile {
  std::string name, path;  // "": the next input
  bool has_pictures = false;
};

InputFile parse_input(const std::string& value) {
  InputFile input{.name = "", .path = value};
  if (const size_t equals = value.find('=');
      equals != std::string::npos && !io::exists(value, ErrorKind::usage))
    input = {.name = value.substr(0, equals), .path = value.substr(equals + 1)};
  if (!io::exists(input.path, ErrorKind::usage))
    throw Error(ErrorKind::usage, "--input {}: there is no such file.", io::printable(input.path));
  input.has_pictures = data::is_picture(input.path) || io::is_folder(input.path, ErrorKind::usage);
  return input;
}

// A Given is an array of a file under the name that it has there, "" where it has none. Its
// elements are read once all types are known to be right, as an archive of a few bytes may inflate
// to very many.
struct Given {
  std::string name;
  Type type;
  std::function<Tensor()> read;
};
Given given(std::string name, Tensor array) {
  const Type type = array.type();
  return {std::move(name), type, [array = std::move(array)] { return array; }};
}

std::vector<Given> open_arrays(const InputFile& input) {
  const std::string& file = input.path;
  if (file.ends_with(".npz")) {
    if (!input.name.empty())
      throw Error(ErrorKind::usage,
                  "--input {}={}: a .npz names its arrays itself. Hint: --input {}.",
                  io::printable(input.name), io::printable(file), io::printable(file));
    const auto archive = std::make_shared<const io::Npz>(io::Npz::open(file));
    std::vector<Given> arrays;
    for (size_t i = 0; i < archive->entries().size(); ++i)
      arrays.push_back({archive->entries()[i].name, archive->entries()[i].type,
                        [archive, i] { return archive->read(i); }});
    return arrays;
  }
  if (file.ends_with(".pb")) return {given(input.name, onnx::read_tensor(file))};
  if (!file.ends_with(".npy"))
    throw Error(ErrorKind::usage,
                "--input {}: inputs are arrays (.npy, .npz, .pb) or pictures (.jpg, .png).",
                io::printable(file));
  return {given(input.name, io::read_npy(file))};
}

// Returns the index of the input that has a name.
size_t index_of(const ArrayModel& model, const std::string& name) {
  std::vector<std::string_view> names;
  names.reserve(model.inputs.size());
  for (const onnx::ValueInfo& each : model.inputs) names.push_back(each.name);
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) {
    const std::string_view similar = nearest(name, names);
    throw Error(ErrorKind::usage, "{}: it has no input '{}'.{} Its inputs: {}.",
                io::printable(model.name), io::printable(name),
                similar.empty() ? "" : fmt::format(" Did you mean {}?", similar),
                fmt::join(names, ", "));
  }
  return static_cast<size_t>(found - names.begin());
}

// Gives each array its input: by name, and those without one in the order of the model's.
std::vector<Tensor> bind_inputs(const ArrayModel& model, const std::vector<InputFile>& files) {
  std::vector<std::optional<Given>> bound(model.inputs.size());
  std::vector<Given> unnamed;
  for (const InputFile& file : files)
    for (Given& array : open_arrays(file)) {
      if (array.name.empty()) {
        unnamed.push_back(std::move(array));
        continue;
      }
      std::optional<Given>& place = bound[index_of(model, array.name)];
      if (place)
        throw Error(ErrorKind::usage, "{}: input '{}' is given twice.", io::printable(model.name),
                    io::printable(array.name));
      place = std::move(array);
    }
  auto next = unnamed.begin();
  for (std::optional<Given>& each : bound)
    if (!each && next != unnamed.end()) each = *next++;
  if (next != unnamed.end())
    throw Error(ErrorKind::usage, "{}: it takes {} input{}. Got {} more.",
                io::printable(model.name), bound.size(), bound.size() == 1 ? "" : "s",
                unnamed.end() - next);
  std::vector<std::string> missing;
  for (size_t i = 0; i < bound.size(); ++i)
    if (!bound[i])
      missing.push_back(fmt::format("'{}' ({})", model.inputs[i].name, to_string(model.inputs[i])));
  if (!missing.empty())
    throw Error(ErrorKind::usage, "{}: inputs are missing: {}. Hint: --input NAME=FILE.npy.",
                io::printable(model.name), fmt::join(missing, ", "));
  std::vector<Type> types;
  types.reserve(bound.size());
  for (const std::optional<Given>& each : bound) types.push_back(each->type);
  model.check(types);
  std::vector<Tensor> inputs;
  inputs.reserve(bound.size());
  for (const std::optional<Given>& each : bound) inputs.push_back(each->read());
  return inputs;
}

// ---- outputs

// Results are what a model computed, and the inputs that it is timed on.
struct Results {
  std::vector<std::string> pictures;  // of the rows; empty: the inputs were arrays
  std::vector<io::NamedTensor> outputs;
  std::vector<Tensor> inputs;
};

Results compute(const ArrayModel& model, const std::vector<InputFile>& files) {
  Results results;
  const auto pictures = std::ranges::count_if(files, &InputFile::has_pictures);
  std::vector<Tensor> outputs;
  if (pictures == 0) {
    results.inputs = bind_inputs(model, files);
    outputs = model.run(results.inputs);
  } else {
    std::vector<std::string> paths;
    for (const InputFile& file : files) {
      if (!file.name.empty()) index_of(model, file.name);
      if (!file.has_pictures)
        throw Error(ErrorKind::usage, "--input {}: arrays are not given together with pictures.",
                    io::printable(file.path));
      paths.push_back(file.path);
    }
    PictureResults of_pictures = run_on_pictures(model, paths);
    results.pictures = std::move(of_pictures.pictures);
    results.inputs = {of_pictures.first};
    outputs = std::move(of_pictures.outputs);
  }
  for (size_t i = 0; i < outputs.size(); ++i)
    results.outputs.push_back({model.outputs[i], outputs[i].eval()});
  return results;
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

void write_outputs(const std::string& path, std::span<const io::NamedTensor> outputs) {
  if (path.ends_with(".npz")) return io::write_npz(path, outputs);
  if (outputs.size() != 1)
    throw Error(ErrorKind::usage,
                "--output {}: a .npy holds one array, and the model has {} outputs. "
                "Hint: .npz.",
                io::printable(path), outputs.size());
  io::write_npy(path, outputs[0].tensor);
}

double median_seconds(const ArrayModel& model, std::span<const Tensor> inputs, int times) {
  std::vector<double> seconds;
  for (int i = 0; i < times; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    eval(model.run(inputs));
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::ranges::sort(seconds);
  return seconds[seconds.size() / 2];
}

// ---- classes

// A Ranked is a class of a picture with its probability, or with what the model gives it.
struct Ranked {
  std::string name;
  double score = 0;
};

// Returns the highest classes of each picture; empty unless each has a score of each class.
std::vector<std::vector<Ranked>> ranked(const ArrayModel& model, const Results& results, int top) {
  if (results.pictures.empty() || results.outputs.size() != 1) return {};
  const Tensor& scores = results.outputs[0].tensor;
  if (scores.rank() != 2 || !is_float(scores.dtype())) return {};
  const auto classes = static_cast<size_t>(scores.dim(1));
  const std::vector<double> all =
      model.gives_logits ? softmax(cast(scores, DType::f64), -1).to_doubles() : scores.to_doubles();
  std::vector<std::vector<Ranked>> pictures;
  for (size_t row = 0; row < results.pictures.size(); ++row) {
    const double* of_row = all.data() + row * classes;
    std::vector<size_t> order(classes);
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, [&](size_t a, size_t b) { return of_row[a] > of_row[b]; });
    order.resize(std::min(classes, static_cast<size_t>(top)));
    std::vector<Ranked>& best = pictures.emplace_back();
    for (size_t i : order)
      best.push_back(
          {i < model.class_names.size() ? model.class_names[i] : std::to_string(i), of_row[i]});
  }
  return pictures;
}

std::string table_of(const ArrayModel& model, const Results& results, int top) {
  const std::vector<std::vector<Ranked>> classes = ranked(model, results, top);
  if (classes.empty()) {
    Table table({"output", "type", "elements"});
    for (const io::NamedTensor& output : results.outputs)
      table.row({output.name, to_string(output.tensor.type()), preview(output.tensor)});
    return table.text();
  }
  Table table({"picture", "class",
               model.gives_logits ? ">probability" : ">" + io::printable(model.outputs[0])});
  for (size_t row = 0; row < classes.size(); ++row)
    for (const Ranked& each : classes[row])
      table.row({&each == classes[row].data() ? io::printable(results.pictures[row]) : "",
                 io::printable(each.name),
                 model.gives_logits ? fmt::format("{:.4f}", each.score)
                                    : fmt::format("{:.6g}", each.score)});
  return table.text();
}

json json_of(const ArrayModel& model, const Results& results, int top) {
  json result{{"model", model.name}};
  for (const io::NamedTensor& output : results.outputs)
    result["outputs"].push_back({{"name", output.name},
                                 {"dtype", name(output.tensor.dtype())},
                                 {"shape", std::vector<int64_t>(output.tensor.shape().begin(),
                                                                output.tensor.shape().end())}});
  const std::vector<std::vector<Ranked>> classes = ranked(model, results, top);
  for (size_t row = 0; row < classes.size(); ++row) {
    json best = json::array();
    for (const Ranked& each : classes[row])
      best.push_back({{"class", each.name},
                      {model.gives_logits ? "probability" : model.outputs[0], each.score}});
    result["pictures"].push_back({{"file", results.pictures[row]}, {"classes", best}});
  }
  return result;
}

int run_model(const Program& program, const RunArguments& arguments) {
  const std::string& output = arguments.output;
  if (!output.empty() && !output.ends_with(".npz") && !output.ends_with(".npy"))
    throw Error(ErrorKind::usage, "--output {}: outputs are written to .npy or .npz files.",
                io::printable(output));
  const ArrayModel model =
      load_array_model(arguments.model, joined(arguments.flags, program.flags));
  std::vector<InputFile> files;
  files.reserve(arguments.inputs.size());
  for (const std::string& value : arguments.inputs) files.push_back(parse_input(value));
  const Results results = compute(model, files);
  if (!output.empty()) {
    check_outputs_not_read(program);
    write_outputs(output, results.outputs);
  }
  const double seconds =
      arguments.repeat > 0 ? median_seconds(model, results.inputs, arguments.repeat) : 0;
  if (arguments.as_json) {
    json result = json_of(model, results, arguments.top);
    if (arguments.repeat > 0) result["median_ms"] = 1e3 * seconds;
    line(io::json_text(result));
    return 0;
  }
  show(table_of(model, results, arguments.top));
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
       .doc =
           "Gives arrays or pictures in files to a model and shows, or writes, what it computes.",
       .examples = "weft run cifar10 --input cat.png dog.png\n"
                   "weft run runs/pets/checkpoints/best --input photos/ --top 5\n"
                   "weft run mnist --input images=digits.npy --output logits.npy\n"
                   "weft run models/gpt2 --input input_ids=tokens.npy --output logits.npy\n"
                   "weft run bert.onnx --input tokens.npz --output hidden.npz\n"
                   "weft run resnet50.onnx --input cat.jpg --data.transforms '[{resize: 256}, "
                   "{center_crop: 224}, {normalize: {mean: [0.485, 0.456, 0.406], std: [0.229, "
                   "0.224, 0.225]}}]'\n"
                   "weft run mobilenet.onnx --input x.npy --repeat 100",
       .run = [arguments, &program] { return run_model(program, *arguments); },
       .recipe_keys = true});
  verb.options = {
      {.type = "MODEL",
       .doc = "an ONNX file, a run, a checkpoint, or a published model (a folder or GGUF file)",
       .target = &arguments->model,
       .required = true},
      {.flag = "--input",
       .type = "[NAME=]FILE",
       .doc =
           "a .npy or .pb (TensorProto) for an input by name, or for the next one; a .npz, whose "
           "arrays have the inputs' names; or JPEG and PNG pictures, or folders of them, "
           "prepared as the model's recipe says; several may follow, and it may be repeated",
       .target = &arguments->inputs,
       .several = true,
       .most = 100000},
      {.flag = "--output",
       .letter = 'o',
       .type = "FILE",
       .doc = "write the outputs: all to a .npz, or one to a .npy",
       .target = &arguments->output,
       .written = true},
      {.flag = "--top",
       .type = "N",
       .doc = "classes that are shown of each picture (3)",
       .target = &arguments->top,
       .range = {{1, 1000000}}},
      short_flag(arguments->flags, "--device"),
      {.flag = "--repeat",
       .type = "N",
       .doc = "run N more times and print the median time",
       .target = &arguments->repeat,
       .range = {{1, 1000000}}},
      {.flag = "--json", .doc = "one JSON object instead of text", .target = &arguments->as_json}};
}

}  // namespace weft::cli
