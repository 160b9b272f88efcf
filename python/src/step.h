// Declares compiled steps as Python has them.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "weft/ir/graph.h"
#include "weft/ir/plan_summary.h"
#include "weft/ir/step_options.h"
#include "weft/ir/variable.h"
#include "weft/runtime/executable.h"
#include "weft/tensor/compile.h"

#include "python/src/bind.h"

namespace weft::python {

// Bytes that are live during each launch of a plan, and bytes of state.
using LiveBytes = std::map<Category, std::vector<double>>;
using StateBytes = std::map<Category, size_t>;

// Returns a dict of what is known by category, by the categories' names and in their order.
template <class Value>
nb::dict by_name(const std::map<Category, Value>& categories) {
  nb::dict named;
  for (const auto& [category, value] : categories)
    named[nb::cast(std::string(name(category)))] = value;
  return named;
}

// A StepPlan is the summary of a plan, with its memory over time.
struct StepPlan : PlanSummary {
  LiveBytes live;
  StateBytes state;
};

using PyType = std::pair<DType, Shape>;
std::vector<Type> types_of(const std::vector<PyType>& given);

// A Step is a compiled step whose function is Python's. The compiled step refers to the function
// through the Step, so that Python's garbage collector sees the cycle of a function that holds its
// own step.
class Step {
 public:
  Step(nb::callable function, const StepOptions& options);
  ~Step();

  void prepare(const std::vector<PyType>& types);
  std::vector<Tensor> run(const std::vector<Tensor>& inputs);
  // Compiles the step for these types, with which run_at() runs.
  void bind(const std::vector<PyType>& types);
  // Runs at addresses of the caller's memory.
  void run_at(std::span<const std::byte* const> inputs, std::span<std::byte* const> results);
  const std::vector<Type>& bound_types() const { return bound_; }
  const Executable& bound() const;  // throws before bind()
  StepPlan plan(const std::vector<PyType>& types);
  StepPlan plan_on(const std::string& device, const std::vector<PyType>& types);

  Graph capture(const std::vector<PyType>& types) const;

  int traverse(visitproc visit, void* arg) const;
  void clear() { function_.reset(); }

 private:
  std::vector<Tensor> call(std::span<const Tensor> inputs);

  nb::object function_;
  std::string device_;  // of the options
  std::optional<CompiledStep> step_;
  std::vector<Type> bound_;
  const Executable* executable_ = nullptr;  // for bound_
};

}  // namespace weft::python
