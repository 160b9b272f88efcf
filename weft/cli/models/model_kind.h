// A ModelKind is one kind of thing that MODEL may be on a command line. Each kind has a file in
// kinds/, which implements the functions of the kind. A new kind needs such a file, and a row in
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
struct ArrayModelOptions;
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

// A null function means that models of the kind do not have that use.
struct ModelKind {
  std::string_view text;                          // "an ONNX file", for messages
  bool (*is)(const std::string& name) = nullptr;  // whether `name` is one; null: if no other kind
  bool has_symbolic_extents = false;              // which --dim binds, instead of --context
  bool is_compiled = false;                       // its plans are made, for one batch and context
  // Returns whether it is a language model, which text is generated with.
  bool (*generates)(const std::string& name) = nullptr;
  // Returns the model as a function of arrays. Throws Error(usage) for flags that the kind does not
  // take.
  ArrayModel (*arrays)(const std::string& name, const ArrayModelOptions& options) = nullptr;
  // Returns the steps of its inference (make_inference).
  std::unique_ptr<Inference> (*inference)(const InferenceOptions& options, bool weights) = nullptr;
  // Returns the model as write_onnx() exports it. Throws Error(usage) for options that are for
  // other kinds.
  ExportSubject (*subject)(const OnnxOutput& output) = nullptr;
  // Builds the experiment that evaluates the model on the data that the flags name, or on its own
  // data.
  train::Experiment (*evaluation)(const std::string& name, const RecipeFlags& flags,
                                  const EvaluationWords& words) = nullptr;
  TextModel (*text_model)(const std::string& name, const TextModelOptions& options) = nullptr;
  // Returns the weight files that other programs wrote, whose weights may not be finite.
  std::vector<std::string> (*foreign_weights)(const std::string& name) = nullptr;
};

extern const ModelKind onnx_kind, published_kind, compiled_kind, run_kind;

// Returns the kind of `name`. A name of no other kind is a run; opening it fails if that run does
// not exist. Throws Error(usage) for the name of an ONNX file that does not exist.
const ModelKind& kind_of(const std::string& name);
// Returns the kind of `name` unless it is a compiled model; throws Error(usage), which says that
// such a model `is_not` ("quantized"), then.
const ModelKind& open_kind_of(const std::string& name, std::string_view is_not);

}  // namespace weft::cli
