#include "weft/cli/models/onnx_output.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/cli/models/model_kind.h"
#include "weft/cli/models/weight_output.h"
#include "weft/cli/show/terminal.h"
#include "weft/onnx/export/export.h"
#include "weft/tensor/compile.h"

namespace weft::cli {
namespace {
constexpr int64_t usual_context = 512;  // tokens
}  // namespace

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

void refuse_flag(bool given, const char* flag, const char* whom, const std::string& model) {
  if (given) throw Error(ErrorKind::usage, "{} is for {}. Got {}.", flag, whom, model);
}

OnnxWritten write_onnx(const OnnxOutput& output) {
  const ExportSubject subject = kind_of(output.model).subject(output);
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
  const ExportSubject subject = kind_of(output.model).subject(output);
  return quantization::layers_of(subject.build(output.batch.value_or(1)));
}

}  // namespace weft::cli
