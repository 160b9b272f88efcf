// Declares reverse-mode differentiation from graph to graph: gradients are ordinary nodes.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "weft/ir/value.h"

namespace weft {

// In a chain of values that were read, each computed from the one before, at most this many
// expressions are kept. The next expression is cut (Node::cut), which frees those behind it;
// otherwise a loop that reads its state in each iteration would grow without end.
inline constexpr size_t longest_chain = 1000;

// Returns whether `a` precedes `b` where each node follows all that its expression reads. Ids say
// so, except for handles of a variable that were read: each is computed from a younger one.
bool computed_before(const Node& a, const Node& b);

// Returns d(sum of y * seed) / d(x) for each x of `wrt`: zeros if y does not depend on x. `seed`
// has the type of y; an empty seed stands for ones, and y must then have one element. Throws Error
// if y is not floating point, or if a gradient goes through a cut.
std::vector<Tensor> gradients(const Tensor& y, std::span<const Tensor> wrt,
                              const Tensor& seed = {});

}  // namespace weft
