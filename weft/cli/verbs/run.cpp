// Implements run, which gives arrays or pictures in files to a model and shows, or writes, its
// outputs.
#include <algorithm>
#include <chrono>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/cli/models/array_input.h"
#include "weft/cli/models/array_model.h"
#include "weft/cli/models/compiled_model.h"
#include "weft/cli/models/model_kind.h"
#include "weft/cli/models/picture_input.h"
#include "weft/cli/models/picture_output.h"
#include "weft/cli/outputs.h"
#include "weft/cli/recipes/recipe_arguments.h"
#include "weft/cli/show/terminal.h"
#include "weft/cli/verbs/verbs.h"
#include "weft/io/files.h"
#include "weft/io/json.h"
#include "weft/io/npy.h"
#include "weft/pictures/image.h"
#include "weft/train/run/report.h"

namespace weft::cli {
namespace {
using nlohmann::json;

struct RunArguments {
  std::string model, output;
  RecipeFlags flags;
  std::vector<std::string> inputs;  // FILE or NAME=FILE
  int repeat = 0, top = 3;
  bool as_json = false;
  artifact::ReadOptions compiled = {};
};

// ---- inputs

// Returns the array of each input.
std::vector<Tensor> bind_inputs(const ArrayModel& model, const std::vector<InputFile>& files) {
  const std::vector<std::vector<InputArray>> arrays = arrays_of(model.name, model.inputs, files);
  std::vector<Type> types;
  size_t count = 0;
  for (const std::vector<InputArray>& each : arrays) count += each.size();
  for (size_t i = 0; i < arrays.size(); ++i) {
    if (arrays[i].size() > 1 && arrays[i][1].is_named)
      throw Error(ErrorKind::usage, "{}: input '{}' is given twice.", io::printable(model.name),
                  io::printable(model.inputs[i].name));
    if (arrays[i].size() > 1)
      throw Error(ErrorKind::usage, "{}: it takes {} input{}. Got {} more.",
                  io::printable(model.name), arrays.size(), arrays.size() == 1 ? "" : "s",
                  count - arrays.size());
    types.push_back(arrays[i][0].type);
  }
  model.check(types);
  std::vector<Tensor> inputs;
  inputs.reserve(arrays.size());
  for (const std::vector<InputArray>& each : arrays) inputs.push_back(each[0].read());
  return inputs;
}

// ---- outputs

// Results are the outputs of a model, and the inputs that it is timed on.
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
      if (!file.name.empty()) index_of_input(model.name, model.inputs, file.name);
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

// Returns a model that refuses, before it computes anything, outputs that are no pictures.
ArrayModel giving_pictures(ArrayModel model, const PictureOutput& pictures) {
  model.run = [run = model.run, types = model.output_types, names = model.outputs,
               pictures](std::span<const Tensor> inputs) {
    pictures.check(names, types(inputs));
    return run(inputs);
  };
  return model;
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

// A Ranked is a class of a picture with its probability, or with the score that the model gives it.
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
  const bool to_pictures = pictures::image_format(output) != pictures::ImageFormat::none;
  if (!output.empty() && !output.ends_with(".npz") && !output.ends_with(".npy") && !to_pictures)
    throw Error(ErrorKind::usage,
                "--output {}: outputs are written to .npy or .npz files, or as pictures to .png or "
                ".jpg files.",
                io::printable(output));
  check_compiled_options(arguments.model, arguments.compiled);
  const std::vector<InputFile> files = parse_inputs(arguments.inputs);
  const ArrayModel model =
      kind_of(arguments.model)
          .arrays(arguments.model, {.flags = joined(arguments.flags, program.flags),
                                    .given = names_of(files),
                                    .compiled = arguments.compiled});
  const PictureOutput pictures{.path = output,
                               .has_rows = std::ranges::any_of(files, &InputFile::has_pictures)};
  const Results results = compute(to_pictures ? giving_pictures(model, pictures) : model, files);
  std::vector<std::string> written;
  if (to_pictures) {
    written = pictures.files(results.outputs[0].tensor.type());
    for (const std::string& file : written) check_output("--output", file);
    pictures.write(results.outputs[0]);
  } else if (!output.empty()) {
    check_outputs_not_read(program);
    write_outputs(output, results.outputs);
  }
  const double seconds =
      arguments.repeat > 0 ? median_seconds(model, results.inputs, arguments.repeat) : 0;
  if (arguments.as_json) {
    json result = json_of(model, results, arguments.top);
    if (to_pictures) result["written"] = written;
    if (arguments.repeat > 0) result["median_ms"] = 1e3 * seconds;
    line(io::json_text(result));
    return 0;
  }
  show(table_of(model, results, arguments.top));
  if (to_pictures)
    line(written.size() == 1
             ? fmt::format("wrote {}", io::printable(output))
             : fmt::format("wrote {} pictures, {} to {}", written.size(),
                           io::printable(written.front()), io::printable(written.back())));
  if (arguments.repeat > 0)
    line(fmt::format("median of {} runs: {}", arguments.repeat, train::time_text(seconds)));
  return 0;
}
}  // namespace

void add_run_verb(Program& program) {
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
                   "weft run upscale.onnx --input low.npy -o high.png\n"
                   "weft run mobilenet.onnx --input x.npy --repeat 100",
       .run = [arguments, &program] { return run_model(program, *arguments); },
       .recipe_keys = true});
  verb.options = {
      {.type = "MODEL",
       .doc =
           "an ONNX file, a run, a checkpoint, a compiled model, or a published model (a folder or "
           "GGUF file)",
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
       .doc = "write the outputs: all to a .npz, or one to a .npy; or one of [rows, C, H, W] as "
              "pictures, to .png or .jpg (out-1.png, out-2.png ... of several rows)",
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
  for (Option& option : compiled_options(arguments->compiled))
    verb.options.push_back(std::move(option));
}

}  // namespace weft::cli
