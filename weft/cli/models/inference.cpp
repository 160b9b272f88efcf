#include "weft/cli/models/inference.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/base/numbers/quantity.h"
#include "weft/cli/models/model_kind.h"
#include "weft/cli/models/text_flags.h"
#include "weft/onnx/net/net.h"

namespace weft::cli {
namespace {
// Returns the first of the flags given that only published models take; null: none was given.
const char* published_flag(const InferenceFlags& own) {
  return own.context > 0            ? "--context"
         : !own.dtype.empty()       ? "--dtype"
         : !own.activations.empty() ? "--activations"
                                    : nullptr;
}
}  // namespace

onnx::Net::Extents extents_of(const std::vector<std::string>& dims) {
  onnx::Net::Extents extents;
  for (const std::string& dim : dims) {
    const size_t equals = dim.find('=');
    const auto extent =
        equals == std::string::npos ? std::nullopt : parse_count(dim.substr(equals + 1));
    if (equals == 0 || !extent || *extent < 1)
      throw Error(ErrorKind::usage,
                  "--dim binds an extent of at least 1 by name, as in batch=4. Got '{}'.", dim);
    if (!extents.emplace(dim.substr(0, equals), *extent).second)
      throw Error(ErrorKind::usage, "--dim binds {} twice.", dim.substr(0, equals));
  }
  return extents;
}

bool is_inference_model(const std::string& path) {
  return open_kind_of(path, "planned again").inference != nullptr;
}

std::vector<Option> model_options(InferenceFlags& flags) {
  return {{.flag = "--context",
           .type = "N",
           .doc = "published models: most tokens of a sequence (plan: as many as the model takes; "
                  "profile: 768)",
           .target = &flags.context,
           .range = {{1, 0x1p40}}},
          {.flag = "--dtype",
           .type = "TYPE",
           .doc = "published models: f32, bf16 or f16 (that of its files)",
           .target = &flags.dtype,
           .choices = {"f32", "bf16", "f16"}},
          activations_option(flags.activations),
          {.flag = "--dim",
           .type = "NAME=N",
           .doc = "ONNX files: bind a symbolic extent; --batch binds the first of the first input",
           .target = &flags.dims,
           .most = 64}};
}

InferenceOptions inference_options(const std::string& verb, const std::string& model,
                                   const RecipeFlags& flags, const InferenceFlags& own) {
  const bool is_onnx = kind_of(model).has_symbolic_extents;
  if (const char* flag = published_flag(own); is_onnx && flag != nullptr)
    throw Error(ErrorKind::usage, "{} is for published models. {} is an ONNX file. Hint: --dim.",
                flag, model);
  if (!is_onnx && !own.dims.empty())
    throw Error(ErrorKind::usage, "--dim is for ONNX files. {} is a published model.", model);
  for (const RecipeFlag& flag : flags)
    if (flag.path != keys::train::device && flag.path != keys::train::global_batch_size)
      throw Error(ErrorKind::usage,
                  "{0} is for recipes. {1} is a model. Hint: --model.pretrained {1} {2}s its "
                  "training.",
                  flag.flag, model, verb);
  train::Recipe recipe;
  recipe.set(keys::train::global_batch_size, "1", "weft " + verb);
  recipe.apply_environment();
  apply_flags(recipe, flags);
  InferenceOptions options{.folder = model,
                           .context = own.context,
                           .activations = own.activations,
                           .extents = extents_of(own.dims),
                           .device = recipe->train.device};
  const int64_t batch = recipe->train.global_batch_size;
  if (batch != 1 ||
      std::ranges::find(flags, keys::train::global_batch_size, &RecipeFlag::path) != flags.end())
    options.batch = batch;
  if (!own.dtype.empty()) options.dtype = parse_dtype(own.dtype);
  return options;
}

void refuse_model_flags(const InferenceFlags& own) {
  if (!own.dims.empty()) throw Error(ErrorKind::usage, "--dim is for ONNX files.");
  if (const char* flag = published_flag(own))
    throw Error(ErrorKind::usage, "{} is for published models, by their folder.", flag);
}

std::unique_ptr<Inference> make_inference(const InferenceOptions& options, bool weights) {
  return kind_of(options.folder).inference(options, weights);
}

}  // namespace weft::cli
