// Folds constants, applies algebra and eliminates common subexpressions, in one walk from leaves to
// roots; what no root reaches afterwards is dead. No rule changes the bits of a result, except the
// sign of a zero that is the sum of one element, or of one and an adjacent zero.
#include "weft/ir/op_def.h"
#include "weft/passes/graph/algebra.h"
#include "weft/passes/graph/cse.h"
#include "weft/passes/graph/fold.h"
#include "weft/passes/passes.h"

namespace weft {
namespace {
Value apply_rules(const Value& value, const PassOptions& options) {
  if (value->inputs.empty()) return {};
  if (Value constant = fold(value); constant.defined()) {
    auto number = uniform_value(constant);
    return options.has_fault("fold-wrong") && number ? filled(constant.type(), *number + 1)
                                                     : constant;
  }
  if (Value simpler = simplify_arithmetic(value, options.has_fault("arithmetic-wrong"));
      simpler.defined())
    return simpler;
  if (Value simpler = simplify_movement(value, options.has_fault("movement-forgets-flips"));
      simpler.defined())
    return simpler;
  if (Value simpler = simplify_scatter(value, options.has_fault("scatter-adds-outside"));
      simpler.defined())
    return simpler;
  return simplify_reduction(value);
}
}  // namespace

// Tests seed the faults "cse-ignores-attrs" (merges nodes that differ in attributes), "fold-wrong"
// (constants off by one), "arithmetic-wrong", "movement-forgets-flips" and "scatter-adds-outside"
// (see algebra.h).
Graph simplify(const Graph& graph, const PassOptions& options) {
  UniqueNodes unique(!options.has_fault("cse-ignores-attrs"));
  return rewrite_fully(graph, [&](const Value& value) -> Value {
    if (Value simpler = apply_rules(value, options); simpler.defined()) return simpler;
    Value first = unique(value);
    return first.node() == value.node() ? Value() : first;
  });
}

}  // namespace weft
