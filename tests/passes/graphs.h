// Provides graphs for planner tests, training steps and random ones.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tests/support/planning_library.h"
#include "tests/support/values.h"
#include "weft/ir/graph.h"

namespace weft::testing {

// Returns the leaf of a variable with random elements in [-1, 1].
Value random_variable(const std::string& name, const Type& type, Random& random);
Value zero_variable(const std::string& name, const Type& type);

// Each returns a training step that outputs the loss and assigns parameters and optimizer state.
Graph mlp_step(int layers, int64_t width, int64_t batch);  // ReLU, cross entropy, SGD with momentum
Graph conv_step(int layers, int64_t channels,
                int64_t batch);  // conv, batch norm, ReLU, residual; SGD
Graph gpt_step(int layers, int64_t width, int64_t batch, int64_t length,
               int64_t vocabulary = 50);  // blocks, AdamW
// Returns a step of each kind.
std::vector<Graph> training_steps();
// Returns random inputs for a step; integer inputs are within range.
std::vector<Value> random_inputs(const Graph& graph, Random& random);

// Returns a random graph with shared values, views, broadcasts, reductions, contractions, and
// variables that are read, assigned and swapped.
Graph random_graph(Random& random, int nodes);

// Returns the number of nodes of one op.
int count_of(const Graph& graph, std::string_view op);

// Returns the value that the pass simplify gives; `fault` is a seeded bug of the pass.
Value simplified(const Value& value, const std::string& fault = "");

}  // namespace weft::testing
