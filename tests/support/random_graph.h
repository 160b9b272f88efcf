// Random graphs: any op of the table, rank 0 to 5, inputs, Variables, shared values, gradients.
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
// The same graph for the same seed. Values stay finite, and no decision of a graph (a comparison,
// an index, which element is the greatest) hangs on the last bit of an inexact value.
RandomGraph random_graph(uint64_t seed);

// The same roots computed in float32 wherever `graph` has the narrow type: no rounding to it is
// left.
Graph without_narrow(const Graph& graph, DType narrow);

// A subset of the optional passes to skip, drawn by seed.
std::vector<std::string> random_skips(uint64_t seed);

// Runs graph `seed` by plan on `library` and by the interpreter. "" where they agree, else the
// first difference.
std::string check_random_graph(uint64_t seed, const KernelLibrary& library,
                               const PlanSettings& settings);

}  // namespace weft::testing
