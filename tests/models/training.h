// Declares a compiled training step of a model of the zoo, on one batch: forward, backward and
// update.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "weft/ir/graph.h"
#include "weft/models/model.h"
#include "weft/optim/optimizer.h"
#include "weft/tensor/compile.h"

namespace weft::testing {

inline const std::vector<std::string> families{"mlp", "cnn", "lenet5", "resnet20", "gpt"};

class Training {
 public:
  // The model sizes are those of `weft bench`, but smaller for bert, llama and lstm; "perceptron"
  // is one linear layer, which has few kernels. `optimizer` is "sgd" (with momentum and
  // weight decay) or "adamw".
  Training(const std::string& model, const std::string& optimizer, int64_t batch,
           const StepOptions& options = {.device = "cpu"});
  Training(const Training&) = delete;

  std::span<const Tensor> step() { return compiled_.run(batch_); }
  Executable& executable();
  std::vector<Variable> parameters() const { return model_->parameters(); }
  Graph graph();  // as captured, before any pass

 private:
  std::vector<Tensor> loss_and_update(std::span<const Tensor> in);
  std::vector<Type> types() const;

  std::unique_ptr<Model> model_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::vector<Tensor> batch_;
  CompiledStep compiled_;
};

}  // namespace weft::testing
