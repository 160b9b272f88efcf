#include "weft/cli/models/onnx_output.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/cli/models/array_model.h"
#include "weft/cli/models/inference.h"
#include "weft/cli/models/text_model.h"
#include "weft/cli/models/weight_output.h"
#include "weft/cli/show/terminal.h"
#include "weft/models/decoder.h"
#include "weft/models/family.h"
#include "weft/models/gguf.h"
#include "weft/models/pretrained.h"
#include "weft/onnx/export/export.h"
#include "weft/onnx/net/net.h"
#include "weft/tensor/compile.h"

namespace weft::cli {
namespace {
constexpr int64_t usual_context = 512;  // tokens

// An ExportSubject is a model in memory, with what its export is to be called.
struct ExportSubject {
  std::shared_ptr<const void> owner;
  const nn::Module* module = nullptr;
  onnx::BuildGraph build;
  std::vector<std::string> inputs, outputs;
  int64_t context = 0;                               // tokens of a sequence; 0: it reads no tokens
  std::optional<quantization::Scheme> learned = {};  // by quantization-aware training
};

onnx::BuildGraph forward_of(const Model& model, std::function<Type(int64_t)> type) {
  return [&model, type = std::move(type)](int64_t batch) {
    const ModeScope inference(Mode::eval);
    const Tensor x = input(type(batch), 0);
    return Graph{.inputs = {x}, .outputs = {model(x)}, .assignments = {}};
  };
}

int64_t checked_context(int64_t given, int64_t most) {
  if (given > most)
    throw Error(ErrorKind::usage, "the context is at most {} tokens, as the model says. Got {}.",
                most, given);
  return given > 0 ? given : std::min(most, usual_context);
}

ExportSubject published(const OnnxOutput& output) {
  auto loaded = std::make_shared<models::Pretrained>(
      models::load_pretrained(output.model, {.dtype = output.dtype, .hide_padding = true}));
  const auto* decoder = dynamic_cast<const models::Decoder*>(loaded->model.get());
  if (decoder != nullptr && !models::blocks_of(decoder->config()).is_folder_form())
    loaded->model = models::folder_form(*decoder, output.dtype.value_or(DType::f32));
  const int64_t context = checked_context(output.context, loaded->context);
  return {
      .owner = loaded,
      .module = loaded->model.get(),
      .build = forward_of(*loaded->model,
                          [context](int64_t batch) { return Type{DType::i64, {batch, context}}; }),
      .inputs = {"input_ids"},
      .outputs = {"logits"},
      .context = context};
}

ExportSubject trained(const OnnxOutput& output) {
  auto run = std::make_shared<train::Experiment>(
      load_experiment(checkpoint_of(output.model), {}, /*with_data=*/false));
  TaskShape shape = run->shape;
  const bool reads_tokens = shape.kind == InputKind::tokens;
  if (reads_tokens) shape.input = {checked_context(output.context, shape.input[0])};
  const onnx::Ends ends = ends_of(*run->model, shape.kind);
  ExportSubject subject{
      .owner = run,
      .module = run->model.get(),
      .build = forward_of(*run->model, [shape](int64_t batch) { return shape.batch(batch); }),
      .inputs = {ends.samples},
      .outputs = {ends.logits},
      .context = reads_tokens ? shape.input[0] : 0};
  if (run->quantization != nullptr) subject.learned = run->quantization->scheme();
  return subject;
}

// The rows are what the first input's first axis is called.
ExportSubject imported(const OnnxOutput& output) {
  auto net = std::make_shared<onnx::Net>(onnx::read(output.model));
  ExportSubject subject{
      .owner = net, .module = net.get(), .build = {}, .inputs = {}, .outputs = {}};
  for (size_t i = 0; i < net->inputs().size(); ++i) {
    if (net->static_inputs()[i])
      throw Error(ErrorKind::usage,
                  "[onnx] {}: the elements of input '{}' decide shapes, so that the model cannot "
                  "be exported without them.",
                  output.model, net->inputs()[i].name);
    subject.inputs.push_back(net->inputs()[i].name);
  }
  for (const onnx::ValueInfo& each : net->outputs()) subject.outputs.push_back(each.name);
  subject.build = [net, extents = extents_of(output.dims),
                   samples = output.samples](int64_t batch) {
    onnx::Net::Extents bound = extents;
    const std::vector<onnx::ValueInfo>& inputs = net->inputs();
    const auto bind = [&](const onnx::ValueInfo& info, size_t axis, int64_t extent) {
      if ((*info.shape)[axis].extent < 0)
        bound.emplace(onnx::symbol_of(info, axis), extent < 0 ? batch : extent);
    };
    const auto rank_of = [&](const onnx::ValueInfo& info) {
      return info.shape ? info.shape->size() : 0;
    };
    if (!inputs.empty() && rank_of(inputs[0]) > 0) bind(inputs[0], 0, batch);
    for (size_t i = 0; i < inputs.size() && i < samples.size(); ++i)
      for (size_t axis = 0; axis < rank_of(inputs[i]); ++axis)
        if (std::ssize(*inputs[i].shape) == samples[i].size())
          bind(inputs[i], axis, samples[i][static_cast<int>(axis)]);
    const ModeScope inference(Mode::eval);
    Graph graph;
    for (const Type& type : net->input_types(bound))
      graph.inputs.push_back(input(type, static_cast<int>(graph.inputs.size())));
    graph.outputs = (*net)(graph.inputs);
    return graph;
  };
  return subject;
}

void refuse(bool given, const char* flag, const char* whom, const std::string& model) {
  if (given) throw Error(ErrorKind::usage, "{} is for {}. Got {}.", flag, whom, model);
}

ExportSubject subject_of(const OnnxOutput& output) {
  const bool is_onnx = onnx::is_model_file(output.model);
  refuse(!is_onnx && !output.dims.empty(), "--dim", "ONNX files", output.model);
  if (!is_onnx && models::is_model(output.model)) return published(output);
  refuse(output.dtype.has_value(), "--dtype with --to onnx", "published models", output.model);
  if (!is_onnx) return trained(output);
  refuse(output.context > 0, "--context", "models of tokens; ONNX files take --dim", output.model);
  return imported(output);
}
}  // namespace

OnnxWritten write_onnx(const OnnxOutput& output) {
  const ExportSubject subject = subject_of(output);
  if (output.context > 0 && subject.context == 0)
    throw Error(ErrorKind::usage, "--context is for models of tokens. {} reads {}.", output.model,
                subject.inputs.front());
  OnnxWritten written;
  onnx::BuildGraph build = subject.build;
  if (const auto& scheme = output.scheme ? output.scheme : subject.learned) {
    const auto int8 = std::make_shared<quantization::Int8>(
        quantization::layers_of(subject.build(output.batch.value_or(1))), *scheme);
    build = [&subject, int8](int64_t batch) { return (*int8)(subject.build(batch)); };
    written.quantized = int8->quantized_layers();
    written.quantized_bytes = int8->bytes();
    written.bytes_before = int8->bytes_before();
  }
  const onnx::Exported exported = onnx::export_model(
      build, {.inputs = subject.inputs, .outputs = subject.outputs, .batch = output.batch});
  warn_of_non_finite(output.model, io::bytes_of(io::by_name(subject.module->variables())));
  onnx::write(exported.model, output.path);
  written.fixed = exported.fixed;
  for (const onnx::Initializer& each : exported.model.graph.initializers) {
    ++written.tensors;
    written.bytes += each.value.type().bytes();
  }
  if (output.context == 0) written.context = subject.context;
  return written;
}

void remark_limits(const OnnxWritten& written) {
  if (!written.fixed.empty())
    remark("note",
           fmt::format("the file takes a batch of 1 alone: {}. Hint: --batch N.", written.fixed));
  if (written.context > 0)
    remark("note", fmt::format("the file takes sequences of {} tokens. Hint: --context N.",
                               written.context));
}

quantization::Layers layers_of(const OnnxOutput& output) {
  const ExportSubject subject = subject_of(output);
  return quantization::layers_of(subject.build(output.batch.value_or(1)));
}

}  // namespace weft::cli
