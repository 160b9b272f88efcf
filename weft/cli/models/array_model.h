// An ArrayModel maps arrays to arrays, for `weft run`. ONNX files, runs, checkpoints and published
// models become ArrayModels (model_kind.h).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/artifact/artifact.h"
#include "weft/cli/recipes/recipe_flags.h"
#include "weft/models/model.h"
#include "weft/onnx/file/model.h"
#include "weft/onnx/net/model_net.h"
#include "weft/tensor/compile.h"
#include "weft/train/recipe/recipe.h"

namespace weft::cli {

struct ArrayModelOptions {
  // These set train.device; for an ONNX file data.transforms, data.mean, data.std and data.dataset,
  // too, and for a run or checkpoint any key of its recipe.
  RecipeFlags flags = {};
  // Names of arrays that will be given: in place of defaults that an ONNX file has for its inputs.
  std::vector<std::string> given = {};
  artifact::ReadOptions compiled = {};  // for a compiled model
};

// Returns the names of a model's input and output in an exported file: the names in the ONNX file
// that the model is from, else "input_ids", "images" or "features", and "logits".
onnx::Ends ends_of(const Model& model, InputKind kind);

struct ArrayModel {
  std::string name;  // as the user gave it
  std::vector<onnx::ValueInfo> inputs;
  std::vector<std::string> outputs = {};
  // Throws Error(usage) for arrays of other types than `inputs` say, before
  // their elements are read.
  std::function<void(std::span<const Type>)> check = {};
  // Returns the outputs, which are valid as long as the outputs of CompiledStep::run(). Throws as
  // check() does and Error(data) for ids outside of the vocabulary.
  std::function<std::vector<Tensor>(std::span<const Tensor>)> run = {};
  // Returns the types of the outputs for these inputs: plans them, and computes nothing.
  std::function<std::vector<Type>(std::span<const Tensor>)> output_types = {};
  // Returns the compiled step for inputs of these types, without running it.
  std::function<Executable&(std::span<const Type>)> executable = {};
  std::string device = {};             // that runs it
  std::vector<Variable> weights = {};  // the model's parameters and buffers
  int64_t vocabulary = 0;              // ids that the input has, from 0 on; 0: it has no ids
  // `pictures` says how pictures become rows of the input; absent: no picture does.
  std::optional<train::Recipe> pictures = {};
  bool says_normalization = true;             // of pictures; false: only flags say it
  bool gives_logits = false;                  // of classes: a run's, trained to classify
  std::vector<std::string> class_names = {};  // empty: classes have numbers
};

// A ForwardPass is the forward pass of a model of weft's, on rows of one shape.
struct ForwardPass {
  std::shared_ptr<const void> owner;  // of the model
  const Model* model = nullptr;
  TaskShape shape;
  DType dtype = DType::f32;  // of floating point inputs, as the weights have it
  StepOptions options = {};
};
ArrayModel forward_model(const std::string& name, const ForwardPass& pass);

// Throws Error(data) for ids that a model has no embedding of.
void check_tokens(const std::string& model, const Tensor& ids, int64_t vocabulary);

// Returns the types of an executable's results.
std::vector<Type> output_types_of(const Executable& executable);

// Returns a recipe of defaults with the flags, which may set the keys `allowed` only. Throws
// Error(usage) for other keys.
train::Recipe settings_of(const std::string& name, const RecipeFlags& flags,
                          std::span<const std::string_view> allowed);

}  // namespace weft::cli
