// Steps are the compiled steps of a run. They share one arena; only one of them runs at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/nn/layer.h"
#include "weft/optim/gradients.h"
#include "weft/planner/answer.h"
#include "weft/tensor/compile.h"
#include "weft/train/experiment.h"
#include "weft/train/run/draws.h"
#include "weft/train/task/metric.h"

namespace weft::train {

// StepNorms has the norms of one update, whose `step` is counted from 1.
struct StepNorms {
  int64_t step = 0;
  double loss = 0, grad_norm = 0;
};
inline constexpr int64_t noted_norms = 50;  // updates

// Returns the options that the recipe chooses. `device` is as in StepOptions; "null" plans and runs
// nothing. `recipe` may differ from the experiment's recipe in these options alone.
StepOptions step_options(const Experiment& experiment, const std::string& device);
StepOptions step_options(const Experiment& experiment, const std::string& device,
                         const Recipe& recipe);

class Steps {
 public:
  // Takes the options from the recipe. The experiment must outlive this.
  Steps(const Experiment& experiment, const std::string& device)
      : Steps(experiment, step_options(experiment, device)) {}
  // Takes the options as given; `mode` and `held` are set for each step.
  Steps(const Experiment& experiment, const StepOptions& options);

  // Compiles and returns all steps: "train" and "evaluate", or with several passes per update
  // "accumulate", "update" and "evaluate"; before the last the steps of methods.
  std::vector<std::pair<std::string, Executable*>> executables();
  // Compiles all steps and returns their plans, which live as long as this.
  std::vector<PlannedStep> planned();
  // Captures the same steps, for the planner.
  std::vector<CapturedStep> captured();

  // Runs the steps of methods that are due once `done` updates are done, before the next one.
  // Returns what they did.
  std::vector<MethodEvent> before_update(int64_t done);
  // Runs one pass over a micro-batch. Where the update takes several, gradients accumulate until
  // update().
  void pass(const Tensor& inputs, const Tensor& labels);
  // Updates the parameters from the passes since the last update (does nothing where it takes one
  // pass).
  void update();
  // Runs a whole batch: all passes of the update, and the update.
  void run(const Tensor& inputs, const Tensor& labels);
  // Returns the executions that make up a batch's update, in order, for callers that run them
  // themselves.
  std::vector<std::pair<Executable*, std::vector<Tensor>>> runs(const Tensor& inputs,
                                                                const Tensor& labels);
  // Return the loss and the norm of the last update, until the next pass; they read from the
  // device.
  double loss() const;
  double grad_norm() const;  // L2, before clipping
  // Returns the first update whose loss or gradient was not finite, counting from 1; 0: none. Reads
  // from the device.
  int64_t first_non_finite() const;
  // Returns the norms of the last updates up to that one, ascending. Reads from the device.
  std::vector<StepNorms> norms() const;

  EvalSums evaluate(const Tensor& inputs, const Tensor& labels);

  // Returns the accumulators of gradients, where the update takes several passes.
  std::vector<Variable> accumulators() const;

 private:
  // A Part is one of the steps. `beside` is state that exists besides its variables.
  struct Part {
    std::string name;
    CompiledStep& step;
    std::vector<Type> inputs = {};
    Mode mode = Mode::train;
    int64_t per_update = 1;
    StateBlocks beside = {};
  };
  // An OwnStep is a step of a method's.
  struct OwnStep {
    const Method* method;
    MethodStep what;
    CompiledStep step;
  };
  std::vector<Part> parts();
  std::vector<Type> batch_types(int64_t rows) const;  // as loaders return them
  void learn_draws();  // of the whole batch, before a pass is captured
  StateBlocks beside_pass() const, beside_evaluation() const;
  Tensor model_input(const Tensor& inputs) const;  // in the type of parameters
  Tensor logits(const Tensor& inputs) const;
  // Returns the gradients that a pass adds to the update, scaled where the loss is.
  std::vector<Tensor> gradients_of(const Tensor& total) const;
  // Returns the results of a forward pass as methods transform it.
  std::vector<Tensor> applied(std::vector<Tensor> results) const;
  // Returns the paths of all layers whose results methods need.
  std::vector<std::string> layers() const;
  // Adds the methods' terms to the total on labels. `outputs` has the results of layers().
  Tensor with_terms(Tensor total, ForwardPass pass, const nn::OutputScope& outputs) const;
  Tensor total_loss(const Tensor& inputs, const Tensor& labels) const;
  std::vector<Tensor> train_step(const Tensor& inputs, const Tensor& labels);
  std::vector<Tensor> accumulate_step(const Tensor& inputs, const Tensor& labels);
  std::vector<Tensor> update_step();
  std::vector<Tensor> eval_step(const Tensor& inputs, const Tensor& labels) const;
  // Applies the update by these gradients; returns {loss, norm}.
  std::vector<Tensor> finish(const Tensor& loss, std::vector<Tensor> gradients);
  void note(std::span<const Tensor> results);
  // Writes row [step, loss, norm] of `norms_` until the first non-finite value.
  void note(const Tensor& step, const Tensor& loss, const Tensor& norm) const;
  const Experiment& experiment_;
  std::vector<Variable> parameters_;
  std::unique_ptr<optim::Accumulator> accumulator_;  // null where one pass is the update
  DType loss_type_;            // type of sums of losses: float64 where parameters are
  Variable loss_sum_, count_;  // sums over the passes so far
  PassDraws draws_;
  Variable first_non_finite_;
  // These are rings of the last updates: their numbers, [noted_norms] (0: none yet), and
  // [noted_norms, 2], the loss and the norm of each.
  Variable noted_steps_, norms_;
  CompiledStep pass_, update_;
  std::vector<OwnStep> own_;
  CompiledStep evaluate_;
  Tensor loss_, grad_norm_;
  Tensor part_inputs_, part_labels_;  // views of the rows of a pass
};

}  // namespace weft::train
