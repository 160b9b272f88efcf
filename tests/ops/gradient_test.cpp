// Compares first and second order gradients of every op with central differences in float64.
#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>

#include "tests/support/interpreter.h"
#include "tests/support/op_cases.h"
#include "weft/base/memory/buffer.h"
#include "weft/ops/autodiff.h"
#include "weft/ops/ops.h"

using namespace weft;
using namespace weft::testing;

namespace {
constexpr int64_t many_elements = 100, slopes_of_many = 16;
constexpr double step = 5e-4, allowed_error = 1e-7, floor_of_slopes = 0.01;

// A RandomFunction is a random scalar function: the sum of an op's result times fixed weights.
struct RandomFunction {
  Value result;
  std::vector<Value> variables;  // its float64 operands
};

RandomFunction draw_function(const OpDef& def, Random& random) {
  RandomFunction function;
  CaseSource source{.random = random, .operand = [&](const Type& type, double low, double high) {
                      Value operand = random_values(type, low, high, random);
                      if (type.dtype == DType::f64) function.variables.push_back(operand);
                      return operand;
                    }};
  source.extents = {1, 2, 3};
  source.most_elements = 12;
  source.max_rank = 3;
  function.result = draw_case(def, DType::f64, source);
  return function;
}

Value weighted_sum(const Value& value, Random& random) {
  return sum(value * random_values(value.type(), -1, 1, random));
}

// A Direction moves some elements of a variable at once, each by another factor.
struct Direction {
  std::vector<std::pair<int64_t, double>> factors;  // by element
};

// Returns directions that together move every element: one element each, or of variables with many
// elements several, since each slope takes four evaluations.
std::vector<Direction> directions_of(const Value& variable) {
  const bool is_large = variable.elements() > many_elements;
  const int64_t count = is_large ? slopes_of_many : variable.elements();
  std::vector<Direction> all(static_cast<size_t>(count));
  Random random(1);
  for (int64_t i = 0; i < variable.elements(); ++i) {
    const double factor = is_large ? (random.chance(0.5) ? 1 : -1) * (0.5 + random.unit()) : 1;
    all[static_cast<size_t>(i % count)].factors.emplace_back(i, factor);
  }
  return all;
}

// Returns the derivative of the loss along the direction, by central differences of fourth order.
double slope(const Value& loss, const Value& variable, const Direction& direction) {
  auto* data = reinterpret_cast<double*>(variable->data());
  const std::vector<double> saved(data, data + variable.elements());
  auto at = [&](double offset) {
    for (const auto& [element, factor] : direction.factors)
      data[element] = saved[static_cast<size_t>(element)] + factor * offset;
    return elements(interpret(loss)).front();
  };
  double near = at(step) - at(-step), far = at(2 * step) - at(-2 * step);
  std::ranges::copy(saved, data);
  return (8 * near - far) / (12 * step);
}

// Returns "" if the gradients of `loss` agree with its slopes, else the first that does not.
std::string wrong_gradient(const Value& loss, const std::vector<Value>& variables) {
  std::vector<Value> wanted = gradients(loss, variables);
  std::vector<Value> computed = interpret(wanted);
  for (size_t v = 0; v < variables.size(); ++v) {
    std::vector<double> values = elements(computed[v]);
    for (const Direction& direction : directions_of(variables[v])) {
      double expected = slope(loss, variables[v], direction), got = 0;
      for (const auto& [element, factor] : direction.factors)
        got += factor * values[static_cast<size_t>(element)];
      if (!(std::fabs(got - expected) <=
            allowed_error * std::max(floor_of_slopes, std::fabs(expected))))
        return fmt::format("variable {} {} element {}: {:.17g}, not {:.17g}", v,
                           to_string(variables[v].type()), direction.factors.front().first, got,
                           expected);
    }
  }
  return "";
}
void check_gradients(const Value& loss, const std::vector<Value>& variables) {
  CHECK(wrong_gradient(loss, variables) == "");
}

// Returns whether the op is piecewise constant: a wrong rule gives the same zero gradient.
bool constant_gradient(const OpDef& def) {
  for (std::string_view name : {"sign", "floor", "ceil", "round", "trunc", "stop_gradient"})
    if (def.name == name) return true;
  return false;
}
bool has_gradient(const OpDef& def) {
  return def.test.floats && def.test.no_gradient.empty() && def.test.differentiable &&
         def.kind != OpKind::leaf;
}
}  // namespace

TEST_CASE("every op has a gradient or a stated reason for none") {
  for (const OpDef* def : registered_ops()) {
    if (def->kind == OpKind::leaf || !has_cases(*def)) continue;
    INFO(def->name);
    Random random(1);
    CaseSource source{.random = random, .operand = [&](const Type& type, double low, double high) {
                        return random_values(type, low, high, random);
                      }};
    const Value result = draw_case(*def, dtypes_of(*def).front(), source);
    const bool by_parts =
        def->decompose != nullptr && is_float(result.dtype()) && !info(result.dtype()).stored_only;
    bool differentiable = def->gradient != nullptr || by_parts;
    CHECK(differentiable == def->test.no_gradient.empty());
  }
}

TEST_CASE("first order gradients agree with finite differences") {
  for (const OpDef* def : registered_ops()) {
    if (!has_gradient(*def)) continue;
    for (uint64_t seed = 0; seed < 6; ++seed) {
      INFO(def->name << " seed " << seed);
      Random random(seed);
      RandomFunction function = draw_function(*def, random);
      if (function.result.dtype() != DType::f64) continue;  // a cast that rounds
      check_gradients(weighted_sum(function.result, random), function.variables);
    }
  }
}

namespace {
void check_second_order(uint64_t first_seed, uint64_t seeds) {
  for (const OpDef* def : registered_ops()) {
    if (!has_gradient(*def)) continue;
    for (uint64_t seed = first_seed; seed < first_seed + seeds; ++seed) {
      INFO(def->name << " seed " << seed);
      Random random(seed);
      RandomFunction function = draw_function(*def, random);
      if (function.result.dtype() != DType::f64) continue;
      Value loss = weighted_sum(function.result, random);
      for (const Value& gradient : gradients(loss, function.variables))
        check_gradients(weighted_sum(gradient, random), function.variables);
    }
  }
}
}  // namespace

TEST_CASE("second order gradients agree with finite differences") { check_second_order(10, 1); }
TEST_SUITE("slow gradients") {
  TEST_CASE("second order gradients agree with finite differences on many shapes") {
    check_second_order(11, 5);
  }
}

// The wrong rules are off by 1e-6 in the first operand that has a gradient.
TEST_CASE("a wrong gradient rule of any op is detected") {
  for (const OpDef* def : registered_ops()) {
    if (!has_gradient(*def) || def->gradient == nullptr) continue;
    OpDef wrong = *def;
    wrong.gradient = [](const Value& y, const Value& dy) {
      Gradients right = op(y->op->name).gradient(y, dy);
      for (Value& gradient : right)
        if (gradient.defined() && is_float(gradient.dtype())) {
          gradient = gradient * (1 + 1e-6);
          break;
        }
      return right;
    };
    INFO(def->name);
    int caught = 0, drawn = 0;
    for (uint64_t seed = 0; seed < 6; ++seed) {
      Random random(seed);
      RandomFunction function = draw_function(wrong, random);
      if (function.result.dtype() != DType::f64) continue;  // a cast that rounds
      ++drawn;
      caught += !wrong_gradient(weighted_sum(function.result, random), function.variables).empty();
    }
    bool flat = def->test.no_gradient.empty() && constant_gradient(*def);
    CHECK((flat || 2 * caught >= drawn));
  }
}

TEST_CASE("gradients of an operand with several uses add up") {
  Random random(1);
  Value x = random_values({DType::f64, {1, 2, 3, 4}}, -1, 1, random);
  check_gradients(weighted_sum(attention(x, x, x), random), {x});
  const Type heads{DType::f64, {2, 4, 3, 2}}, cache{DType::f64, {2, 2, 5, 2}};
  const Value q = random_values(heads, -1, 1, random), k = random_values(cache, -1, 1, random),
              v = random_values(cache, -1, 1, random);
  const Value start = constant(std::vector<double>{1, 0}, {2}, DType::i64);
  check_gradients(
      weighted_sum(attention(q, k, v, {.causal = true, .window = 2, .start = start}), random),
      {q, k, v});
  check_gradients(weighted_sum(attention(q, k, v, {.causal = true, .softcap = 0.5}), random),
                  {q, k, v});
  const Value bias = random_values({DType::f64, {3, 5}}, -1, 1, random);
  check_gradients(weighted_sum(attention(q, k, v, {.mask = bias, .softcap = 0.5}), random),
                  {q, k, v, bias});
  check_gradients(weighted_sum(x * x + x, random), {x});
  Value square = random_values({DType::f64, {3, 3}}, -1, 1, random);
  check_gradients(weighted_sum(matmul(square, matmul(square, transpose(square))), random),
                  {square});
}

TEST_CASE("gradients of composite activations agree with finite differences") {
  Random random(2);
  Value x = random_values({DType::f64, {24}}, -6, 6, random);
  for (auto activation :
       {+[](const Value& v) { return relu6(v); }, +[](const Value& v) { return elu(v, 0.7); },
        +[](const Value& v) { return leaky_relu(v, 0.2); }, +[](const Value& v) { return selu(v); },
        +[](const Value& v) { return mish(v); }, +[](const Value& v) { return log_sigmoid(v); },
        +[](const Value& v) { return hardsigmoid(v); },
        +[](const Value& v) { return hardswish(v); }, +[](const Value& v) { return celu(v, 0.7); },
        +[](const Value& v) { return hardtanh(v, -2, 3); },
        +[](const Value& v) { return softsign(v); }, +[](const Value& v) { return glu(v); },
        +[](const Value& v) { return glu(reshape(v, {3, 4, 2}), 1); }})
    check_gradients(weighted_sum(activation(x), random), {x});
}

TEST_CASE("gradients of array functions agree with finite differences") {
  Random random(3);
  const Value x = random_values({DType::f64, {4, 6}}, -2, 2, random);
  const Value other = random_values({DType::f64, {4, 6}}, -2, 2, random);
  const Value indices = random_values({DType::i64, {4, 3}}, -1, 6, random);
  const Value rows = random_values({DType::i64, {5}}, 0, 3, random);
  for (auto function :
       {+[](const Value& a, const Value&) { return a[{range(1, to_end, 2), -1}]; },
        +[](const Value& a, const Value&) { return cumsum(a, 0); },
        +[](const Value& a, const Value&) { return cumsum(a, 1); },
        +[](const Value& a, const Value&) { return stddev(a, 1); },
        +[](const Value& a, const Value&) { return norm(a, {.axes = {0}}, 1.5); },
        +[](const Value& a, const Value&) { return reflect_pad(a, {1, 0}, {3, 2}); },
        +[](const Value& a, const Value&) { return tile(a, {2, 1, 3}); },
        +[](const Value& a, const Value&) { return repeat(a, 3, 0); },
        +[](const Value& a, const Value&) { return tril(a, 1) + triu(a, 2); },
        +[](const Value& a, const Value&) { return sort(a, 0, true); },
        +[](const Value& a, const Value&) { return topk(a, 2).values; },
        +[](const Value& a, const Value& b) { return einsum("ij,kj,ij->ik", {a, b, a}); },
        +[](const Value& a, const Value&) {
          return interpolate(a.reshape({1, 2, 3, 4}), {.size = {5, 3}});
        },
        +[](const Value& a, const Value&) {
          return interpolate(a.reshape({1, 2, 3, 4}),
                             {.size = {2, 7}, .mode = Interpolation::linear});
        },
        +[](const Value& a, const Value& b) { return huber_loss(a, b, 0.7, Reduction::none); },
        +[](const Value& a, const Value& b) { return smooth_l1_loss(a, b, 0.5, Reduction::sum); },
        +[](const Value& a, const Value& b) { return kl_div(a, exp(b)); },
        +[](const Value& a, const Value& b) {
          return binary_cross_entropy(sigmoid(a), sigmoid(b));
        },
        +[](const Value& a, const Value& b) { return hinge_loss(a, b, Reduction::none); }})
    check_gradients(weighted_sum(function(x, other), random), {x, other});
  const Value puts = random_values({DType::f64, {4, 3}}, -2, 2, random);
  const Value updates = random_values({DType::f64, {5, 6}}, -2, 2, random);
  check_gradients(weighted_sum(take_along_axis(x, indices), random), {x});
  check_gradients(weighted_sum(put_along_axis(x, indices, puts), random), {x, puts});
  check_gradients(weighted_sum(index_put(x, rows, updates), random), {x, updates});
}
