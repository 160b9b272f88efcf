#include "weft/onnx/operators/unrounded.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "weft/base/memory/storage.h"
#include "weft/ir/op_def.h"
#include "weft/ir/variable.h"
#include "weft/onnx/operators/operators.h"
#include "weft/tensor/wide.h"

namespace weft::onnx {
namespace {
// Elementwise operators that are no parts: they change only the type, or nothing, or ask whether a
// number is finite, which must be the rounded number of the graph.
constexpr std::array<std::string_view, 6> not_parts{"BitCast",  "Cast",  "CastLike",
                                                    "Identity", "IsInf", "IsNaN"};
constexpr std::array<std::string_view, 4> scaling_parts{"Div", "Mul", "Pow", "Sqrt"};
constexpr int longest_chain = 16;  // most operations between a sum and a statistic
constexpr int most_moves = 64;     // most movements between a rounding and its reader

bool is_elementwise(const Tensor& x) { return x->op->kind == OpKind::elementwise; }

bool is_one_number(const Tensor& x) {
  return x.elements() <= 1 || x->op->leaf == LeafKind::scalar ||
         (x->op->kind == OpKind::movement && is_one_number(x->inputs[0]));
}

// Returns whether x holds elements of its first input at other positions.
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

// Returns the value that the elements of x come from, through movements, gathers and casts.
const Tensor& origin_of(const Tensor& x) {
  const Tensor* at = &x;
  while (is_moved(*at) || (*at)->op->scalar == ScalarOp::cast) at = &(*at)->inputs[0];
  return *at;
}

// Returns whether all elements of a value that are not 0 are one number; false where elements are
// not known.
bool is_mask(const Tensor& x) {
  const Tensor& origin = origin_of(x);
  if (origin->op->leaf == LeafKind::scalar) return true;
  const std::shared_ptr<Storage>& storage =
      origin->variable != nullptr ? origin->variable->storage : origin->storage;
  if (storage == nullptr || storage->is_on_device() || storage->buffer() == nullptr ||
      origin.elements() == 0)
    return false;
  const std::byte* bytes = storage->buffer()->data;
  const size_t size = origin.type().bytes(), one = size_of(origin.dtype());
  const std::array<std::byte, 16> zero{};
  const std::byte* number = nullptr;
  for (const std::byte* at = bytes; at != bytes + size; at += one) {
    if (std::memcmp(at, zero.data(), one) == 0) continue;
    if (number == nullptr) number = at;
    if (std::memcmp(at, number, one) != 0) return false;
  }
  return true;
}

bool is_computed(const Tensor& x) {
  const Tensor& origin = origin_of(x);
  return origin->variable == nullptr && origin->storage == nullptr;
}

// Returns whether a product is in effect a sum: of the elements that a mask selects, of squares, or
// of a row weighted by a computed row.
bool is_sum_of_products(std::span<const Tensor> factors) {
  if (factors.size() < 2) return true;
  if (std::ranges::any_of(factors, is_mask)) return true;
  if (factors.size() > 2) return false;
  const Tensor &a = factors[0], &b = factors[1];
  if (origin_of(a).node() == origin_of(b).node()) return true;
  const bool is_of_vector = a.rank() < 2 || b.rank() < 2 || a.dim(-2) == 1 || b.dim(-1) == 1;
  return is_of_vector && is_computed(a) && is_computed(b);
}

// Returns whether a value adds one value to itself at several positions, as prefix sums do.
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

// Unrounding finds the float32 values that 16-bit values were rounded from. It caches them, because
// graphs reach one value on many paths.
class Unrounding {
 public:
  // Returns the float32 value that a 16-bit value was rounded from, if that is a statistic or
  // computed from a statistic and other values; else empty.
  Tensor source_of(const Tensor& x, int depth = 0) {
    if (!computes_wider(x.dtype()) || depth > most_moves) return {};
    const auto known = sources_.find(x.node());
    if (known != sources_.end()) return known->second;
    return sources_[x.node()] = find_source(x, depth);
  }
  Tensor unrounded(const Tensor& x) {
    const Tensor source = source_of(x);
    return source.defined() ? source : widen(x);
  }
  Tensor terms_of(const Tensor& x, int depth = 0) {
    if (!computes_wider(x.dtype()) || depth > most_moves) return x;
    const auto known = terms_.find(x.node());
    if (known != terms_.end()) return known->second;
    return terms_[x.node()] = find_terms(x, depth);
  }

 private:
  // Returns whether a value is a statistic: a sum over axes, windows or prefixes, or made of such
  // sums by elementwise operations that do not broadcast, activations (composites) and extremes.
  bool is_statistic(const Tensor& x, int depth = 0) {
    if (depth > longest_chain) return false;
    const auto known = statistics_.find(x.node());
    if (known != statistics_.end()) return known->second;
    return statistics_[x.node()] = find_statistic(x, depth);
  }
  bool find_statistic(const Tensor& x, int depth) {
    const auto is_in_it = [&](const Tensor& input) { return is_statistic(input, depth + 1); };
    const OpKind kind = x->op->kind;
    if (kind == OpKind::reduce) return x->op->combine == ScalarOp::add || is_in_it(x->inputs[0]);
    if (kind == OpKind::contraction) return is_sum_of_products(x->inputs);
    if (kind == OpKind::window) return x->op->name == "avg_pool" || is_in_it(x->inputs[0]);
    if (adds_copies(x)) return true;
    if (is_moved(x)) return is_in_it(x->inputs[0]);
    if (kind == OpKind::movement) return std::ranges::all_of(x->inputs, is_in_it);
    return (kind == OpKind::elementwise || kind == OpKind::composite) &&
           std::ranges::any_of(x->inputs, [&](const Tensor& input) {
             return input.elements() == x.elements() && is_in_it(input);
           });
  }

  Tensor find_source(const Tensor& x, int depth) {
    if (is_moved(x)) return moved_as(x, source_of(x->inputs[0], depth + 1));
    // The operation joins several values (concat), or selects between two.
    if (x->op->kind == OpKind::movement || x->op->scalar == ScalarOp::select) {
      std::vector<Tensor> inputs = x->inputs;
      bool any = false;
      for (Tensor& input : inputs) {
        const Tensor source = source_of(input, depth + 1);
        any = any || source.defined();
        input = source.defined() ? source : widen(input);
      }
      return any ? rebuild(*x.node(), std::move(inputs)) : Tensor();
    }
    if (x->op->scalar != ScalarOp::cast) return {};
    const Tensor& source = x->inputs[0];
    if (source.dtype() != DType::f32) return {};
    return is_unrounded(source, depth) ? source : Tensor();
  }
  // Returns whether a float32 value is a statistic, is computed from a statistic and other values,
  // or is an extreme of such values.
  bool is_unrounded(const Tensor& x, int depth) {
    if (is_statistic(x)) return true;
    if (depth > most_moves) return false;
    const OpKind kind = x->op->kind;
    if (is_moved(x) || kind == OpKind::window || kind == OpKind::reduce)
      return is_unrounded(x->inputs[0], depth + 1);
    return (kind == OpKind::elementwise || kind == OpKind::composite) &&
           std::ranges::any_of(x->inputs, [&](const Tensor& input) { return is_statistic(input); });
  }

  Tensor find_terms(const Tensor& x, int depth) {
    if (is_moved(x)) {
      const Tensor terms = terms_of(x->inputs[0], depth + 1);
      return terms.dtype() == x.dtype() ? x : moved_as(x, terms);
    }
    if (is_elementwise(x) && x->op->scalar != ScalarOp::cast) {
      std::vector<Tensor> inputs = x->inputs;
      const bool is_product = x->op->scalar == ScalarOp::mul;
      for (Tensor& input : inputs)
        if (input.dtype() == x.dtype())  // a power is a product of products
          input = is_product && input->op->scalar == ScalarOp::mul
                      ? widen(terms_of(input, depth + 1))
                      : unrounded(input);
      return rebuild(*x.node(), std::move(inputs));
    }
    Tensor source = source_of(x, depth);
    return source.defined() ? source : x;
  }

  std::unordered_map<const weft::Node*, Tensor> sources_, terms_;
  std::unordered_map<const weft::Node*, bool> statistics_;
};

bool is_addition(const Tensor& x) {
  return x->op->scalar == ScalarOp::add || x->op->scalar == ScalarOp::sub;
}
// Returns the operation that made a value, before it was rounded and moved.
const Tensor& made_by(const Tensor& x) {
  const Tensor* at = &x;
  while (is_moved(*at)) at = &(*at)->inputs[0];
  const bool is_rounded =
      (*at)->op->scalar == ScalarOp::cast && (*at)->inputs[0].dtype() == DType::f32;
  return is_rounded ? (*at)->inputs[0] : *at;
}
// Returns whether a 16-bit value is a sum that a file writes as additions: of computed values as
// large as the sum, or of at least one term that is itself a sum, a product or a power. The
// addition of a bias is no such sum.
bool is_written_sum(const Tensor& x) {
  if (!x.defined() || !computes_wider(x.dtype()) || !is_addition(made_by(x))) return false;
  const std::vector<Tensor>& terms = made_by(x)->inputs;
  return std::ranges::all_of(terms,
                             [&](const Tensor& term) {
                               return origin_of(term).elements() >= made_by(x).elements() &&
                                      is_computed(term);
                             }) ||
         std::ranges::any_of(terms, [](const Tensor& term) {
           const ScalarOp op = made_by(term)->op->scalar;
           return is_addition(made_by(term)) || op == ScalarOp::mul || op == ScalarOp::pow;
         });
}
// Returns a written sum in float32, rebuilt by at most `left` more operations.
Tensor written_sum(Unrounding& find, const Tensor& x, int& left) {
  Tensor source = find.source_of(x);
  if (source.defined()) return source;
  if (!computes_wider(x.dtype())) return x;
  if (is_moved(x)) {
    if (--left < 0) return widen(x);
    return moved_as(x, written_sum(find, x->inputs[0], left));
  }
  const ScalarOp op = x->op->scalar;
  if (op == ScalarOp::cast && is_addition(x->inputs[0])) return x->inputs[0];
  const bool is_part = is_addition(x) || op == ScalarOp::mul || op == ScalarOp::pow;
  if (!is_part || --left < 0) return widen(x);
  std::vector<Tensor> inputs = x->inputs;
  for (Tensor& input : inputs) input = written_sum(find, input, left);
  return rebuild(*x.node(), std::move(inputs));
}

bool is_part(const Node& node) {
  if (!node.domain.empty() || std::ranges::find(not_parts, node.op) != not_parts.end())
    return false;
  return std::ranges::find(elementwise_operators(), node.op, &Operator::name) !=
         elementwise_operators().end();
}
bool is_16_bit(const Tensor& x) { return x.defined() && computes_wider(x.dtype()); }
}  // namespace

std::optional<DType> unround_operands(const Node& node, std::vector<Tensor>& operands) {
  const auto rounded = std::ranges::find_if(operands, is_16_bit);
  if (rounded == operands.end() || !is_part(node)) return {};
  const DType dtype = rounded->dtype();
  Unrounding find;
  if (std::ranges::any_of(
          operands, [&](const Tensor& x) { return x.defined() && find.source_of(x).defined(); })) {
    for (Tensor& x : operands)
      if (x.defined()) x = find.unrounded(x);
    return dtype;
  }
  // A written sum is read in float32 only by operators that scale it or take its root; other sums
  // go on in 16 bits.
  if (std::ranges::find(scaling_parts, node.op) == scaling_parts.end()) return {};
  const auto sum = std::ranges::find_if(operands, is_written_sum);
  if (sum == operands.end()) return {};
  for (const Tensor& x : operands)
    if (&x != &*sum && !is_one_number(x)) return {};
  int left = longest_chain;
  for (Tensor& x : operands) x = written_sum(find, x, left);
  return dtype;
}

Tensor before_rounding(const Tensor& x) {
  Tensor source = Unrounding().source_of(x);
  return source.defined() ? source : x;
}

Tensor product_or_sum(std::vector<Tensor> factors, const Product& product) {
  const DType dtype = factors[0].dtype();
  if (!computes_wider(dtype) || !is_sum_of_products(factors))
    return product(factors, /*wide=*/false);
  Unrounding find;
  for (Tensor& factor : factors) factor = find.terms_of(factor);
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

Tensor terms_of(const Tensor& x) { return Unrounding().terms_of(x); }

}  // namespace weft::onnx
