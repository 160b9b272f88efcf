// A Method is a way of training beside the loss on labels and the optimizer: distillation, pruning,
// quantization-aware training, the loss scale of float16. A run has a list of methods. Its steps,
// plan, checkpoints and log walk that list; each method overrides the functions that it needs, and
// nothing else of weft knows its name (docs/adding-a-training-method.md).
//
// The functions that take and return tensors run while a step is captured, in this order:
//
//   total = L(model(inputs), labels), a sum over the labels that count
//   total = loss_term(total, pass), results = applied({total}), gradients of scaled(total)
//   unscaled(gradients), masked(gradient), clipping, forgives(finite), the optimizer,
//   after_update()
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/planner/question.h"
#include "weft/tensor/tensor.h"

namespace weft::quantization {
class Training;
}

namespace weft::train {

struct Experiment;
struct StepLine;
class Method;
using Methods = std::vector<std::unique_ptr<Method>>;

// ForwardPass is what a loss term is computed from.
struct ForwardPass {
  Tensor inputs;  // of the model, in the type of its parameters
  Tensor scores;  // the model's results
  Tensor counts;  // bool: the rows or positions whose label counts
  std::vector<Tensor> layers =
      {};  // results of Method::layers(); undefined: that layer did not run
};

// AfterUpdate is what after_update() is told.
struct AfterUpdate {
  Tensor step;             // i64 scalar: updates done, this one included
  const Methods& methods;  // all methods of the run
};

// A MethodStep is a compiled step of a method's own, which runs between updates.
struct MethodStep {
  std::string name;  // "prune"
  std::vector<Type> inputs;
  std::function<std::vector<Tensor>(std::span<const Tensor>)> function;
};
// Runs the step of this name.
using RunStep =
    std::function<std::span<const Tensor>(std::string_view name, std::span<const Tensor> inputs)>;

// A MethodEvent is what a method has done before an update, for the log: "pruned step 30  sparsity
// 0.5".
struct MethodEvent {
  std::string_view did, what;
  double value = 0;
};

// A StandIn is a variable that is read in the place of a parameter wherever the trained model is
// used: by evaluations, and by readers of a checkpoint, whose file of weights has it under the
// parameter's name. Both have one type.
struct StandIn {
  Variable parameter, used;
};

// A MethodBill is variables of a method that reports count apart from the optimizer's state.
struct MethodBill {
  Purpose purpose;
  std::vector<Variable> variables;
};

class Method {
 public:
  virtual ~Method() = default;

  // ---- variables
  // Returns variables that the optimizer trains beside the model's parameters.
  virtual std::vector<Variable> parameters() const { return {}; }
  // Returns the variables that checkpoints save beside the model, parameters() included.
  virtual std::vector<Variable> state() const { return {}; }
  // Returns the part of state() that is loaded with the weights, as the model is used with it.
  virtual std::vector<Variable> used_state() const { return {}; }
  // Returns the variables that steps only read, and checkpoints leave out: those of a teacher.
  virtual std::vector<Variable> read_only() const { return {}; }
  virtual std::vector<StandIn> stand_ins() const { return {}; }
  // Returns the bills of all of read_only(), and of the part of state() that reports count apart.
  virtual std::vector<MethodBill> bills() const { return {}; }

  // ---- in a captured step
  // Returns the paths of layers of the model whose results loss_term() needs.
  virtual std::vector<std::string> layers() const { return {}; }
  // Returns the loss with what the method adds to it, both summed over the labels that count.
  virtual Tensor loss_term(const Tensor& total, const ForwardPass&) const { return total; }
  // Transforms the captured forward pass of training or of evaluation (current_mode()), which ends
  // in `results`. `step_count` counts the updates done; null: nothing trains.
  virtual std::vector<Tensor> applied(std::vector<Tensor> results,
                                      const Variable* /*step_count*/) const {
    return results;
  }
  // Returns the loss to differentiate, and what its gradients are without that.
  virtual Tensor scaled(const Tensor& loss) const { return loss; }
  virtual std::vector<Tensor> unscaled(std::vector<Tensor> gradients) const { return gradients; }
  // Returns a value of a parameter, or a gradient, with zeros where the method holds the parameter
  // at zero.
  virtual Tensor masked(const Variable& /*parameter*/, const Tensor& value) const { return value; }
  // Told whether loss and gradients are `finite` (a bool), returns whether the run goes on without
  // this update where they are not; undefined: it ends.
  virtual Tensor forgives(const Tensor& /*finite*/) const { return {}; }
  // Assigns what follows from the new values of the parameters.
  virtual void after_update(const AfterUpdate&) const {}

  // ---- between updates
  virtual std::vector<MethodStep> steps() const { return {}; }
  // Runs those of steps() that are due once `done` updates are done; nullopt: none was.
  virtual std::optional<MethodEvent> before_update(int64_t /*done*/, const RunStep&) const {
    return std::nullopt;
  }

  // ---- for what is beside training
  virtual void describe(StepLine&) const {}  // adds to a line of the log
  // Throws Error(data) if weights that the method has read from files are not finite.
  virtual void refuse_non_finite() const {}
  // Returns the layers that compute in int8; null: the method quantizes none.
  virtual const quantization::Training* quantization() const { return nullptr; }
};

struct MethodOptions {
  bool initialize = true;  // false: state stays zero, for plans or until it is loaded
  bool trains = true;      // false: the model is only evaluated
};
// Makes the methods that the recipe of an experiment asks for, in the order in which they act, from
// the experiment's model. Throws Error(usage) for the recipe, and as reading their files does.
Methods make_methods(const Experiment& experiment, const MethodOptions& options);

// Returns `value` as masked() of all methods leaves it.
Tensor masked_by(const Methods& methods, const Variable& parameter, Tensor value);

// Within a step that is being captured: returns the results with the stand-ins in the place of the
// parameters that were read.
std::vector<Tensor> with_stand_ins(std::vector<Tensor> results,
                                   const std::vector<StandIn>& stand_ins);

// While a StandInScope lives, the parameters that have stand-ins have their elements, and these
// those of the parameters. Steps that were compiled outside of it must not run.
class StandInScope {
 public:
  explicit StandInScope(std::vector<StandIn> stand_ins);
  ~StandInScope();
  StandInScope(const StandInScope&) = delete;
  StandInScope& operator=(const StandInScope&) = delete;

 private:
  std::vector<StandIn> stand_ins_;
};

}  // namespace weft::train
