// Constant folding, algebra and common subexpressions, in one walk from leaves to roots; what no root
// reaches afterwards is dead. Stands after decompose, whose expressions repeat themselves, and before
// everything that costs time per node. No rule changes the bits of a result, but for the sign of a zero
// that is the sum of one element.
#include <unordered_map>

#include "weft/ir/op_def.h"
#include "weft/passes/algebra.h"
#include "weft/passes/cse.h"
#include "weft/passes/fold.h"
#include "weft/passes/passes.h"

namespace weft {
namespace {
class Simplifier {
 public:
  explicit Simplifier(const PassOptions& options)
      : unique_(options.fault != "cse-ignores-attrs"), fold_wrong_(options.fault == "fold-wrong") {}

  // The simplest known value that equals `value`. Recurs into what rules create, which is shallow:
  // everything below was simplified before.
  Value operator()(const Value& value) {
    if (auto known = simple_.find(value.node()); known != simple_.end()) return known->second.second;
    Value current = with_simple_inputs(value);
    Value better = apply_rules(current);
    Value result = better ? (*this)(better) : unique_(current);
    WEFT_ASSERT(result.type() == value.type(), "simplifying {} changes its type from {} to {}",
                value->op->name, to_string(value.type()), to_string(result.type()));
    simple_.try_emplace(value.node(), value, result);
    simple_.try_emplace(result.node(), result, result);
    return result;
  }

 private:
  Value with_simple_inputs(const Value& value) {
    std::vector<Value> inputs;
    bool same = true;
    for (const Value& input : value->inputs) {
      inputs.push_back((*this)(input));
      same &= inputs.back().node() == input.node();
    }
    return same ? value : rebuild(*value.node(), std::move(inputs));
  }

  Value apply_rules(const Value& value) {
    if (value->inputs.empty()) return {};
    if (Value constant = fold(value)) return fold_wrong_ ? wrong(constant) : constant;
    if (Value simpler = simplify_arithmetic(value)) return simpler;
    if (Value simpler = simplify_movement(value)) return simpler;
    return simplify_reduction(value);
  }

  static Value wrong(const Value& constant) {
    auto number = uniform_value(constant);
    return number ? uniform(constant.type(), *number + 1) : constant;
  }

  UniqueNodes unique_;
  bool fold_wrong_;
  std::unordered_map<const Node*, std::pair<Value, Value>> simple_;  // holds its keys, so none is reused
};
}  // namespace

// Faults "cse-ignores-attrs" (merges nodes that differ in attributes) and "fold-wrong" (constants off by one).
Graph simplify(const Graph& graph, const PassOptions& options) {
  Simplifier simplifier(options);
  return rewrite(graph, [&](const Value& value) { return simplifier(value); });
}

}  // namespace weft
