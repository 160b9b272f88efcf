// Graphs to plan: training steps of small models, and random ones; and a library to plan them for.
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

// Plans like a backend that generates fused kernels and has others for contractions and pooling;
// runs nothing. `overrides` names composites that it has kernels for, `epilogues` those that it may
// compute with a contraction, `alone` ops that share no kernel with anything, and `orders` how ops
// want the axes of their last operand to lie; `workspace` is what contractions need,
// `most_workspace` what they can use.
class PlanningLibrary : public KernelLibrary, public KernelChooser, public KernelCompiler {
 public:
  std::vector<std::string> overrides, epilogues, alone;
  std::map<std::string, Dims, std::less<>> orders;
  size_t workspace = 0, most_workspace = 0;
  size_t most_results = 0;  // of a node of its own and whatever stands beside it

  std::string name() const override { return "planning"; }
  const KernelChooser& kernels() const override { return *this; }
  const KernelCompiler& compiler() const override { return *this; }
  bool generates() const override { return true; }
  std::optional<KernelChoice> choose(const Node& node, std::span<const Placement>) const override;
  std::optional<KernelChoice> choose_with(std::span<const Value> body,
                                          std::span<const Value> results,
                                          std::span<const Placement> operands) const override;
  bool is_epilogue(const Node& composite) const override;
  std::unique_ptr<Kernel> compile(const Plan&, const Step&) const override { return nullptr; }
};

// State with random elements in [-1, 1], and the leaf that reads it.
Value random_variable(const std::string& name, const Type& type, Random& random);
Value zero_variable(const std::string& name, const Type& type);

// A whole training step: loss as output, parameters and optimiser state assigned.
Graph mlp_step(int layers, int64_t width, int64_t batch);  // ReLU, cross entropy, SGD with momentum
Graph conv_step(int layers, int64_t channels,
                int64_t batch);  // conv, batch norm, ReLU, residual; SGD
Graph gpt_step(int layers, int64_t width, int64_t batch, int64_t length,
               int64_t vocabulary = 50);  // blocks, AdamW
// Inputs for a step: random, within range for integer inputs.
std::vector<Value> random_inputs(const Graph& graph, Random& random);

// Shared values, views, broadcasts, reductions, products, variables that are read, assigned and
// swapped.
Graph random_graph(Random& random, int nodes);

}  // namespace weft::testing
