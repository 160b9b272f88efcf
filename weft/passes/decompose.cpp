// Composites become their expression, unless the library has a kernel for them. Stands first: every
// later pass then sees primitives only, and a fused kernel can hold any part of any composite.
#include "weft/device/bound.h"
#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"
#include "weft/passes/passes.h"

namespace weft {
namespace {
bool overridden(const Node& node, const KernelLibrary* library) {
  if (library == nullptr) return false;
  return library->choose(node, dense(node.inputs)).has_value();
}
}  // namespace

// Fault "decompose-negates": expressions of floating point composites come out negated.
Graph decompose(const Graph& graph, const PassOptions& options) {
  return rewrite_fully(graph, [&](const Value& value) -> Value {
    const Node& node = *value.node();
    if (node.op->decompose == nullptr || overridden(node, options.library)) return {};
    Value expression = node.op->decompose(node);
    bool wrong = options.fault == "decompose-negates" && is_float(expression.dtype());
    return wrong ? neg(expression) : expression;
  });
}

}  // namespace weft
