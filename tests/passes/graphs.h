// Provides graphs for planner tests, training steps and random ones, and a library to plan them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/values.h"
#include "weft/device/device.h"
#include "weft/ir/graph.h"

namespace weft::testing {

// Plans like a backend that generates fused kernels and has library kernels for contractions and
// pooling; runs nothing. `overrides` names composites with a library kernel, `epilogues` those that
// a contraction may compute as its epilogue, `alone` ops that are fused into no library kernel, and
// `orders` the axis order that an op requires of its last operand. `workspace` is the least
// workspace of a contraction, `most_workspace` the most that it can use.
class PlanningLibrary : public KernelLibrary, public KernelChooser, public KernelCompiler {
 public:
  std::vector<std::string> overrides, epilogues, alone;
  std::map<std::string, Dims, std::less<>> orders;
  size_t workspace = 0, most_workspace = 0;
  size_t most_results = 0;  // results of a library kernel with fused nodes

  std::string name() const override { return "planning"; }
  const KernelChooser& kernels() const override { return *this; }
  const KernelCompiler& compiler() const override { return *this; }
  bool generates() const override { return true; }
  std::optional<KernelChoice> choose(const Node& node, std::span<const Placement>) const override;
  std::optional<KernelChoice> choose_with(std::span<const Value> body,
                                          std::span<const Value> results,
                                          std::span<const Placement> operands) const override;
  bool is_epilogue(const Node& composite) const override;
  std::unique_ptr<Kernel> compile(const Plan&, const Launch&) const override { return nullptr; }
};

// Returns the leaf of a variable with random elements in [-1, 1].
Value random_variable(const std::string& name, const Type& type, Random& random);
Value zero_variable(const std::string& name, const Type& type);

// Each returns a training step that outputs the loss and assigns parameters and optimizer state.
Graph mlp_step(int layers, int64_t width, int64_t batch);  // ReLU, cross entropy, SGD with momentum
Graph conv_step(int layers, int64_t channels,
                int64_t batch);  // conv, batch norm, ReLU, residual; SGD
Graph gpt_step(int layers, int64_t width, int64_t batch, int64_t length,
               int64_t vocabulary = 50);  // blocks, AdamW
// Returns random inputs for a step; integer inputs are within range.
std::vector<Value> random_inputs(const Graph& graph, Random& random);

// Returns a random graph with shared values, views, broadcasts, reductions, contractions, and
// variables that are read, assigned and swapped.
Graph random_graph(Random& random, int nodes);

}  // namespace weft::testing
