// Declares reverse-mode differentiation from graph to graph: gradients are ordinary nodes.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "weft/ir/value.h"

namespace weft {

// A chain of evaluated values, each computed from the one before, keeps at most this many
// expressions. Then the next expression is cut (Node::cut), which frees the expressions before it;
// otherwise a loop that reads its state in each iteration would grow without end.
inline constexpr size_t longest_chain = 1000;

// Returns whether `a` precedes `b` in an order in which each node follows all nodes that its
// expression reads. Ids give this order, except for handles of a variable that were read: such a
// handle is computed from a younger node.
bool computed_before(const Node& a, const Node& b);

// Returns d(sum of y * seed) / d(x) for each x of `wrt`: zeros if y does not depend on x. `seed`
// has the type of y; an empty seed stands for ones, and y must then have one element. Throws Error
// if y is not floating point, or if a gradient goes through a cut.
std::vector<Tensor> gradients(const Tensor& y, std::span<const Tensor> wrt,
                              const Tensor& seed = {});

}  // namespace weft
