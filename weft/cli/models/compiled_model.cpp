#include "weft/cli/models/compiled_model.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/artifact/node_json.h"
#include "weft/base/error.h"
#include "weft/cli/models/array_model.h"
#include "weft/cli/models/model_kind.h"
#include "weft/cli/models/text_model.h"
#include "weft/data/tokenizer/tokenizer.h"
#include "weft/device/registry.h"
#include "weft/io/files.h"
#include "weft/io/json.h"
#include "weft/io/model_folder.h"
#include "weft/onnx/net/net.h"
#include "weft/runtime/executable.h"

namespace weft::cli {
namespace {
using artifact::Artifact;
using nlohmann::json;

artifact::Program program_of(std::string name, Executable& executable) {
  executable.settle_variables();  // values derived from weights are computed, too
  return {.name = std::move(name), .bound = executable.bound()};
}

// ---- language models

// Returns the files of a model by which text becomes tokens, and tokens text.
std::vector<io::FolderFile> text_files(const TextModel& model) {
  if (const io::Vocabulary* vocabulary = model.codec.vocabulary())
    return {{"vocabulary.json", vocabulary->to_json()}};
  constexpr size_t most_bytes = size_t{64} << 20;
  std::vector<io::FolderFile> files{{"tokenizer.json", data::Tokenizer::json_of(model.folder)}};
  constexpr std::string_view others[] = {"tokenizer_config.json", "special_tokens_map.json",
                                         "chat_template.jinja", "generation_config.json",
                                         "config.json"};
  std::ranges::move(io::files_of_model(model.folder, others, most_bytes),
                    std::back_inserter(files));
  return files;
}

Artifact compiled_text(const CompileOptions& options) {
  const TextModel model =
      load_text_model(options.model, {.flags = options.flags, .dtype = options.dtype});
  const int64_t context =
      options.context > 0 ? options.context : std::min(model.context, usual_context);
  library(model.device).compiler().collect_code();
  const auto tokens =
      model.sequences({.batch = options.batch, .context = context}, options.activations);
  tokens->begin();
  const json about{{"batch", options.batch},
                   {"context", context},
                   {"vocabulary", model.vocabulary},
                   {"slides", model.slides},
                   {"is_published", model.is_published}};
  Artifact artifact{.kind = "decoder",
                    .about = io::json_text(about),
                    .device = model.device,
                    .weights = model.model().variables(),
                    .files = text_files(model)};
  for (const int64_t length : tokens->lengths())
    artifact.programs.push_back(program_of(std::to_string(length), tokens->step(length)));
  return artifact;
}

// ---- nets

// Binds the symbolic extents of inputs.
std::vector<Type> types_of(const ArrayModel& model, const CompileOptions& options) {
  auto extents = options.extents;
  std::vector<Type> types;
  for (const onnx::ValueInfo& input : model.inputs) {
    if (!input.dtype || !input.shape)
      throw Error(ErrorKind::usage, "{}: the file does not say the type of its input {}.",
                  io::printable(model.name), io::printable(input.name));
    Type type{*input.dtype, {}};
    for (int axis = 0; axis < static_cast<int>(input.shape->size()); ++axis) {
      const onnx::Dim& dim = (*input.shape)[static_cast<size_t>(axis)];
      const std::string symbol = dim.extent < 0 ? onnx::symbol_of(input, axis) : "";
      if (types.empty() && axis == 0 && dim.extent < 0) extents.emplace(symbol, options.batch);
      const auto bound = extents.find(symbol);
      if (dim.extent < 0 && bound == extents.end())
        throw Error(ErrorKind::usage, "{}: its input {} has an extent '{}'. Hint: --dim {}=N.",
                    io::printable(model.name), io::printable(input.name), io::printable(symbol),
                    io::printable(symbol));
      type.shape.push_back(dim.extent < 0 ? bound->second : dim.extent);
    }
    types.push_back(type);
  }
  return types;
}

Artifact compiled_net(const CompileOptions& options, const ModelKind& kind) {
  if (options.context > 0 || options.dtype || !options.activations.empty())
    throw Error(ErrorKind::usage,
                "--context, --dtype and --activations are for language models. {} is {}.",
                io::printable(options.model), kind.format.text);
  const ArrayModel model = kind.arrays(options.model, {.flags = options.flags});
  const std::vector<Type> types = types_of(model, options);
  model.check(types);
  json about{{"outputs", model.outputs},
             {"vocabulary", model.vocabulary},
             {"gives_logits", model.gives_logits},
             {"class_names", model.class_names}};
  for (size_t i = 0; i < types.size(); ++i)
    about["inputs"].push_back(
        {{"name", model.inputs[i].name}, {"type", artifact::to_json(types[i])}});
  if (model.pictures) about["pictures"] = model.pictures->to_yaml();
  library(model.device).compiler().collect_code();
  Executable& executable = model.executable(types);
  return {.kind = "net",
          .about = io::json_text(about),
          .device = model.device,
          .programs = {program_of("forward", executable)},
          .weights = model.weights};
}
}  // namespace

std::vector<Option> compiled_options(artifact::ReadOptions& options) {
  return {{.flag = "--weights",
           .type = "FILE",
           .doc = "compiled models: take the weights from this safetensors file",
           .target = &options.weights},
          {.flag = "--trust",
           .doc = "compiled models: run machine code that this user did not sign",
           .target = &options.trust}};
}

void check_compiled_options(const std::string& model, const artifact::ReadOptions& options) {
  const ModelKind& kind = kind_of(model);
  if (kind.is_compiled || (options.weights.empty() && !options.trust)) return;
  throw Error(ErrorKind::usage, "{} is for compiled models. {} is {}.",
              options.trust ? "--trust" : "--weights", io::printable(model), kind.format.text);
}

Artifact compiled(const CompileOptions& options) {
  const ModelKind& kind = open_kind_of(options.model, "compiled again");
  if (kind.generates != nullptr && kind.generates(options.model)) return compiled_text(options);
  return compiled_net(options, kind);
}

}  // namespace weft::cli
