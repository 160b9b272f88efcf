// Steps: the compiled steps of a run. They share one arena; only one of them runs at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/optim/gradients.h"
#include "weft/tensor/compile.h"
#include "weft/train/experiment.h"
#include "weft/train/metric.h"

namespace weft::train {

// Of one update, from 1.
struct StepNorms {
  int64_t step = 0;
  double loss = 0, grad_norm = 0;
};
inline constexpr int64_t kept_norms = 50;  // updates

struct StepsOptions {
  std::vector<std::string> skip = {};  // as in CompileOptions
  // Instead of what the recipe says; then without its limit of memory.
  std::optional<Precision> products = {};
  std::optional<double> until = {};  // as in CompileOptions
};

class Steps {
 public:
  // `device`: as in CompileOptions; "null" plans and runs nothing. The experiment must outlive
  // this.
  Steps(const Experiment& experiment, const std::string& device, const StepsOptions& options = {});

  // All of them, compiled: "train" and "evaluate"; with several passes per update "accumulate",
  // "update" and "evaluate".
  std::vector<std::pair<std::string, Executable*>> executables();
  // The same; null where one is too large for its limit, of which executables() throws.
  std::vector<std::pair<std::string, Executable*>> executables_that_fit();

  // One pass: a micro-batch. Where the update takes several, gradients add up until update().
  void pass(const Tensor& inputs, const Tensor& labels);
  // Updates the parameters from the passes since the last one (nothing to do where it takes one).
  void update();
  // Both: a whole batch, in as many passes as the update takes.
  void run(const Tensor& inputs, const Tensor& labels);
  // The runs that make up such a batch's update, in order, for who wants to run them otherwise.
  std::vector<std::pair<Executable*, std::vector<Tensor>>> runs(const Tensor& inputs,
                                                                const Tensor& labels);
  // Of the last update, until the next pass; reads from the device.
  double loss() const;
  double grad_norm() const;  // L2, before clipping
  // The first update whose loss or gradient was not finite, counting from 1; 0: none. Reads from
  // the device.
  int64_t first_non_finite() const;
  // Of the last updates up to that one, ascending. Reads from the device.
  std::vector<StepNorms> norms() const;

  EvalSums evaluate(const Tensor& inputs, const Tensor& labels);

  // Sums of gradients, where the update takes several passes.
  std::vector<Variable> accumulators() const;
  int64_t accumulator_bytes() const;
  int64_t kept_accumulator_bytes() const;  // those that stay in memory

 private:
  // `largest`: the error of the step that takes most of those that do not fit.
  std::vector<std::pair<std::string, Executable*>> prepare(std::optional<StepTooLarge>& largest);
  Tensor logits(const Tensor& inputs) const;
  // The gradients of what a pass adds to the update: scaled where the loss is.
  std::vector<Tensor> gradients_of(const Tensor& loss) const;
  Tensor mean_loss(const Tensor& inputs, const Tensor& labels) const;
  std::vector<Tensor> train_step(const Tensor& inputs, const Tensor& labels);
  std::vector<Tensor> accumulate_step(const Tensor& inputs, const Tensor& labels);
  std::vector<Tensor> update_step();
  std::vector<Tensor> eval_step(const Tensor& inputs, const Tensor& labels) const;
  // The update by these gradients; yields {loss, norm}.
  std::vector<Tensor> finish(const Tensor& loss, std::vector<Tensor> gradients);
  void keep(std::span<const Tensor> results);
  // Keeps the loss and the norm of an update while none was not finite.
  void note(const Tensor& step, const Tensor& loss, const Tensor& norm) const;
  // `elsewhere`: bytes of state that live besides those that the step names.
  CompileOptions options(const std::string& device, Mode mode, int64_t elsewhere,
                         const StepsOptions& options) const;

  const Experiment& experiment_;
  std::vector<Variable> parameters_;
  std::unique_ptr<optim::Accumulator> accumulator_;  // null where one pass is the update
  DType loss_type_;            // of sums of losses: float64 where parameters are
  Variable loss_sum_, count_;  // of the passes so far
  Variable first_non_finite_;
  // Rings of the last updates: their numbers, [kept_norms] (0: none yet), and [kept_norms, 2], the
  // loss and the norm of each.
  Variable noted_steps_, norms_;
  CompiledStep pass_, update_, evaluate_;
  Tensor loss_, grad_norm_;
};

}  // namespace weft::train
