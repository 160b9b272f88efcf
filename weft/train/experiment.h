// An Experiment is the parts of a run, built from its recipe: task, data, vocabulary, model,
// optimizer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/data/loader.h"
#include "weft/io/model_folder.h"
#include "weft/ir/graph.h"
#include "weft/ir/mesh.h"
#include "weft/ir/offload.h"
#include "weft/models/model.h"
#include "weft/optim/optimizer.h"
#include "weft/planner/question.h"
#include "weft/train/methods/method.h"
#include "weft/train/plan/precision.h"
#include "weft/train/recipe/recipe.h"
#include "weft/train/task/dataset.h"
#include "weft/train/task/loss.h"
#include "weft/train/task/metric.h"

namespace weft::train {

struct ExperimentOptions {
  // Without initialization the weights stay zero and their pages are never touched: for plans, and
  // where a file provides the weights.
  bool initialize = true;
  bool with_data = true;                           // as in DataOptions
  std::optional<data::TextCodec> vocabulary = {};  // as in DataOptions
  bool evaluate_only = false;                      // as in DataOptions; nothing trains
  // `checkpoint` is the checkpoint that the run continues from; load_model() reads its weights
  // later. A published model is built from the checkpoint's config.json, and if the model's own
  // tokenizer is gone, with the tokenizer that the checkpoint keeps.
  std::string checkpoint = {};
  // `mesh` has the ranks that the batches are shared out to; null: one.
  std::shared_ptr<const Mesh> mesh = nullptr;
};

struct Experiment {
  Recipe recipe;
  const DataEntry* dataset = nullptr;  // an entry of its registry
  const LossEntry* loss = nullptr;
  // `metrics` are the metrics that evaluations report: the first as score_name(), the others by
  // their names.
  std::vector<const MetricEntry*> metrics = {};
  Task task = Task::classification;
  TaskShape shape;                            // shape of one sample
  std::optional<data::TextCodec> vocabulary;  // vocabulary of tokens that spell text
  std::optional<data::Labels> labels = {};    // of texts with labels
  std::vector<std::string> class_names = {};  // as in TaskData
  // Both are null without data; `validation` is null where a text holds nothing out, and `train`
  // where it is only evaluated.
  std::shared_ptr<const data::Source> train, validation;
  std::unique_ptr<Model> model = {};
  // Null where nothing trains, and without data: a schedule needs its length.
  std::unique_ptr<optim::Optimizer> optimizer = {};
  Methods methods = {};  // in the order in which they act
  PrecisionKind precision;

  std::shared_ptr<const Mesh> mesh = nullptr;  // as in ExperimentOptions
  // Samples: of an update, and of each rank in a pass and in a step of an evaluation.
  int64_t global_batch = 0, micro_batch = 0, eval_batch = 0;
  int64_t rows = 0;  // samples of a step: micro_batch, or eval_batch where it is only evaluated
  int64_t steps_per_epoch = 0, total_steps = 0;  // updates; 0 where nothing trains
  std::vector<double> target_units = {};         // as in TaskData
  // `checkpoint_files` are the files that checkpoints keep of the data, of a tokenizer, of a
  // published model and of an ONNX file, by which they are used where those are not there.
  std::vector<io::FolderFile> checkpoint_files = {};
  // Returns the type of the labels of `rows` samples.
  Type label_type(int64_t rows) const;
  // Returns the name under which evaluations report the first of `metrics`, the score.
  std::string_view score_name() const { return task == Task::regression ? "r2" : "accuracy"; }
  // Returns the unit that rates count: "tok", "img" or "row".
  std::string_view unit() const;
  // Returns the units that a sample counts for in rates: its tokens, or 1.
  int64_t units_per_sample() const { return shape.kind == InputKind::tokens ? shape.input[0] : 1; }
  int64_t passes_per_step() const { return global_batch / (micro_batch * ranks()); }
  // Returns the number of ranks that share out a batch.
  int64_t ranks() const;
  // Returns the layout of a variable of which ranks keep parts from a level of ZeRO on
  // (parallel.zero); it is whole below that level, and if it is small or no axis can be cut.
  Layout part(const Variable& variable, int64_t level) const;
  // Return how this rank's part of the training and of the validation data is loaded.
  data::LoaderOptions training() const, evaluation() const;
  // Returns the hash, in hexadecimal digits, of the training and validation data that came from
  // files; "" if the training data did not. Each call computes it again.
  std::string data_fingerprint() const;
  // Returns the variables that an update trains: the model's parameters that are not frozen, and
  // those of methods.
  std::vector<Variable> trained() const;
  // Returns the state that an update needs besides the model, which checkpoints save: that of the
  // optimizer and of the methods.
  std::vector<Variable> update_state() const;
  // Returns the variables with which the model is used in the place of some of its parameters.
  std::vector<StandIn> stand_ins() const;
  // Returns the state beside the weights with which the model is used: update_state(), with the
  // parameters that train in the place of their stand-ins.
  std::vector<Variable> state_beside_weights() const;
  // Returns the variables that methods read and never write, such as a teacher's.
  std::vector<Variable> read_only() const;
  // Returns the bytes of the samples, of the batches of a training and an evaluation loader, and of
  // the files that checkpoints keep; 0 without data.
  size_t data_bytes() const;
  uint64_t checkpoint_file_bytes() const;  // bytes of the files that checkpoints keep
  // Returns the bytes, at most, of the copy from which this rank writes checkpoints beside training
  // where the recipe, which may differ from this one's in that, has it do so; else 0.
  size_t snapshot_bytes(const Recipe& with) const;
  // Return the bytes of parameters and buffers, of the parameters that train, and of the state of
  // an update.
  int64_t model_bytes() const, trained_bytes() const, optimizer_bytes() const;
  // Returns the state of the run by what it is for: weights, optimizer, and the bills of methods.
  std::vector<StateBill> bills() const;
};

// Leaves each rank its part of the state that parallel.zero shares out, once it has been loaded.
void share_out(Experiment& experiment);
// Does so with the sums of the gradients of these parameters.
void share_out_sums(const Experiment& experiment, std::span<const Variable> parameters,
                    std::span<const Variable> sums);

// While a WholeScope lives, this rank has the whole of each parameter that ranks have parts of, as
// a checkpoint has them. Steps that were compiled outside of it must not run.
class WholeScope {
 public:
  WholeScope(Experiment& experiment, const std::string& checkpoint);
  ~WholeScope();
  WholeScope(const WholeScope&) = delete;
  WholeScope& operator=(const WholeScope&) = delete;

 private:
  void swap();

  struct Part {
    Variable variable;
    Layout layout;
    std::vector<PartRange> ranges;
    std::shared_ptr<Storage> storage;
  };
  std::vector<Part> parts_;
};

// Captures the forward pass of a model in evaluation mode, on a batch of this type.
Graph forward_graph(const Model& model, const Type& batch);
// Does so for the model of an experiment, on a batch of `rows`.
Graph graph_of(const Experiment& experiment);

Offload offload_of(const Recipe& recipe);  // which state the recipe moves to files
// Returns variables as the planner sees them.
StateBlocks blocks_of(const std::vector<Variable>& variables);
StateBlocks joined(StateBlocks first, const StateBlocks& second);

// Checks the recipe and builds the experiment. Throws Error(usage) for the recipe, Error(data) for
// the data.
Experiment make_experiment(const Recipe& recipe, const ExperimentOptions& options = {});

}  // namespace weft::train
