// Builds a published model with the steps that its inference takes, for `weft plan MODEL`, which
// plans them, and `weft profile MODEL`, which times them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/dtype.h"
#include "weft/cli/recipe_flags.h"
#include "weft/models/pretrained.h"
#include "weft/tensor/compile.h"

namespace weft::cli {

struct InferenceOptions {
  std::string folder;               // folder of the model, or a GGUF file
  std::optional<DType> dtype = {};  // type of weights and activations; absent: the model's
  int64_t batch = 1;                // sequences
  int64_t context = 0;              // most tokens of each; 0: as many as the model takes
  std::string device = "auto";      // as train.device; a GPU of the catalogue need not be here
};

// Returns the options of `weft VERB MODEL`: `flags` may set the batch and the device; `dtype` is ""
// for that of the model. Throws Error(usage) for flags of recipes.
InferenceOptions inference_options(const std::string& verb, const std::string& model,
                                   const RecipeFlags& flags, const std::string& dtype,
                                   int64_t context);
// Throws Error(usage) where flags of published models are given beside something else.
void refuse_model_flags(const std::string& dtype, int64_t context);

// InferenceStep describes a step: a decoder's prefill of a prompt or decoding of one token, or an
// encoder's forward pass.
struct InferenceStep {
  std::string key;     // in JSON: "prefill", "decode", "forward"
  std::string text;    // "prompt of 512 tokens"
  int64_t tokens = 0;  // that all sequences read together
};

struct PlannedInference {
  int64_t weight_bytes = 0, cache_bytes = 0;
  DType activations = DType::f32;    // in products with weights in blocks, where there are any
  std::vector<PlanSummary> steps{};  // of each InferenceStep; the steps share their arena
};

class Inference {
 public:
  virtual ~Inference() = default;
  Inference(const Inference&) = delete;
  Inference& operator=(const Inference&) = delete;

  const models::Pretrained& model() const { return model_; }
  int64_t batch() const { return batch_; }      // sequences
  int64_t context() const { return context_; }  // most tokens of each
  const std::vector<InferenceStep>& steps() const { return steps_; }
  // Plans all steps without allocating weights, cache or arena.
  virtual PlannedInference plan() = 0;
  // Compiles a step; the weights must have been loaded.
  virtual Executable& executable(size_t step) = 0;
  virtual void run(size_t step) = 0;

 protected:
  Inference(models::Pretrained model, int64_t batch) : model_(std::move(model)), batch_(batch) {}

  models::Pretrained model_;
  int64_t batch_, context_ = 0;
  std::vector<InferenceStep> steps_;
};

// Builds a model; without `weights`, which plans do not need, no file of weights is read. Throws
// Error(usage) for a context that the model does not take, and as models::load_pretrained() does.
std::unique_ptr<Inference> make_inference(const InferenceOptions& options, bool weights);

}  // namespace weft::cli
