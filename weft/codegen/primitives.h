// Primitives that are no part of fused kernels, as loops of their own: matrix products,
// convolutions and their gradients, pooling, scatter_add, first_position. For backends whose
// libraries lack one.
#pragma once

#include <span>

#include "weft/codegen/loop_ir.h"
#include "weft/ir/plan.h"

namespace weft::loop {

// Whether `node` has loops: it is one of these, and they are no deeper than max_rank.
bool has_loops(const Node& node);
// Of a node whose inputs and result lie as the placements say.
Kernel lower_primitive(const Node& node, std::span<const Placement> operands,
                       const Placement& result);
// Of the one node of a library step, as it lies there.
Kernel lower_primitive(const Step& step);

}  // namespace weft::loop
