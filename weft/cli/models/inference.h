// Builds the model of a folder, GGUF or ONNX file, with the steps that its inference takes, for
// `weft plan MODEL`, which plans them, and `weft profile MODEL`, which times them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/base/numbers/dtype.h"
#include "weft/cli/command_line.h"
#include "weft/cli/recipes/recipe_flags.h"
#include "weft/nn/module.h"
#include "weft/tensor/compile.h"

namespace weft::cli {

// Returns whether inference can be planned for `path`: a published model or an ONNX file. Throws
// Error(usage) for the name of an ONNX file that does not exist.
bool is_inference_model(const std::string& path);

struct InferenceOptions {
  std::string folder;                 // folder of the model, or a GGUF or ONNX file
  std::optional<DType> dtype = {};    // type of weights and activations; absent: the model's
  std::optional<int64_t> batch = {};  // sequences; absent: one, or as many as an ONNX file takes
  int64_t context = 0;                // most tokens of each; 0: as many as the model takes
  std::string activations = {};       // as --activations; "": the usual type
  // Symbolic extents of an ONNX file by name; `batch` is the extent of its first input's first
  // axis.
  std::map<std::string, int64_t, std::less<>> extents = {};
  std::string device = "auto";  // as train.device; a GPU of the catalogue need not be here
};

// InferenceFlags are the flags of `weft plan` and `weft profile` that only models take.
struct InferenceFlags {
  std::string dtype = {};              // "": the model's type
  std::string activations = {};        // "": the usual type
  int64_t context = 0;                 // 0: not given
  std::vector<std::string> dims = {};  // NAME=N
};
std::vector<Option> model_options(InferenceFlags& flags);
// Returns the options of `weft VERB MODEL`: `flags` may set the batch and the device. Throws
// Error(usage) for flags of recipes, and for flags that this kind of model does not take.
InferenceOptions inference_options(const std::string& verb, const std::string& model,
                                   const RecipeFlags& flags, const InferenceFlags& own);
// Parses NAME=N, as --dim binds symbolic extents of an ONNX file. Throws Error(usage).
std::map<std::string, int64_t, std::less<>> extents_of(const std::vector<std::string>& dims);
// Throws Error(usage) where flags of models are given beside something else.
void refuse_model_flags(const InferenceFlags& own);

// InferenceStep describes a step: a decoder's prefill of a prompt or decoding of one token, or the
// forward pass of any other model.
struct InferenceStep {
  std::string key;    // in JSON: "prefill", "decode", "forward"
  std::string text;   // "prompt of 512 tokens"
  int64_t items = 0;  // units that rates count: tokens of all sequences together, or rows
};

struct PlannedInference {
  int64_t weight_bytes = 0, cache_bytes = 0;
  DType activations = DType::f32;    // in products with weights in blocks, if the model has any
  std::vector<PlanSummary> steps{};  // of each InferenceStep; the steps share their arena
};

class Inference {
 public:
  virtual ~Inference() = default;
  Inference(const Inference&) = delete;
  Inference& operator=(const Inference&) = delete;

  virtual const nn::Module& module() const = 0;
  virtual DType dtype() const = 0;  // of most weights
  // Returns a table's description of the inputs of a step: a title, and its text.
  virtual std::pair<std::string, std::string> inputs_text() const = 0;
  // Returns a hint at flags that reduce the memory, for messages: " Hint: --batch."; "" if no flag
  // does.
  virtual std::string_view less_text() const { return " Hint: --context, --batch, --dtype bf16."; }
  virtual std::string_view item() const { return "tok"; }  // the unit that rates count
  int64_t batch() const { return batch_; }                 // sequences, or rows
  int64_t context() const { return context_; }             // most tokens of each; 0: no sequences
  const std::vector<InferenceStep>& steps() const { return steps_; }
  // Plans all steps without allocating weights, cache or arena.
  virtual PlannedInference plan() = 0;
  // Compiles a step; the weights must have been loaded.
  virtual Executable& executable(size_t step) = 0;
  virtual void run(size_t step) = 0;

 protected:
  explicit Inference(int64_t batch) : batch_(batch) {}

  int64_t batch_, context_ = 0;
  std::vector<InferenceStep> steps_;
};

// Returns ids that neither repeat nor depend on a tokenizer: their values do not change times.
template <class Id>
std::vector<Id> some_ids(int64_t count, int64_t vocabulary) {
  std::vector<Id> ids;
  ids.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<Id>((i * i + 7 * i) % vocabulary));
  return ids;
}

// Builds a model; without `weights`, which plans do not need, no file of weights is read. Throws
// Error(usage) for a context that the model does not take, and as models::load_pretrained() does.
std::unique_ptr<Inference> make_inference(const InferenceOptions& options, bool weights);

}  // namespace weft::cli
