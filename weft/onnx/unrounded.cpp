#include "weft/onnx/unrounded.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <string_view>
#include <utility>

#include "weft/base/storage.h"
#include "weft/ir/op_def.h"
#include "weft/ir/variable.h"
#include "weft/tensor/wide.h"

namespace weft::onnx {
namespace {
constexpr std::array<std::string_view, 13> parts{"Abs", "Add",  "Clip",      "Div", "Exp",
                                                 "Log", "Max",  "Min",       "Mul", "Pow",
                                                 "Sub", "Sqrt", "Reciprocal"};
constexpr std::array<std::string_view, 4> scaling_parts{"Div", "Mul", "Pow", "Sqrt"};
constexpr int longest_chain = 16;  // of operations from a sum to a statistic

bool is_elementwise(const Tensor& x) { return x->op->kind == OpKind::elementwise; }

bool is_one_number(const Tensor& x) {
  return x.elements() <= 1 || x->op->leaf == LeafKind::scalar ||
         (x->op->kind == OpKind::movement && is_one_number(x->inputs[0]));
}

// Returns whether x has elements of its first input in other places.
bool is_moved(const Tensor& x) {
  return (x->op->kind == OpKind::movement && x->inputs.size() == 1) || x->op->name == "gather";
}
// Moves another value as x moves its input.
Tensor moved_as(const Tensor& x, const Tensor& input) {
  if (!input.defined()) return input;
  std::vector<Tensor> inputs = x->inputs;
  inputs[0] = input;
  return rebuild(*x.node(), std::move(inputs));
}

// Returns the value whose elements x has, in other places or types.
const Tensor& origin_of(const Tensor& x) {
  const Tensor* at = &x;
  while (is_moved(*at) || (*at)->op->scalar == ScalarOp::cast) at = &(*at)->inputs[0];
  return *at;
}

// Returns whether a value has one number everywhere, as far as its elements are known.
bool is_uniform(const Tensor& x) {
  const Tensor& origin = origin_of(x);
  if (origin->op->leaf == LeafKind::scalar) return true;
  const std::shared_ptr<Storage>& storage =
      origin->variable != nullptr ? origin->variable->storage : origin->storage;
  if (storage == nullptr || storage->is_on_device() || storage->buffer() == nullptr ||
      origin.elements() == 0)
    return false;
  const std::byte* bytes = storage->buffer()->data;
  const size_t size = origin.type().bytes(), one = size_of(origin.dtype());
  return std::memcmp(bytes, bytes + one, size - one) == 0;
}

bool is_sum_of_products(std::span<const Tensor> factors) {
  if (factors.size() < 2) return true;
  if (std::ranges::any_of(factors, is_uniform)) return true;
  return factors.size() == 2 && origin_of(factors[0]).node() == origin_of(factors[1]).node();
}

// Returns whether a value is made by additions of one value in several places, as prefix sums are.
bool adds_copies(const Tensor& x) {
  if (x->op->scalar != ScalarOp::add) return false;
  std::set<const weft::Node*> seen;
  std::vector<const weft::Node*> open{x.node()};
  const weft::Node* copied = nullptr;
  while (!open.empty()) {
    const weft::Node* node = open.back();
    open.pop_back();
    if (!seen.insert(node).second) continue;
    if (node->op->scalar == ScalarOp::add || node->op->kind == OpKind::movement)
      for (const Tensor& input : node->inputs) open.push_back(input.node());
    else if (std::exchange(copied, node) != nullptr)
      return false;
  }
  return true;
}

// Returns whether a value is a sum over axes, windows or prefixes, or what elementwise operations
// make of such sums.
bool is_statistic(const Tensor& x, int depth = 0) {
  if (depth > longest_chain) return false;
  if (x->op->kind == OpKind::reduce) return x->op->combine == ScalarOp::add;
  if (x->op->kind == OpKind::contraction) return is_sum_of_products(x->inputs);
  if (x->op->name == "avg_pool" || adds_copies(x)) return true;
  if (is_moved(x)) return is_statistic(x->inputs[0], depth + 1);
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

bool is_addition(const Tensor& x) {
  return x->op->scalar == ScalarOp::add || x->op->scalar == ScalarOp::sub;
}
// Returns whether a 16-bit value is a sum that a file writes as additions: of another of them, or
// of products.
bool is_written_sum(const Tensor& x) {
  return computes_wider(x.dtype()) && is_addition(x) &&
         std::ranges::any_of(x->inputs, [](const Tensor& input) {
           const Tensor& made = input->op->scalar == ScalarOp::cast ? input->inputs[0] : input;
           return is_addition(made) || made->op->scalar == ScalarOp::mul ||
                  made->op->scalar == ScalarOp::pow;
         });
}
// Returns such a sum in float32, at most `left` operations deep and wide.
Tensor written_sum(const Tensor& x, int& left) {
  const Tensor source = source_of(x);
  if (source.defined()) return source;
  if (!computes_wider(x.dtype())) return x;
  const ScalarOp made_by = x->op->scalar;
  if (made_by == ScalarOp::cast && is_addition(x->inputs[0])) return x->inputs[0];
  const bool is_part = is_addition(x) || made_by == ScalarOp::mul || made_by == ScalarOp::pow;
  if (!is_part || --left < 0) return widen(x);
  std::vector<Tensor> inputs = x->inputs;
  for (Tensor& input : inputs) input = written_sum(input, left);
  return rebuild(*x.node(), std::move(inputs));
}
}  // namespace

std::optional<DType> unround_operands(const Node& node, std::vector<Tensor>& operands) {
  if (!node.domain.empty() || std::ranges::find(parts, node.op) == parts.end()) return {};
  const DType dtype = operands[0].dtype();
  if (std::ranges::any_of(operands, [](const Tensor& x) {
        return x.defined() && source_of(x).defined() && is_statistic(source_of(x));
      })) {
    for (Tensor& x : operands)
      if (x.defined()) x = unrounded(x);
    return dtype;
  }
  // Scales and roots of a written sum alone: what is added to goes on in 16 bits.
  if (std::ranges::find(scaling_parts, node.op) == scaling_parts.end()) return {};
  const auto sum = std::ranges::find_if(operands, is_written_sum);
  if (sum == operands.end()) return {};
  for (const Tensor& x : operands)
    if (&x != &*sum && !is_one_number(x)) return {};
  int left = longest_chain;
  for (Tensor& x : operands) x = written_sum(x, left);
  return dtype;
}

Tensor product_or_sum(std::vector<Tensor> factors, const Product& product) {
  const DType dtype = factors[0].dtype();
  if (!computes_wider(dtype) || !is_sum_of_products(factors))
    return product(factors, /*wide=*/false);
  for (Tensor& factor : factors) factor = terms_of(factor);
  if (std::ranges::any_of(factors, [&](const Tensor& factor) { return factor.dtype() != dtype; }))
    factors = widened(factors);
  return narrow_to(product(factors, /*wide=*/true), dtype);
}

std::vector<Tensor> widened(std::span<const Tensor> values) {
  std::vector<Tensor> wide;
  wide.reserve(values.size());
  for (const Tensor& value : values) wide.push_back(widen(value));
  return wide;
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
