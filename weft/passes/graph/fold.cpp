#include "weft/passes/graph/fold.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "weft/base/memory/buffer.h"
#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"

namespace weft {
namespace {
constexpr int64_t most_elements = 1024;              // elements of a folded array
constexpr double exact_integers = 9007199254740992;  // 2^53: doubles hold every integer up to here

double round_to(DType dtype, double number) {
  alignas(8) std::byte bytes[8];
  store(bytes, dtype, 0, number);
  return load(bytes, dtype, 0);
}

double smallest_normal(DType dtype) { return std::ldexp(1.0, info(dtype).format.least_exponent()); }

std::pair<double, double> integer_range(DType dtype) {
  const double end = std::min(std::ldexp(1.0, whole_bits(dtype)), exact_integers);
  return {info(dtype).kind == NumberKind::with_sign ? -end : 0, end - 1};
}

bool is_exact(const OpDef& def, DType dtype) {
  return def.exact == Exact::always || (def.exact == Exact::on_integers && !is_float(dtype));
}

// Returns the result in `dtype`, or nullopt where overflow, NaN or denormals depend on the kernel.
std::optional<double> representable(DType dtype, double number) {
  if (dtype == DType::boolean) return number != 0;
  if (is_float(dtype)) {
    double rounded = round_to(dtype, number);
    bool plain = rounded == 0 ? number == 0 : std::fabs(rounded) >= smallest_normal(dtype);
    return plain && std::isfinite(rounded) ? std::optional(rounded) : std::nullopt;
  }
  auto [low, high] = integer_range(dtype);
  double whole = std::trunc(number);
  return whole >= low && whole <= high ? std::optional(whole) : std::nullopt;
}

// Returns element `i`, row-major, of a uniform value or of a "data" leaf.
std::optional<double> element(const Value& value, int64_t i) {
  if (auto number = uniform_value(value)) return number;
  if (!value->has_data()) return std::nullopt;
  double number = load(value->data(), value.dtype(), i);
  bool exact = is_float(value.dtype()) || std::fabs(number) <= exact_integers;
  return exact ? std::optional(number) : std::nullopt;
}

std::optional<double> evaluate(const Node& node, int64_t i) {
  double operands[3] = {0, 0, 0};
  for (size_t k = 0; k < node.inputs.size(); ++k) {
    auto number = element(node.inputs[k], i);
    if (!number) return std::nullopt;
    operands[k] = *number;
  }
  const double result = weft::evaluate(*node.op, operands[0], operands[1], operands[2]);
  return representable(node.type.dtype, result);
}

Value fold_elementwise(const Value& value) {
  const Node& node = *value.node();
  if (node.inputs.empty() || node.inputs.size() > 3) return {};
  if (!is_exact(*node.op, node.inputs[0].dtype())) return {};
  bool same = std::all_of(node.inputs.begin(), node.inputs.end(),
                          [](const Value& input) { return uniform_value(input).has_value(); });
  if (same) {
    auto number = evaluate(node, 0);
    return number ? filled(node.type, *number) : Value();
  }
  if (node.type.elements() > most_elements) return {};
  std::vector<double> numbers;
  for (int64_t i = 0; i < node.type.elements(); ++i) {
    auto number = evaluate(node, i);
    if (!number) return {};
    numbers.push_back(*number);
  }
  return numbers.empty() ? Value() : constant(numbers, node.type.shape, node.type.dtype);
}

// Folds movements of equal elements, if the padding is equal, too.
Value fold_movement(const Value& value) {
  const Node& node = *value.node();
  if (node.inputs.empty()) return {};
  auto number = uniform_value(node.inputs[0]);
  if (!number) return {};
  for (const Value& input : node.inputs) {
    auto other = uniform_value(input);
    if (!other || *other != *number || std::signbit(*other) != std::signbit(*number)) return {};
  }
  if (node.op->view == nullptr && node.op->arity == 1) {  // the padding
    double padding = round_to(node.type.dtype, node.attrs.number("value"));
    if (padding != *number || std::signbit(padding) != std::signbit(*number)) return {};
  }
  return filled(node.type, *number);
}

// Folds extremes of equal elements, and sums whose every partial sum is exact.
Value fold_reduction(const Value& value) {
  const Node& node = *value.node();
  auto number = uniform_value(node.inputs[0]);
  if (!number || node.type.elements() == 0 || node.inputs[0].elements() == 0) return {};
  const ScalarOp combine = node.op->combine;
  if (combine == ScalarOp::maximum || combine == ScalarOp::minimum)
    return filled(node.type, *number);
  if (combine != ScalarOp::add || *number != std::trunc(*number)) return {};
  int64_t terms = node.inputs[0].elements() / node.type.elements();
  double total = *number * static_cast<double>(terms);
  double limit = accumulator(node.type.dtype) == DType::f32 ? 0x1p24 : exact_integers;
  if (std::fabs(total) > limit) return {};
  auto sum = representable(node.type.dtype, total);
  return sum ? filled(node.type, *sum + 0.0) : Value();
}
}  // namespace

std::optional<double> uniform_value(const Value& value) {
  const Node* node = value.node();
  while (node->op->view != nullptr) node = node->inputs[0].node();
  if (node->op->leaf == LeafKind::scalar) {
    double number = node->attrs.number("value");
    bool exact = is_float(node->type.dtype) || std::fabs(number) <= exact_integers;
    return exact ? std::optional(round_to(node->type.dtype, number)) : std::nullopt;
  }
  if (node->has_data() && node->type.elements() == 1) {
    double number = load(node->data(), node->type.dtype, 0);
    bool exact = is_float(node->type.dtype) || std::fabs(number) <= exact_integers;
    return exact ? std::optional(number) : std::nullopt;
  }
  return std::nullopt;
}

Value filled(const Type& type, double number) { return full(type.shape, number, type.dtype); }

Value fold(const Value& value) {
  switch (value->op->kind) {
    case OpKind::elementwise:
      return fold_elementwise(value);
    case OpKind::movement:
      return fold_movement(value);
    case OpKind::reduce:
      return fold_reduction(value);
    default:
      return {};
  }
}

}  // namespace weft
