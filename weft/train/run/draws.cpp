#include "weft/train/run/draws.h"

#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"
#include "weft/ops/random.h"
#include "weft/tensor/compile.h"

namespace weft::train {
namespace {
bool draws(const Value& node) {
  return node->op->kind == OpKind::random && node->inputs.size() == 1;
}
// Returns the only axis of a shape that is `times` as long in the whole; -1 where there is none.
int shared_axis(const Shape& part, const Shape& whole, int64_t times) {
  int found = -1;
  if (part.size() != whole.size()) return -1;
  for (int axis = 0; axis < part.size(); ++axis) {
    if (part[axis] == whole[axis]) continue;
    if (found >= 0 || part[axis] * times != whole[axis]) return -1;
    found = axis;
  }
  return found;
}
}  // namespace

PassDraws::PassDraws(int64_t passes)
    : passes_(passes), pass_("accumulated.passes", {DType::i64, {}}, Category::gradient) {}

void PassDraws::learn(const Graph& whole) {
  wholes_.emplace();
  for (const Value& node : whole.nodes())
    if (draws(node)) wholes_->emplace(node->attrs.integer("stream"), node.shape());
}

void PassDraws::place() const {
  if (wholes_->empty()) return;
  const Tensor pass = pass_.value(), step = random_step().value();
  transform_captured({}, [&](const Graph& graph) {
    return rewrite(graph, [&](const Value& node) -> Value {
      if (!draws(node)) return {};
      const auto whole = wholes_->find(node->attrs.integer("stream"));
      if (whole == wholes_->end()) return {};
      const int axis = shared_axis(node.shape(), whole->second, passes_);
      if (axis < 0) return {};
      const Dims strides = row_major_strides(whole->second);
      return uniform_part(node->inputs[0], pass,
                          node->attrs.with({"offset", 0}).with({"strides", strides}),
                          node.shape()[axis] * strides[axis]);
    });
  });
  // A step that draws adds one to random_step() when its function has returned.
  const Tensor is_last = pass + 1 == passes_;
  random_step().assign(select(is_last, step, step - 1));
  pass_.assign(select(is_last, zeros_like(pass), pass + 1));
}

}  // namespace weft::train
