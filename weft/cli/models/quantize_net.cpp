#include "weft/cli/models/quantize_net.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "weft/base/error.h"
#include "weft/base/logging.h"
#include "weft/cli/models/calibration_arrays.h"
#include "weft/cli/models/inference.h"
#include "weft/cli/models/model_kind.h"
#include "weft/cli/models/onnx_output.h"
#include "weft/cli/models/quantize_report.h"
#include "weft/cli/models/text_model.h"
#include "weft/cli/show/terminal.h"
#include "weft/data/loader.h"
#include "weft/io/files.h"
#include "weft/models/pretrained.h"
#include "weft/onnx/file/model.h"
#include "weft/quantization/training.h"
#include "weft/train/checkpoint/checkpoint.h"
#include "weft/train/methods/quantization.h"
#include "weft/train/task/evaluation.h"

namespace weft::cli {
namespace {
using quantization::Layers;
using quantization::Method;
using quantization::Scheme;

constexpr int64_t usual_batches = 8;
constexpr double usual_percentile = 99.99;

constexpr std::pair<std::string_view, Method> methods[] = {
    {"minmax", Method::minmax}, {"percentile", Method::percentile}, {"entropy", Method::entropy}};
Method method_of(const NetQuantization& arguments) {
  if (arguments.method.empty()) return Method::minmax;
  return std::ranges::find(methods, arguments.method, [](auto& each) { return each.first; })
      ->second;
}
int64_t batches_of(const NetQuantization& arguments) {
  return arguments.batches > 0 ? arguments.batches : usual_batches;
}

// Returns the experiment with the data of the flags, or of the run; nullopt where a net that needs
// no data has none.
std::optional<train::Experiment> experiment_of(const NetQuantization& arguments,
                                               const RecipeFlags& flags) {
  const std::string& model = arguments.model;
  const ModelKind& kind = kind_of(model);
  if (&kind == &run_kind) {
    train::Experiment experiment = kind.evaluation(model, flags, {});
    const train::Recipe trained =
        train::checkpoint_recipe(train::find_checkpoint(train::locate_run(model)));
    for (std::string_view key : {keys::data::dataset, keys::data::format, keys::data::path})
      if (trained.to_yaml(key) != experiment.recipe.to_yaml(key))
        logging::warn("{} was trained with {} {}, and is quantized by ranges of {}.", model, key,
                      trained.to_yaml(key), experiment.recipe.to_yaml(key));
    return experiment;
  }
  if (arguments.dynamic && flags.empty()) return {};
  return kind.evaluation(model, flags, {.doing = "quantizing", .also = "--input FILE.npz, "});
}

quantization::Net net_of(const train::Experiment& experiment) {
  return [&experiment](std::span<const Tensor> inputs) {
    const Tensor& x = inputs[0];
    const DType dtype = is_float(x.dtype()) ? experiment.precision.parameters : x.dtype();
    return std::vector<Tensor>{(*experiment.model)(cast(x, dtype))};
  };
}

// Returns batches of the training data, else of the validation data, shuffled, as samples of one
// class may be neighbours.
quantization::Samples samples_of(const train::Experiment& experiment, int64_t batches) {
  const bool trains = experiment.train != nullptr;
  const auto source = trains ? experiment.train : experiment.validation;
  if (source == nullptr)
    throw Error(ErrorKind::usage, "there are no data to calibrate on. Hint: --data.path.");
  const int64_t size = std::min(experiment.eval_batch, source->size());
  return [source, batches, size](const auto& visit) {
    data::Loader loader(source, {.batch_size = size, .shuffle = true, .drop_last = true});
    data::Batch batch;
    for (int64_t i = 0; i < batches && loader.next(batch); ++i) visit(std::array{batch.inputs});
  };
}

// Returns a batch of the validation data, which the calibration does not see if there are training
// data; else of the training data.
Tensor held_inputs(const train::Experiment& experiment) {
  const auto source = experiment.validation != nullptr ? experiment.validation : experiment.train;
  data::Loader loader(source, {.batch_size = std::min(experiment.eval_batch, source->size())});
  data::Batch batch;
  loader.next(batch);
  return batch.inputs;
}

// Material is the data that a net is calibrated on and measured by: an experiment's data, or
// arrays; neither for a net that needs no data.
struct Material {
  std::optional<train::Experiment> experiment = {};
  std::unique_ptr<const CalibrationArrays> arrays = {};

  bool empty() const { return !experiment && arrays == nullptr; }
  // The functions that are returned use this object.
  quantization::Net net() const { return arrays ? arrays->net() : net_of(*experiment); }
  quantization::Samples samples(int64_t batches) const {
    return arrays ? arrays->samples() : samples_of(*experiment, batches);
  }
  std::vector<Tensor> held() const {
    return arrays ? arrays->first_batch() : std::vector<Tensor>{held_inputs(*experiment)};
  }
  std::string device() const {
    return arrays ? arrays->device() : experiment->recipe->train.device;
  }
};

Material material_of(const NetQuantization& arguments, const RecipeFlags& flags) {
  if (arguments.inputs.empty()) return {.experiment = experiment_of(arguments, flags)};
  if (&kind_of(arguments.model) != &onnx_kind)
    throw Error(ErrorKind::usage,
                "--input calibrates ONNX files. Got {}. Hint: weft convert --to onnx.",
                arguments.model);
  if (arguments.batches > 0)
    throw Error(ErrorKind::usage,
                "--batches is for data sets. Of --input every array is calibrated on.");
  return {.arrays = std::make_unique<CalibrationArrays>(arguments.model, arguments.inputs, flags,
                                                        extents_of(arguments.dims))};
}

// Returns the layers of the net that is calibrated. For arrays, checks that the file that is
// written has the same layers.
Layers layers_of(const Material& material, const OnnxOutput& output) {
  if (material.experiment) return train::layers_of(*material.experiment);
  Layers written = layers_of(output);
  if (material.arrays == nullptr) return written;
  Layers layers = material.arrays->layers();
  if (!std::ranges::equal(layers.layers, written.layers, {}, &quantization::Layer::name,
                          &quantization::Layer::name))
    throw Error(ErrorKind::usage,
                "{} has {} layers for the arrays, and {} for the inputs of the file that is "
                "written. Hint: --dim.",
                output.model, layers.layers.size(), written.layers.size());
  return layers;
}

// Sets the ranges by calibration, and which layers stay for lack of one.
void calibrate(Scheme& scheme, const NetQuantization& arguments, const Material& material,
               const Layers& layers) {
  scheme.ranges = quantization::calibrate(
      material.net(), layers, material.samples(batches_of(arguments)),
      {.method = method_of(arguments),
       .percentile = arguments.percentile > 0 ? arguments.percentile : usual_percentile,
       .device = material.device()});
  const std::vector<std::string> dead = quantization::exclude_without_range(layers, scheme);
  if (!dead.empty())
    remark("warning",
           fmt::format("{} of {} layers stay in f32, as their inputs are all zeros, or not finite: "
                       "{}.",
                       dead.size(), layers.layers.size(), fmt::join(dead, ", ")));
}

// Refuses flags for settings that a run has learned by quantization-aware training.
void refuse_for_learned(const NetQuantization& arguments) {
  const char* const flag = !arguments.method.empty()   ? "--method"
                           : arguments.percentile > 0  ? "--percentile"
                           : arguments.batches > 0     ? "--batches"
                           : arguments.dynamic         ? "--dynamic"
                           : arguments.weight_bits > 0 ? "--weight-bits"
                                                       : nullptr;
  if (flag != nullptr)
    throw Error(ErrorKind::usage,
                "{} has learned its ranges by quantization-aware training: it takes no {}.",
                arguments.model, flag);
}

void check_quantizes(const NetQuantization& arguments, const Layers& layers, const Scheme& scheme) {
  for (size_t i = 0; i < layers.layers.size(); ++i)
    if (quantization::is_quantized(layers, scheme, i)) return;
  const bool has_linear =
      std::ranges::any_of(layers.layers, [](const auto& layer) { return !layer.is_convolution; });
  throw Error(ErrorKind::usage, "{} has no layer {}.", arguments.model,
              layers.layers.empty()
                  ? "to quantize: no convolution or linear layer with weights in f32"
              : scheme.dynamic && !has_linear ? "that --dynamic quantizes: none is linear"
                                              : "left to quantize");
}

// Keeps the layers that cost most.
void exclude_most_sensitive(Scheme& scheme, const Layers& layers,
                            const std::vector<double>& decibels, int64_t count) {
  std::vector<size_t> order(layers.layers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return decibels[i]; });
  scheme.excluded.resize(order.size());
  for (const size_t i : order)
    if (count > 0 && quantization::is_quantized(layers, scheme, i)) {
      scheme.excluded[i] = true;
      --count;
    }
}

std::vector<OutputChange> errors_of(const CalibrationArrays& arrays, const Layers& layers,
                                    const Scheme& scheme) {
  const std::vector<quantization::OutputError> errors =
      quantization::output_errors(arrays.net(), layers, scheme, arrays.samples(), arrays.device());
  std::vector<OutputChange> changes;
  changes.reserve(errors.size());
  for (size_t i = 0; i < errors.size(); ++i)
    changes.push_back({arrays.outputs()[i].name, errors[i]});
  return changes;
}

void check_arguments(const NetQuantization& arguments) {
  if (arguments.percentile > 0 && arguments.method != "percentile")
    throw Error(ErrorKind::usage, "--percentile is for --method percentile.");
  if (arguments.dynamic && !arguments.method.empty())
    throw Error(ErrorKind::usage, "--method is for ranges from data; --dynamic needs none.");
  if (io::exists(arguments.path + ".data", ErrorKind::usage))
    throw Error(ErrorKind::usage, "{}.data exists. Nothing was changed.", arguments.path);
}
}  // namespace

std::vector<Option> net_quantization_options(NetQuantization& arguments) {
  return {
      {.flag = "--method",
       .type = "METHOD",
       .doc = "with OUT.onnx: how the ranges of activations follow from data: minmax (default), "
              "percentile, entropy",
       .target = &arguments.method,
       .choices = {"minmax", "percentile", "entropy"}},
      {.flag = "--percentile",
       .type = "P",
       .doc = "of the magnitudes, with --method percentile (99.99)",
       .target = &arguments.percentile,
       .range = {{50, 100}}},
      {.flag = "--input",
       .type = "[NAME=]FILE",
       .doc =
           "with OUT.onnx, of an ONNX file: arrays to calibrate on instead of a data set: a .npz "
           "with an array of every input, or a .npy or .pb for an input by name, or for the "
           "next one; several are as many batches, and each has its samples along the first "
           "axis. The outputs are compared with those in float32",
       .target = &arguments.inputs,
       .several = true,
       .most = 100000},
      {.flag = "--batches",
       .type = "N",
       .doc = "with OUT.onnx: batches of training data to calibrate on (8)",
       .target = &arguments.batches,
       .range = {{1, 1e6}}},
      {.flag = "--dynamic",
       .doc = "with OUT.onnx: linear layers alone, whose inputs are scaled by their own largest "
              "magnitude; needs no data",
       .target = &arguments.dynamic},
      {.flag = "--keep",
       .type = "NAME",
       .doc = "with OUT.onnx: a layer that stays in f32, or a pattern: fc*",
       .target = &arguments.keep,
       .most = 64},
      {.flag = "--keep-sensitive",
       .type = "N",
       .doc = "with OUT.onnx: the N layers that cost most stay in f32",
       .target = &arguments.keep_sensitive,
       .range = {{0, 1e6}}},
      {.flag = "--weight-bits",
       .type = "BITS",
       .doc = "with OUT.onnx: 8 (default), or 7 for CPUs with AVX2 alone",
       .target = &arguments.weight_bits,
       .range = {{7, 8}}},
      {.flag = "--batch",
       .type = "N",
       .doc = "with OUT.onnx: rows that the file takes (any number)",
       .target = &arguments.batch,
       .range = {{1, 0x1p40}}},
      {.flag = "--context",
       .type = "N",
       .doc = "with OUT.onnx: tokens of a sequence (the model's, at most 512)",
       .target = &arguments.context,
       .range = {{1, 0x1p40}}},
      {.flag = "--dim",
       .type = "NAME=N",
       .doc = "with OUT.onnx, of an ONNX file: bind a symbolic extent",
       .target = &arguments.dims,
       .most = 64}};
}

std::string given_flag(const NetQuantization& arguments) {
  return !arguments.method.empty()      ? "--method"
         : arguments.percentile > 0     ? "--percentile"
         : !arguments.inputs.empty()    ? "--input"
         : arguments.batches > 0        ? "--batches"
         : arguments.dynamic            ? "--dynamic"
         : !arguments.keep.empty()      ? "--keep"
         : arguments.keep_sensitive > 0 ? "--keep-sensitive"
         : arguments.weight_bits > 0    ? "--weight-bits"
         : arguments.batch > 0          ? "--batch"
         : arguments.context > 0        ? "--context"
         : !arguments.dims.empty()      ? "--dim"
                                        : "";
}

int quantize_net(const NetQuantization& arguments, const RecipeFlags& flags) {
  check_arguments(arguments);
  Material material = material_of(arguments, flags);
  std::optional<train::Experiment>& experiment = material.experiment;
  OnnxOutput output{.model = arguments.model,
                    .path = arguments.path,
                    .batch = arguments.batch > 0 ? std::optional(arguments.batch) : std::nullopt,
                    .context = arguments.context,
                    .dims = arguments.dims};
  if (experiment) output.samples = {experiment->shape.batch(1).shape};
  if (material.arrays != nullptr) output.samples = material.arrays->shapes();
  const Layers layers = layers_of(material, output);
  Scheme scheme{.dynamic = arguments.dynamic,
                .weight_bits = arguments.weight_bits > 0 ? arguments.weight_bits : 8};
  const auto* const learned = experiment ? train::quantization_of(*experiment) : nullptr;
  if (learned != nullptr) {
    refuse_for_learned(arguments);
    scheme = learned->scheme();
  }
  check_quantizes(arguments, layers, scheme);
  const std::vector<bool> named = quantization::layers_like(layers, arguments.keep, "--keep");
  scheme.excluded.resize(layers.layers.size());
  for (size_t i = 0; i < named.size(); ++i) scheme.excluded[i] = scheme.excluded[i] || named[i];
  if (!material.empty() && learned == nullptr && !scheme.dynamic)
    calibrate(scheme, arguments, material, layers);
  check_quantizes(arguments, layers, scheme);
  Measured measured;
  if (!material.empty()) {
    measured.decibels = quantization::sensitivities(material.net(), layers, scheme, material.held(),
                                                    material.device());
    exclude_most_sensitive(scheme, layers, measured.decibels, arguments.keep_sensitive);
    check_quantizes(arguments, layers, scheme);
  } else if (arguments.keep_sensitive > 0) {
    throw Error(ErrorKind::usage,
                "--keep-sensitive measures layers on data. Hint: --input, --data.dataset, or "
                "--data.format and --data.path.");
  }
  if (experiment && experiment->validation != nullptr) {
    measured.before = train::evaluate(*experiment);
    train::quantize(*experiment, std::make_unique<quantization::Training>(layers, scheme));
    measured.after = train::evaluate(*experiment);
  }
  if (material.arrays != nullptr) measured.errors = errors_of(*material.arrays, layers, scheme);
  output.scheme = scheme;
  const OnnxWritten written = write_onnx(output);
  remark_limits(written);
  report_int8({.path = arguments.path,
               .layers = layers,
               .scheme = scheme,
               .written = written,
               .measured = measured},
              arguments.as_json);
  return 0;
}

}  // namespace weft::cli
