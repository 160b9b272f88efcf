#include "tests/support/rounding.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/interpreter.h"
#include "tests/support/values.h"
#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"

namespace weft::testing {
namespace {
// Returns the least positive number, which is the size of roundings below the normal range.
double least_number(DType dtype) {
  // Devices may flush denormals of float32's range.
  if (dtype == DType::f32 || dtype == DType::bf16) return std::numeric_limits<float>::min();
  const FloatFormat& format = info(dtype).format;
  return std::ldexp(1.0, format.least_exponent() - format.fraction);
}

// Returns by how many roundings two evaluations of a scalar operation may differ.
double roundings(const OpDef& def) {
  constexpr std::string_view whole[] = {"floor", "ceil", "trunc", "round"};
  if (std::ranges::find(whole, def.name) != std::end(whole)) return 0;
  if (def.representable) return 0;
  // These differ by at most one unit in the last place.
  constexpr std::string_view exact[] = {"sqrt", "reciprocal", "cast", "add", "sub", "mul", "div"};
  return std::ranges::find(exact, def.name) != std::end(exact) ? 2 : 8;
}

Errors magnitudes(const Value& data) {
  Errors result = elements(data);
  for (double& x : result) x = std::fabs(x);
  return result;
}
Value leaf(const Errors& numbers, const Shape& shape) {
  return constant(numbers, shape, DType::f64);
}

class Rule {
 public:
  Rule(const Node& node, const Value& result, std::span<const Value> operands,
       std::span<const Errors> errors)
      : node_(node), result_(result), operands_(operands), errors_(errors) {}

  Errors run() const {
    switch (node_.op->kind) {
      case OpKind::elementwise:
        return elementwise();
      case OpKind::reduce:
        return reduce();
      case OpKind::movement:
        return movement();
      case OpKind::gather:
        if (node_.op->arity == 2) return elements(apply({part(0, errors_[0]), operands_[1]}));
        return linear({0, 2});
      case OpKind::contraction:
        return linear({0, 1});
      case OpKind::window:
        if (node_.is("max_pool")) return elements(apply({part(0, errors_[0])}));
        return node_.is("max_pool_gradient") ? linear({1}) : linear({0});
      default:
        return Errors(static_cast<size_t>(result_.elements()), 0.0);
    }
  }

 private:
  Value part(size_t operand, const Errors& numbers) const {
    return leaf(numbers, operands_[operand].shape());
  }
  // Evaluates the op in float64 on other operands.
  Value apply(const std::vector<Value>& operands) const {
    return interpret(make_node(*node_.op, operands, node_.attrs));
  }
  // Returns the error of rounding the results and of summing `terms` with magnitudes `sums`.
  Errors rounded(const Errors& sums, double terms) const {
    double unit = unit_roundoff(node_.type.dtype),
           inner = unit_roundoff(accumulator(node_.type.dtype)) * (4 + terms / 2);
    Errors all = magnitudes(result_);
    for (size_t i = 0; i < all.size(); ++i) {
      all[i] = inner * sums[i] + 2 * unit * all[i];
      if (all[i] > 0) all[i] += least_number(node_.type.dtype);
    }
    return all;
  }

  Errors elementwise() const {
    Errors all = magnitudes(result_);
    double own = unit_roundoff(node_.type.dtype) * roundings(*node_.op);
    std::vector<std::vector<double>> in;
    for (const Value& operand : operands_) in.push_back(elements(operand));
    for (size_t i = 0; i < all.size(); ++i) {
      double x[3] = {0, 0, 0};
      for (size_t k = 0; k < in.size(); ++k) x[k] = in[k][i];
      all[i] = std::isfinite(all[i]) ? all[i] * own : 0;  // infinity is not rounded
      for (size_t k = 0; k < in.size(); ++k) all[i] += carried(x, k, errors_[k][i]);
      if (all[i] > 0) all[i] += least_number(node_.type.dtype);
    }
    return all;
  }
  // Returns how far the result moves if operand `k` changes by `error`.
  double carried(const double (&x)[3], size_t k, double error) const {
    if (error == 0 || !is_float(node_.type.dtype)) return 0;
    double here = evaluate(*node_.op, x[0], x[1], x[2]), most = 0;
    for (double sign : {-1.0, 1.0}) {
      double moved[3] = {x[0], x[1], x[2]};
      moved[k] += sign * error;
      double there = evaluate(*node_.op, moved[0], moved[1], moved[2]);
      if (there != here) most = std::max(most, std::fabs(there - here));
      if (std::isnan(there) && !std::isnan(here)) most = INFINITY;
    }
    return most;
  }

  Errors reduce() const {
    if (!is_float(node_.type.dtype)) return Errors(static_cast<size_t>(result_.elements()), 0.0);
    if (node_.is("max") || node_.is("min")) return elements(interpret(max_of(part(0, errors_[0]))));
    double terms = static_cast<double>(operands_[0].elements()) /
                   std::max(1.0, static_cast<double>(result_.elements()));
    Errors x = magnitudes(operands_[0]), sums = elements(apply({part(0, x)}));
    for (size_t i = 0; i < x.size(); ++i) x[i] += errors_[0][i];
    Errors moved = elements(apply({part(0, x)})), all = rounded(sums, terms);
    for (size_t i = 0; i < all.size(); ++i) all[i] += moved[i] - sums[i];
    return all;
  }
  Value max_of(const Value& x) const { return make_node(op("max"), {x}, node_.attrs); }

  Errors movement() const {
    std::vector<Value> moved;
    moved.reserve(operands_.size());
    for (size_t i = 0; i < operands_.size(); ++i) moved.push_back(part(i, errors_[i]));
    if (!node_.is("pad")) return elements(apply(moved));
    return elements(interpret(pad(moved[0], node_.attrs.dims("low"), node_.attrs.dims("high"))));
  }

  // Propagates errors of an op that is linear in each of these operands.
  Errors linear(std::initializer_list<size_t> places) const {
    std::vector<Value> sizes(operands_.begin(), operands_.end());
    for (size_t place : places) sizes[place] = part(place, magnitudes(operands_[place]));
    if (node_.is("max_pool_gradient")) sizes[0] = part(0, elements(operands_[0]));
    double count = std::max(1.0, static_cast<double>(result_.elements()));
    Errors all = rounded(elements(apply(sizes)), flops(node_) / count);
    bool sums_up = node_.is("scatter_add");  // linear in all of them together
    for (size_t place : places) {
      if (std::ranges::all_of(errors_[place], [](double error) { return error == 0; })) continue;
      std::vector<Value> moved = sizes;
      if (sums_up)
        for (size_t other : places) moved[other] = part(other, Errors(errors_[other].size(), 0.0));
      moved[place] = part(place, errors_[place]);
      Errors more = elements(apply(moved));
      for (size_t i = 0; i < all.size(); ++i) all[i] += more[i];
    }
    return all;
  }

  const Node& node_;
  const Value& result_;
  std::span<const Value> operands_;
  std::span<const Errors> errors_;
};
}  // namespace

double unit_roundoff(DType dtype) {
  return is_float(dtype) ? std::ldexp(0.5, -info(dtype).format.fraction) : 0;
}

Errors allowed_errors(const Node& node, const Value& result, std::span<const Value> operands,
                      std::span<const Errors> errors) {
  if (!is_float(node.type.dtype)) return Errors(static_cast<size_t>(result.elements()), 0.0);
  return Rule(node, result, operands, errors).run();
}
}  // namespace weft::testing
