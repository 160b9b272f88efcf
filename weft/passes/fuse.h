// fuse: which nodes become one kernel. First half of schedule; names no op beyond its kind.
//
// Walks from users to producers and lets a producer join the kernel of its users, so that its value
// never reaches memory, or reaches it once (fuse_into_users.cpp). Then kernels that read a large
// value in common become one (fuse_reductions.cpp), and a library's kernel takes in what stands
// beside it, where the library says so (fuse_into_libraries.cpp). Three rules keep it sound: one
// iteration space and one set of reduced axes per kernel (see value.h), beside which a kernel of
// rows may reduce across its rows what nothing in it reads; no way out of a kernel and back into it
// (units.h); and nothing that reads a reduced value back over its row unless the row is innermost
// and there are rows enough for every thread.
#pragma once

#include <unordered_map>
#include <vector>

#include "weft/passes/passes.h"

namespace weft {

// Nodes: beyond this registers spill and compile time grows.
inline constexpr size_t largest_kernel = 64;

// One kernel to be, or one node that stays by itself (leaf, view, library kernel, concatenation
// whose parts are stored where the whole lies).
struct Unit {
  enum class Kind : uint8_t { leaf, view, library, fused, placed };
  Kind kind = Kind::fused;
  Shape space;               // fused: the iteration space
  Dims reduced;              // fused: the axes that its reductions run over; empty without any
  std::vector<Value> nodes;  // ascending ids once fuse() returns; of other kinds: one, of a library
                             // kernel its own first, then what it computes beside

  // Once fuse() returns, a fused kernel names here which of its inputs other fused kernels compute.
  std::vector<UnfusedOperand> unfused = {};

  bool contains(const Node* node) const;
  // What it reads: inputs of its first node in order, of a library; then distinct ones of the
  // others.
  std::vector<Value> inputs() const;
};

struct Fusion {
  std::vector<Unit> units;
  std::vector<int> order;  // each unit after those it reads
  // The unit that stores (or views) each value; nodes that live only inside kernels have none.
  NodeMap<int> home;
};

// Fault "fuse-ignores-cycles": a way out of a kernel and back into it is not seen.
Fusion fuse(const Uses& uses, const PassOptions& options);

}  // namespace weft
