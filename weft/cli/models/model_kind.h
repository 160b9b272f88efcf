// A ModelKind is what verbs do with models of one format (weft/train/task/model_format.h), which
// MODEL names on a command line. Each kind has a file in kinds/, which implements its functions. A
// new kind needs such a file, and its name here.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/cli/recipes/recipe_flags.h"
#include "weft/train/experiment.h"
#include "weft/train/task/model_format.h"

namespace weft::cli {

struct ArrayModel;
struct ArrayModelOptions;
struct ExportSubject;
class Inference;
struct InferenceOptions;
struct ListedModel;
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
  const train::ModelFormat& format;
  bool has_symbolic_extents = false;  // which --dim binds, instead of --context
  bool is_compiled = false;           // its plans are made, for one batch and context
  // Returns the tensors of its files for `weft inspect`, with their zeros counted if `zeros`.
  ListedModel (*tensors)(const std::string& name, bool zeros) = nullptr;
  // Returns the folder or file of weights that `weft finetune` begins with. Throws Error(usage) for
  // weights that are not tuned.
  std::string (*tuned)(const std::string& name) = nullptr;
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
};

extern const ModelKind onnx_kind, published_kind, compiled_kind, run_kind;
inline constexpr std::array model_kinds = {&onnx_kind, &published_kind, &compiled_kind, &run_kind};

// Returns the kind of `name`, which train::format_of() tells. Throws Error(usage) for the name of
// an ONNX file that does not exist.
const ModelKind& kind_of(const std::string& name);
// Returns the kind of `name` unless it is a compiled model; throws Error(usage), which says that
// such a model `is_not` ("quantized"), then.
const ModelKind& open_kind_of(const std::string& name, std::string_view is_not);

}  // namespace weft::cli
