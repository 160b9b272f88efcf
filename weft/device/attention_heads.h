// Defines the extents of attention and of its gradient for library kernels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "weft/ir/op_def.h"

namespace weft {

// q[B, H, T, D], k[B, G, S, D], v[B, G, S, E], y[B, H, T, E]
struct AttentionHeads {
  int64_t batch, heads, key_heads, queries, keys, depth, width;
  double scale;
  bool causal;
  int64_t window;  // most keys that a query sees; greatest int64: all keys

  explicit AttentionHeads(const Node& node)
      : batch(node.inputs[0].dim(0)),
        heads(node.inputs[0].dim(1)),
        key_heads(node.inputs[1].dim(1)),
        queries(node.inputs[0].dim(2)),
        keys(node.inputs[1].dim(2)),
        depth(node.inputs[0].dim(3)),
        width(node.inputs[2].dim(3)),
        scale(node.attrs.number("scale")),
        causal(node.attrs.integer("causal") != 0),
        window(node.attrs.has("window") ? node.attrs.integer("window")
                                        : std::numeric_limits<int64_t>::max()) {}
};

// Returns whether a node of the family is softmax(scale q k') v, causal or not, or a gradient of
// that: without a mask, a window, a cap of the scores or a start.
inline bool is_plain_attention(const Node& node) {
  constexpr std::string_view options[] = {"mask", "start", "window", "softcap"};
  return std::ranges::none_of(options, [&](auto option) { return node.attrs.has(option); });
}

// Returns whether a node is causal attention with a window, a cap of the scores, or a start, which
// is the position of the first query in a cache of keys.
inline bool is_cached_attention(const Node& node) {
  return node.op->role == Role::forward && !node.attrs.has("mask") &&
         node.attrs.integer("causal") != 0 && !is_plain_attention(node);
}

// Returns whether `body` is `attention` and `attention_logsumexp` of the same operands with both
// results stored in this order: one kernel then also stores the logarithms that the backward pass
// reads.
inline bool is_attention_with_logsumexp(std::span<const Value> body,
                                        std::span<const Value> results) {
  if (body.size() != 2 || results.size() != 2) return false;
  const Node &y = *body[0].node(), &logsumexp = *body[1].node();
  if (y.op->family != OpFamily::attention || y.op->role != Role::forward ||
      logsumexp.op->family != OpFamily::attention || logsumexp.op->role != Role::statistics ||
      !is_plain_attention(y))
    return false;
  for (size_t i = 0; i < 3; ++i)
    if (y.inputs[i].node() != logsumexp.inputs[i].node()) return false;
  return y.attrs.integer("causal") == logsumexp.attrs.integer("causal") &&
         y.attrs.number("scale") == logsumexp.attrs.number("scale") && results[0].node() == &y;
}

}  // namespace weft
