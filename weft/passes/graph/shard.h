// Declares the stages of sharding. Tests choose the layouts of inputs.
#pragma once

#include <span>

#include "weft/passes/passes.h"

namespace weft {

// Makes the graph of one rank of a mesh axis. `inputs` has the layout of each input; variables have
// their own (VariableState::layout).
Graph shard_along(const Graph& graph, const MeshAxis& mesh, std::span<const Layout> inputs,
                  const PassOptions& options);

// Takes small sums that do not depend on each other together.
Graph join_sums(const Graph& graph, const MeshAxis& mesh);

}  // namespace weft
