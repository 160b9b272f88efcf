#include "weft/onnx/unrounded.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "weft/ir/op_def.h"
#include "weft/tensor/wide.h"

namespace weft::onnx {
namespace {
constexpr std::array<std::string_view, 13> parts{"Abs", "Add",  "Clip",      "Div", "Exp",
                                                 "Log", "Max",  "Min",       "Mul", "Pow",
                                                 "Sub", "Sqrt", "Reciprocal"};
constexpr int longest_chain = 16;  // of operations from a sum to a statistic

bool is_elementwise(const Tensor& x) { return x->op->kind == OpKind::elementwise; }

bool is_one_number(const Tensor& x) {
  return x.elements() <= 1 || x->op->leaf == LeafKind::scalar ||
         (x->op->kind == OpKind::movement && is_one_number(x->inputs[0]));
}

// Returns whether a value is a sum over axes or windows, or what elementwise operations make of
// such sums.
bool is_statistic(const Tensor& x, int depth = 0) {
  if (depth > longest_chain) return false;
  if (x->op->kind == OpKind::reduce) return x->op->combine == ScalarOp::add;
  if (x->op->name == "avg_pool") return true;
  const bool passes = is_elementwise(x) || x->op->kind == OpKind::movement;
  if (!passes || x->inputs.empty()) return false;
  bool any = false;
  for (const Tensor& input : x->inputs) {
    const bool is = is_statistic(input, depth + 1);
    if (!is && !is_one_number(input)) return false;
    any = any || is;
  }
  return any;
}

// Moves another value as x moves its input.
Tensor moved_as(const Tensor& x, const Tensor& input) {
  return input.defined() ? rebuild(*x.node(), {input}) : input;
}
bool is_moved(const Tensor& x) { return x->op->kind == OpKind::movement && x->inputs.size() == 1; }

// Returns the float32 value that a 16-bit one was rounded from, if that is a statistic, or computed
// from one and other values.
Tensor source_of(const Tensor& x) {
  if (!computes_wider(x.dtype())) return {};
  if (is_moved(x)) return moved_as(x, source_of(x->inputs[0]));
  if (x->op->scalar != ScalarOp::cast) return {};
  const Tensor& source = x->inputs[0];
  if (source.dtype() != DType::f32) return {};
  const bool reads =
      is_elementwise(source) &&
      std::ranges::any_of(source->inputs, [](const Tensor& input) { return is_statistic(input); });
  return reads || is_statistic(source) ? source : Tensor();
}
Tensor unrounded(const Tensor& x) {
  const Tensor source = source_of(x);
  return source.defined() ? source : widen(x);
}
}  // namespace

std::optional<DType> unround_operands(const Node& node, std::vector<Tensor>& operands) {
  if (!node.domain.empty() || std::ranges::find(parts, node.op) == parts.end()) return {};
  if (std::ranges::none_of(operands, [](const Tensor& x) {
        return x.defined() && source_of(x).defined() && is_statistic(source_of(x));
      }))
    return {};
  const DType dtype = operands[0].dtype();
  for (Tensor& x : operands)
    if (x.defined()) x = unrounded(x);
  return dtype;
}

Tensor terms_of(const Tensor& x) {
  if (!computes_wider(x.dtype())) return x;
  if (is_moved(x)) {
    const Tensor terms = terms_of(x->inputs[0]);
    return terms.dtype() == x.dtype() ? x : moved_as(x, terms);
  }
  if (is_elementwise(x) && x->op->scalar != ScalarOp::cast) {
    std::vector<Tensor> inputs = x->inputs;
    const bool is_product = x->op->scalar == ScalarOp::mul;
    for (Tensor& input : inputs)
      if (input.dtype() == x.dtype())  // a power is a product of products
        input =
            is_product && input->op->scalar == ScalarOp::mul ? terms_of(input) : unrounded(input);
    return rebuild(*x.node(), std::move(inputs));
  }
  const Tensor source = source_of(x);
  return source.defined() ? source : x;
}

}  // namespace weft::onnx
