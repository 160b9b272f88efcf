// A ModelKind is one kind of thing that MODEL may be on a command line. Each has a file of its own
// in kinds/, which says what its models become; a new kind is such a file, and a row in
// model_kind.cpp.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/cli/recipes/recipe_flags.h"
#include "weft/train/experiment.h"

namespace weft::cli {

struct ArrayModel;
struct ExportSubject;
class Inference;
struct InferenceOptions;
struct OnnxOutput;
struct TextModel;
struct TextModelOptions;

// EvaluationWords complete the message where no data are named: "evaluating FILE needs data. Hint:
// ...".
struct EvaluationWords {
  std::string_view doing = "evaluating", also = "";
};

// A function that is null is what models of the kind are not used as.
struct ModelKind {
  std::string_view text;                // "an ONNX file", for messages
  bool (*is)(const std::string& name);  // whether `name` is one
  bool has_symbolic_extents = false;    // which --dim binds, instead of --context
  // Returns the model as a function of arrays. `flags` set train.device; for an ONNX file
  // data.transforms, data.mean, data.std and data.dataset, too, and for a run or checkpoint any key
  // of its recipe. `given` are the names of arrays that will be given: in place of defaults that an
  // ONNX file has for its inputs, too. Throws Error(usage) for other flags.
  ArrayModel (*arrays)(const std::string& name, const RecipeFlags& flags,
                       std::span<const std::string> given) = nullptr;
  // Returns the steps of its inference (make_inference).
  std::unique_ptr<Inference> (*inference)(const InferenceOptions& options, bool weights) = nullptr;
  // Returns the model as write_onnx() exports it. Throws Error(usage) for options that are for
  // other kinds.
  ExportSubject (*subject)(const OnnxOutput& output) = nullptr;
  // Builds the experiment that evaluates it on the data that the flags name, or its own.
  train::Experiment (*evaluation)(const std::string& name, const RecipeFlags& flags,
                                  const EvaluationWords& words) = nullptr;
  TextModel (*text_model)(const std::string& name, const TextModelOptions& options) = nullptr;
  // Returns the files whose weights were not weft's to write, and may not be finite.
  std::vector<std::string> (*foreign_weights)(const std::string& name) = nullptr;
};

extern const ModelKind onnx_kind, published_kind, run_kind;

// Returns what `name` is: a run where it is nothing else, which says so when it is opened. Throws
// Error(usage) for an ONNX file that is not there.
const ModelKind& kind_of(const std::string& name);

}  // namespace weft::cli
