// Finds where numbers stop being finite: runs a step that stores every value ("fuse" skipped),
// inspects each value, and traces infinities and NaNs back from the results to the operation that
// produced them. Constants that are infinite on purpose, such as a mask's, are no origin, nor is a
// value that reaches no result.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "weft/ir/graph.h"
#include "weft/ir/op_def.h"

namespace weft {

class Executable;

// A ValueRange summarizes the elements of a value.
struct ValueRange {
  double low = std::numeric_limits<double>::infinity();  // least finite element; low > high: none
  double high = -std::numeric_limits<double>::infinity();
  int64_t nans = 0, infinities = 0;
  bool finite() const { return nans == 0 && infinities == 0; }
  void include(double element);
  void include(const ValueRange& other);
};

// A NonFiniteOrigin is an operation with finite operands and a non-finite result, or a non-finite
// leaf.
struct NonFiniteOrigin {
  struct Operand {
    Type type;
    ValueRange range;
  };
  std::string op;      // "exp"; "input" or "variable" for a leaf
  std::string module;  // "blocks.3.attn"; for a variable its name
  std::string file;    // "" where the node names no line
  unsigned line = 0;
  Type type;
  ValueRange range;
  std::vector<Operand> operands;
  LeafKind leaf = LeafKind::none;
};

class NonFiniteSearch {
 public:
  // Runs once a step whose plan keeps its graph. State that it assigns keeps its origin for later
  // runs.
  void run(Executable& executable, std::span<const Value> inputs);
  // Returns the origin for result `index` of the last run, or nullopt if the result is finite.
  std::optional<NonFiniteOrigin> of_output(size_t index) const;
  // Returns the origin for the first state that the last run left not finite, or nullopt.
  std::optional<NonFiniteOrigin> of_state() const;

 private:
  using Origin = std::shared_ptr<const NonFiniteOrigin>;
  // Known is what the search has found out about a value. `origin` is null if the value is finite,
  // or not finite on purpose.
  struct Known {
    ValueRange range;
    Origin origin;
    uint64_t id = 0;  // id of the node that is the origin
  };
  void read_leaves(const Executable& executable, std::span<const Value> inputs);
  void follow(const Graph& graph);
  Known known_of(const Value& value) const;
  Known leaf(const Value& value) const;

  std::unordered_map<uint64_t, ValueRange> stored_;  // by id of the value, in the run in progress
  std::unordered_map<const VariableState*, ValueRange> state_;     // at the start of the run
  std::unordered_map<const VariableState*, Origin> state_origin_;  // from earlier runs
  std::vector<ValueRange> inputs_;
  std::unordered_map<uint64_t, Known> known_;  // by id of the value
  std::vector<uint64_t> outputs_, assigned_;   // ids of the values
};

}  // namespace weft
