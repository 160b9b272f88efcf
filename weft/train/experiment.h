// Experiment: what a run is made of, built from its recipe: task, data, vocabulary, model,
// optimiser.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/ir/offload.h"
#include "weft/models/model.h"
#include "weft/optim/loss_scale.h"
#include "weft/optim/optimizer.h"
#include "weft/train/dataset.h"
#include "weft/train/loss.h"
#include "weft/train/metric.h"
#include "weft/train/precision.h"
#include "weft/train/recipe.h"

namespace weft::train {

struct ExperimentOptions {
  // Weights stay zero, so their memory is never touched: for plans, and where a file brings them.
  bool initialize = true;
  bool with_data = true;                          // as in DataOptions
  std::optional<io::Vocabulary> vocabulary = {};  // the same
};

struct Experiment {
  Recipe recipe;
  const DataEntry* dataset = nullptr;  // of its registry
  const LossEntry* loss = nullptr;
  // What evaluations report: the first as accuracy, the others by their names.
  std::vector<const MetricEntry*> metrics = {};
  Task task = Task::classification;
  TaskShape shape;                           // of one sample
  std::optional<io::Vocabulary> vocabulary;  // of tokens that spell text
  // Null without data, and the second where a text keeps nothing to evaluate on.
  std::shared_ptr<const data::Source> train, validation;
  std::unique_ptr<Model> model = {};
  std::unique_ptr<optim::Optimizer> optimizer =
      {};  // null without data: a schedule needs its length
  PrecisionKind precision;
  std::unique_ptr<optim::LossScale> loss_scale = {};  // null but for products in float16

  int64_t global_batch = 0, micro_batch = 0, eval_batch = 0;  // samples
  int64_t steps_per_epoch = 0, total_steps = 0;               // updates; 0 without data
  // What a sample counts for in rates: its tokens, or 1.
  int64_t units_per_sample() const { return shape.kind == InputKind::tokens ? shape.input[0] : 1; }
  int64_t passes_per_step() const { return global_batch / micro_batch; }
  // Hash of what was read from files to train and be evaluated on, in hexadecimal digits; "" where
  // nothing was. It is worked out anew in each call.
  std::string data_fingerprint() const;
  // What an update needs besides the model: the optimiser's state and the loss scale.
  std::vector<Variable> update_state() const;
  // Bytes of samples, and of the batches of a loader for training and another for evaluation; 0
  // without data.
  size_t data_bytes() const;
  // Of parameters and buffers, and of the update's state.
  int64_t model_bytes() const, optimizer_bytes() const;
  // What the recipe lets go to files, and what of the two stays in memory.
  Offload offload() const;
  int64_t kept_model_bytes() const, kept_optimizer_bytes() const;
};

// Of those that stay in memory.
int64_t kept_bytes(const std::vector<Variable>& variables, const Offload& offload);

// Checks the recipe first. Throws Error(usage) for the recipe, Error(data) for the data.
Experiment make_experiment(const Recipe& recipe, const ExperimentOptions& options = {});

}  // namespace weft::train
