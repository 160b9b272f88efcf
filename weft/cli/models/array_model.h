// Loads models that map arrays to arrays, for `weft run`: ONNX files, runs and checkpoints, and
// published models.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/cli/recipes/recipe_flags.h"
#include "weft/models/model.h"
#include "weft/onnx/file/model.h"
#include "weft/onnx/net/model_net.h"
#include "weft/tensor/tensor.h"
#include "weft/train/recipe/recipe.h"

namespace weft::cli {

// Returns what the samples and the logits of a model are called where it is exchanged: as its ONNX
// file says, else "input_ids", "images" or "features", and "logits".
onnx::Ends ends_of(const Model& model, InputKind kind);

struct ArrayModel {
  std::string name;  // as the user gave it
  std::vector<onnx::ValueInfo> inputs;
  std::vector<std::string> outputs = {};
  // Throws Error(usage) for arrays of other types than `inputs` say, before
  // their elements are read.
  std::function<void(std::span<const Type>)> check = {};
  // Returns the outputs, which are valid as those of CompiledStep::run() are. Throws as check()
  // does and Error(data) for ids outside of the vocabulary.
  std::function<std::vector<Tensor>(std::span<const Tensor>)> run = {};
  // Returns the types of the outputs for these inputs: plans them, and computes nothing.
  std::function<std::vector<Type>(std::span<const Tensor>)> output_types = {};
  // `pictures` says how pictures become rows of the input; absent: no picture does.
  std::optional<train::Recipe> pictures = {};
  bool gives_logits = false;                  // of classes: a run's, trained to classify
  std::vector<std::string> class_names = {};  // empty: classes have numbers
};

// `flags` set train.device; for an ONNX file data.transforms, data.mean, data.std and data.dataset,
// too, and for a run or checkpoint any key of its recipe. `given` are the names of arrays that will
// be given: in place of defaults that an ONNX file has for its inputs, too. Throws Error(usage) for
// other flags, and as loading each kind of model does.
ArrayModel load_array_model(const std::string& name, const RecipeFlags& flags,
                            std::span<const std::string> given = {});

}  // namespace weft::cli
