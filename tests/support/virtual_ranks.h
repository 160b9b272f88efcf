// Evaluates the graph of one rank for all ranks of a mesh in lockstep, on the reference kernels:
// the oracle for sharding and for communicators.
#pragma once

#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "weft/ir/graph.h"
#include "weft/ir/mesh.h"

namespace weft::testing {

// Returns the operands combined in their order, floats of 16 bits in float32 and rounded once.
Value combined(std::span<const Value> operands, std::string_view combine);
// Returns the part of a value, a "data" leaf, that a rank has; where the layout is partial, the
// first rank has the value and all others zeros.
Value part_of(const Value& whole, const Layout& layout, const MeshAxis& mesh, int64_t rank);
// Returns the value whose parts these are.
Value joined(std::span<const Value> parts, const Layout& layout, const MeshAxis& mesh);

// A mesh of one axis in one process. The variables of all ranks are kept here; the storage of the
// variables themselves has the elements of the whole, and stays as it is.
class VirtualRanks {
 public:
  explicit VirtualRanks(const MeshAxis& mesh) : mesh_(mesh) {}

  // Returns by root of `local` the values of all ranks. `inputs` has those of the whole.
  std::vector<std::vector<Value>> run(const Graph& local, std::span<const Value> inputs,
                                      std::span<const Layout> layouts);
  // Runs a step and assigns its variables. Returns the outputs alone.
  std::vector<std::vector<Value>> step(const Graph& local, std::span<const Value> inputs,
                                       std::span<const Layout> layouts);
  // Returns the elements of a variable by rank.
  const std::vector<Value>& of(const VariableState& variable);

 private:
  const MeshAxis& mesh_;
  std::unordered_map<const VariableState*, std::vector<Value>> variables_;
};

}  // namespace weft::testing
