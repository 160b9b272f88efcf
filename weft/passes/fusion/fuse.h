// Operator fusion: decides which nodes become one kernel. It is the first half of bufferize, and
// uses the kind of an op, its arity, the axes that it reduces, and whether it is a view: no names.
//
// It walks from users to producers and lets a producer join its users' kernel, so that its value
// never reaches memory, or only once (into_users.cpp). Then kernels that read a large value in
// common are merged (reductions.cpp), and library kernels absorb nodes around them as
// epilogues where the library has such a kernel (into_libraries.cpp). Three rules keep fusion
// sound. A kernel has one iteration space and one set of reduced axes (see value.h); a kernel of
// rows may also reduce across its rows, if nothing in it reads the result. No path leads out of a
// kernel and back into it (groups.h). Only where rows are innermost and there are enough for
// every thread may a kernel read a reduced value back over its row.
#pragma once

#include <unordered_map>
#include <vector>

#include "weft/passes/passes.h"

namespace weft {

// A kernel has at most this many nodes: larger kernels spill registers and compile slowly.
inline constexpr size_t largest_kernel = 64;

// A FusionGroup holds the nodes of one kernel, or one node by itself (leaf, view,
// library kernel, or a concatenation whose parts are stored straight into it).
struct FusionGroup {
  enum class Kind : uint8_t { leaf, view, library, fused, placed };
  Kind kind = Kind::fused;
  Shape space;               // fused: the iteration space
  Dims reduced;              // fused: the axes of its reductions; empty without any
  std::vector<Value> nodes;  // ascending ids once fuse() returns. Library: its own node first, then
                             // what it computes beside it; other kinds: one node

  // `unfused` has the inputs of a fused kernel that other fused kernels compute; it is set once
  // fuse() returns.
  std::vector<UnfusedOperand> unfused = {};

  bool contains(const Node* node) const;
  // Returns the operands: for a library kernel the inputs of its first node in order, then the
  // distinct inputs of the other nodes.
  std::vector<Value> inputs() const;
};

struct Fusion {
  std::vector<FusionGroup> groups;
  std::vector<int> order;  // topological order of the groups
  // `home` is the group that stores (or views) each value; nodes that exist only inside kernels
  // have none.
  NodeMap<int> home;
};

// Groups the nodes. Fault "fuse-ignores-cycles": paths out of a kernel and back are not detected.
Fusion fuse(const Uses& uses, const PassOptions& options);

}  // namespace weft
