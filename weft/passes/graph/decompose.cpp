// Replaces composites by their expression, unless the library has a kernel for them. A fused kernel
// can then hold any part of a composite. An expression that the library may compute as an epilogue
// is annotated with its composite.
#include "weft/device/bound.h"
#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"
#include "weft/passes/passes.h"

namespace weft {
// Fault "decompose-negates": expressions of floating-point composites come out negated.
Graph decompose(const Graph& graph, const PassOptions& options) {
  const KernelChooser& kernels = options.library->kernels();
  return rewrite_fully(graph, [&](const Value& value) -> Value {
    const Node& node = *value.node();
    if (node.op->decompose == nullptr || kernels.choose(node, dense(node.inputs))) return {};
    Value expression = node.op->decompose(node);
    if (kernels.is_epilogue(node)) expression->annotations.composite = value;
    bool wrong = options.has_fault("decompose-negates") && is_float(expression.dtype());
    return wrong ? neg(expression) : expression;
  });
}

}  // namespace weft
