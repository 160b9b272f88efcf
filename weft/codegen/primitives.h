// Lowers primitives that are not part of fused kernels to loops of their own: matrix products,
// convolutions and their gradients, pooling, scatter_add, first_position. It serves backends whose
// libraries lack one.
#pragma once

#include <span>

#include "weft/ir/loop_ir.h"
#include "weft/ir/plan.h"

namespace weft::loop {

// Returns whether `node` is one of these primitives and its loops are no deeper than max_rank.
bool has_loops(const Node& node);
// Lowers a node whose inputs and result have the given placements.
Kernel lower_primitive(const Node& node, std::span<const Placement> operands,
                       const Placement& result);
// Lowers the only node of a library launch, with the placements of its operands and result.
Kernel lower_primitive(const Launch& launch);

}  // namespace weft::loop
