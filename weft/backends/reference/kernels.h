// Declares one function per family of primitives; `node` says which primitive, with what
// attributes.
#pragma once

#include "weft/backends/reference/view.h"
#include "weft/ir/op_def.h"

namespace weft::reference {

using Function = void (*)(const Node& node, const Operands& in, const View& out);

void constant(const Node& node, const Operands& in, const View& out);
void iota(const Node& node, const Operands& in, const View& out);
void elementwise(const Node& node, const Operands& in, const View& out);
void reduce(const Node& node, const Operands& in, const View& out);  // sum, prod, max, min, arg...
void reshape(const Node& node, const Operands& in, const View& out);
void permute(const Node& node, const Operands& in, const View& out);
void broadcast(const Node& node, const Operands& in, const View& out);
void slice(const Node& node, const Operands& in, const View& out);
void flip(const Node& node, const Operands& in, const View& out);
void pad(const Node& node, const Operands& in, const View& out);
void concat(const Node& node, const Operands& in, const View& out);
void gather(const Node& node, const Operands& in, const View& out);
void scatter_add(const Node& node, const Operands& in, const View& out);
void part_at(const Node& node, const Operands& in, const View& out);
void first_position(const Node& node, const Operands& in, const View& out);
void matmul(const Node& node, const Operands& in, const View& out);
void conv(const Node& node, const Operands& in, const View& out);
void conv_input_gradient(const Node& node, const Operands& in, const View& out);
void conv_weight_gradient(const Node& node, const Operands& in, const View& out);
void max_pool(const Node& node, const Operands& in, const View& out);
void max_pool_gradient(const Node& node, const Operands& in, const View& out);
void avg_pool(const Node& node, const Operands& in, const View& out);
void avg_pool_gradient(const Node& node, const Operands& in, const View& out);
void random_uniform(const Node& node, const Operands& in, const View& out);

// Returns null where the reference has no kernel: composites, and leaves that are in memory
// already.
Function find_function(const OpDef& def);

}  // namespace weft::reference
