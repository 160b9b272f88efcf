// Where numbers stop being finite: runs steps that store every value ("fuse" skipped), looks at
// each, and follows infinities and NaN back from the results to the operation that made them. What
// is infinite on purpose, such as a mask's constant, is no origin, nor is what never reaches a
// result.
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

namespace weft {

class Executable;

// What the elements of a value are.
struct ValueRange {
  double low = std::numeric_limits<double>::infinity();  // of the finite ones; low > high: none
  double high = -std::numeric_limits<double>::infinity();
  int64_t nans = 0, infinities = 0;
  bool finite() const { return nans == 0 && infinities == 0; }
  void include(double element);
  void include(const ValueRange& other);
};

// An operation whose operands were finite and whose result was not; or a leaf that was not.
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
  bool is_leaf() const { return op == "input" || op == "variable"; }
};

class NonFiniteSearch {
 public:
  // Runs the step once. State that it assigns keeps its origin for the runs that follow.
  void run(Executable& executable, std::span<const Value> inputs);
  // Of result `index` of the last run; empty where that is finite.
  std::optional<NonFiniteOrigin> of_output(size_t index) const;
  // Of the first state that the last run left not finite; empty: all is.
  std::optional<NonFiniteOrigin> of_state() const;

 private:
  using Origin = std::shared_ptr<const NonFiniteOrigin>;
  // What is known of a value: null where it is finite, or not finite on purpose.
  struct Known {
    ValueRange range;
    Origin origin;
    uint64_t id = 0;  // of the node that is the origin
  };
  void read_leaves(const Executable& executable, std::span<const Value> inputs);
  void follow(const std::vector<Value>& roots);
  Known known_of(const Value& value) const;
  Known leaf(const Value& value) const;

  std::unordered_map<const Node*, ValueRange> stored_;             // of the run in progress
  std::unordered_map<const VariableState*, ValueRange> state_;     // at its start
  std::unordered_map<const VariableState*, Origin> state_origin_;  // from earlier runs
  std::vector<ValueRange> inputs_;
  std::unordered_map<const Node*, Known> known_;
  std::vector<Value> outputs_, assigned_;
};

}  // namespace weft
