// Draws random graphs: any op of the table, rank 0 to 5, inputs, Variables, shared values,
// gradients.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/planned.h"
#include "weft/ir/graph.h"

namespace weft::testing {

struct RandomGraph {
  Graph graph;
  std::vector<Value> inputs;  // data leaves to bind
};
// Returns the same graph for the same seed. Values stay finite, and no decision of a graph (a
// comparison, an index, the position of a maximum) depends on the last bit of an inexact value.
RandomGraph random_graph(uint64_t seed);

// Returns the roots computed in float32 wherever `graph` has the narrow type, without any rounding
// to it.
Graph without_narrow(const Graph& graph, DType narrow);

// Returns a random subset of the optional passes, to be skipped.
std::vector<std::string> random_skips(uint64_t seed);

// Runs graph `seed` by plan on `library` and by the interpreter. Returns "" where they agree, else
// the first difference.
std::string check_random_graph(uint64_t seed, const KernelLibrary& library,
                               const PlanSettings& settings);

}  // namespace weft::testing
