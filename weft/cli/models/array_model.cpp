#include "weft/cli/models/array_model.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "weft/base/error.h"
#include "weft/cli/models/model_kind.h"
#include "weft/io/files.h"
#include "weft/onnx/net/runner.h"
#include "weft/runtime/executable.h"

namespace weft::cli {
namespace {
using onnx::ValueInfo;

// A Forward is the forward pass of a model of weft's, compiled for each type of its input.
struct Forward {
  Forward(std::shared_ptr<const void> owner, const Model& model, DType type, StepOptions options)
      : owner(std::move(owner)),
        step(
            [&model, type](std::span<const Tensor> in) {
              const Tensor x = is_float(in[0].dtype()) ? cast(in[0], type) : in[0];
              return std::vector<Tensor>{model(x)};
            },
            with_eval(std::move(options))) {}

  static StepOptions with_eval(StepOptions options) {
    options.mode = Mode::eval;
    return options;
  }

  std::shared_ptr<const void> owner;  // of the model
  CompiledStep step;
};

// Returns the input of a model whose rows have this shape. Tokens of a sequence may be fewer.
ValueInfo input_of(const std::string& name, const TaskShape& shape) {
  const bool reads_tokens = shape.kind == InputKind::tokens;
  std::vector<onnx::Dim> dims{{-1, "batch"}};
  for (int64_t extent : shape.input) {
    if (reads_tokens)
      dims.push_back({-1, "tokens"});
    else
      dims.push_back({extent, ""});
  }
  return {.name = name,
          .dtype = reads_tokens ? DType::i64 : DType::f32,
          .shape = std::move(dims),
          .refused = {}};
}

}  // namespace

void check_tokens(const std::string& model, const Tensor& ids, int64_t vocabulary) {
  for (int64_t id : ids.to_vector<int64_t>())
    if (id < 0 || id >= vocabulary)
      throw Error(ErrorKind::data, "{}: input_ids are 0 to {}. Got {}.", model, vocabulary - 1, id);
}

std::vector<Type> output_types_of(const Executable& executable) {
  std::vector<Type> types;
  for (const Access& output : executable.plan().outputs) types.push_back(output.value.type());
  return types;
}

onnx::Ends ends_of(const Model& model, InputKind kind) {
  if (const std::optional<onnx::Ends> given = onnx::ends_of(model)) return *given;
  const char* const samples = kind == InputKind::tokens   ? "input_ids"
                              : kind == InputKind::images ? "images"
                                                          : "features";
  return {samples, "logits"};
}

ArrayModel forward_model(const std::string& name, const ForwardPass& pass) {
  const TaskShape& shape = pass.shape;
  const onnx::Ends ends = ends_of(*pass.model, shape.kind);
  const auto forward = std::make_shared<Forward>(pass.owner, *pass.model, pass.dtype, pass.options);
  ArrayModel model{.name = name,
                   .inputs = {input_of(ends.samples, shape)},
                   .outputs = {ends.logits},
                   .device = pass.options.device,
                   .weights = pass.model->variables()};
  const bool reads_tokens = shape.kind == InputKind::tokens;
  if (reads_tokens) model.vocabulary = shape.vocabulary > 0 ? shape.vocabulary : shape.classes;
  model.executable = [forward](std::span<const Type> types) -> Executable& {
    return forward->step.prepare(types);
  };
  model.check = [name = io::printable(name), inputs = model.inputs, reads_tokens,
                 context = shape.input[0]](std::span<const Type> types) {
    onnx::check_inputs(name, inputs, types);
    if (reads_tokens && types[0].shape[1] > context)
      throw Error(ErrorKind::usage, "{}: sequences have at most {} tokens. Got {}.", name, context,
                  types[0].shape[1]);
  };
  model.output_types = [check = model.check, forward](std::span<const Tensor> in) {
    const std::vector<Type> types = onnx::types_of(in);
    check(types);
    return output_types_of(forward->step.prepare(types));
  };
  model.run = [name = io::printable(name), check = model.check, vocabulary = model.vocabulary,
               forward](std::span<const Tensor> in) {
    check(onnx::types_of(in));
    if (vocabulary > 0) check_tokens(name, in[0], vocabulary);
    const std::span<const Tensor> results = forward->step.run(in);
    return std::vector<Tensor>(results.begin(), results.end());
  };
  return model;
}

// Returns a recipe of defaults with the flags, which may set the keys `allowed` only.
train::Recipe settings_of(const std::string& name, const RecipeFlags& flags,
                          std::span<const std::string_view> allowed) {
  for (const RecipeFlag& flag : flags)
    if (std::ranges::find(allowed, flag.path) == allowed.end())
      throw Error(ErrorKind::usage, "{} is for runs of weft's own. {} is {}.", flag.flag,
                  io::printable(name), kind_of(name).format.text);
  train::Recipe recipe;
  recipe.apply_environment();
  apply_flags(recipe, flags);
  return recipe;
}

}  // namespace weft::cli
