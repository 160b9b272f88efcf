// Composites become their expression, unless the library has a kernel for them. Stands first: every
// later pass then sees primitives only, and a fused kernel can hold any part of any composite. What
// a library may compute as an epilogue is noted of the expression, until it has chosen.
#include "weft/device/bound.h"
#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"
#include "weft/passes/passes.h"

namespace weft {
// Fault "decompose-negates": expressions of floating point composites come out negated.
Graph decompose(const Graph& graph, const PassOptions& options) {
  const KernelChooser& kernels = options.library->kernels();
  return rewrite_fully(graph, [&](const Value& value) -> Value {
    const Node& node = *value.node();
    if (node.op->decompose == nullptr || kernels.choose(node, dense(node.inputs))) return {};
    Value expression = node.op->decompose(node);
    if (kernels.is_epilogue(node)) expression->annotations.composite = value;
    bool wrong = options.fault == "decompose-negates" && is_float(expression.dtype());
    return wrong ? neg(expression) : expression;
  });
}

}  // namespace weft
