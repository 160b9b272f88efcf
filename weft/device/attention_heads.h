// The extents of attention and of its gradient as kernels of libraries see them.
#pragma once

#include <cstdint>

#include "weft/ir/value.h"

namespace weft {

// q[B, H, T, D], k[B, G, S, D], v[B, G, S, E], y[B, H, T, E]
struct AttentionHeads {
  int64_t batch, heads, key_heads, queries, keys, depth, width;
  double scale;
  bool causal;

  explicit AttentionHeads(const Node& node)
      : batch(node.inputs[0].dim(0)),
        heads(node.inputs[0].dim(1)),
        key_heads(node.inputs[1].dim(1)),
        queries(node.inputs[0].dim(2)),
        keys(node.inputs[1].dim(2)),
        depth(node.inputs[0].dim(3)),
        width(node.inputs[2].dim(3)),
        scale(node.attrs.number("scale")),
        causal(node.attrs.integer("causal") != 0) {}
};

}  // namespace weft
