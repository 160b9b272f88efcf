// Tests sums inside of operations: on 16-bit floats they are in float32 until the result is rounded
// once, and long sums of nearly equal numbers lose no more digits than short ones.
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <unordered_set>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/interpreter.h"
#include "tests/support/op_cases.h"
#include "tests/support/planned.h"
#include "tests/support/values.h"
#include "weft/base/numbers/hash.h"
#include "weft/ops/autodiff.h"
#include "weft/ops/ops.h"

using namespace weft;
using namespace weft::testing;

namespace {
bool sums(const Node& node) {
  const OpKind kind = node.op->kind;
  return node.op->combine == ScalarOp::add && (kind == OpKind::reduce || kind == OpKind::window);
}

// Returns the operations that read a sum which was rounded to 16 bits, in the decomposition of the
// values; walks no further than `given`.
std::string readers_of_rounded_sums(const std::vector<Value>& values,
                                    const std::vector<Value>& given) {
  const Graph whole = rewrite_fully({.outputs = values}, [&](const Value& value) {
    const bool is_given =
        std::ranges::any_of(given, [&](const Value& each) { return each.node() == value.node(); });
    return is_given || value->op->decompose == nullptr ? Value()
                                                       : value->op->decompose(*value.node());
  });
  std::unordered_set<const Node*> seen;
  for (const Value& each : given) seen.insert(each.node());
  std::vector<Value> waiting = whole.outputs;
  std::string found;
  while (!waiting.empty()) {
    const Value value = waiting.back();
    waiting.pop_back();
    if (!seen.insert(value.node()).second) continue;
    for (const Value& input : value->inputs) {
      const Value* at = &input;
      while ((*at)->op->kind == OpKind::movement && !seen.contains(at->node()))
        at = &(*at)->inputs[0];
      if (value->op->kind != OpKind::movement && computes_wider(at->dtype()) &&
          !seen.contains(at->node()) && sums(*at->node()))
        found += std::string(value->op->name) + " ";
      waiting.push_back(input);
    }
  }
  return found;
}

// Nearly equal numbers, none of which float16 rounds: 24 to 27.5.
Value nearly_equal(const Shape& shape, DType dtype) {
  std::vector<double> numbers(static_cast<size_t>(element_count(shape)));
  for (size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = 24 + 0.5 * static_cast<double>(i * 37 % 8);
  return constant(numbers, shape, dtype);
}

struct SumRow {
  const char* what;
  Shape shape;
  std::function<Value(const Value&)> apply;
};
// Each sums more than 65,504, or squares to it, and has a result far below.
const std::vector<SumRow>& sum_rows() {
  static const ReduceOptions last{.axes = {-1}};
  static const std::vector<SumRow> all = {
      {"mean", {2, 4096}, [](const Value& x) { return mean(x, last); }},
      {"mean over columns", {4096, 3}, [](const Value& x) { return mean(x, {.axes = {0}}); }},
      {"mean of all", {4, 32, 32}, [](const Value& x) { return mean(x); }},
      {"variance", {2, 4096}, [](const Value& x) { return variance(x * 4, last); }},
      {"deviation", {2, 4096}, [](const Value& x) { return stddev(x * 4, last); }},
      {"norm", {2, 4096}, [](const Value& x) { return norm(x, last); }},
      {"norm of order 3", {2, 4096}, [](const Value& x) { return norm(x, last, 3); }},
      {"logsumexp", {2, 4096}, [](const Value& x) { return logsumexp(x * 0.0625, last); }},
      {"layer norm", {2, 4096}, [](const Value& x) { return layer_norm(x); }},
      {"rms norm", {2, 4096}, [](const Value& x) { return rms_norm(x); }},
      {"rms norm in parts",
       {2, 4096},
       [](const Value& x) {
         return x * rsqrt(mean(x * x, {.axes = {-1}, .keepdim = true}) + 1e-5);
       }},
      {"group norm", {1, 4, 32, 32}, [](const Value& x) { return group_norm(x, 2); }},
      {"batch norm", {2, 2, 32, 32}, [](const Value& x) { return batch_norm_train(x, {}, {}).y; }},
      {"mean pool",
       {1, 1, 64, 64},
       [](const Value& x) { return avg_pool(x, {.kernel = {64, 64}}); }},
      {"mean pool of volumes",
       {1, 1, 16, 16, 16},
       [](const Value& x) { return avg_pool(x, {.kernel = {16, 16, 16}}); }},
      {"global mean pool", {1, 2, 64, 64}, [](const Value& x) { return global_avg_pool(x); }},
      {"adaptive mean pool",
       {1, 1, 64, 128},
       [](const Value& x) { return adaptive_avg_pool(x, {1, 2}); }},
      {"einsum of a sum and a factor",
       {4096, 3},
       [](const Value& x) { return einsum("ab,b->b", {x, full({3}, 0x1p-10, x.dtype())}); }},
      {"einsum of three",
       {2, 4096},
       [](const Value& x) { return einsum("ab,cb,->ac", {x, x, scalar(0x1p-10, x.dtype())}); }},
      {"gradient of an extreme of equal numbers",
       {70'000},
       [](const Value& x) {
         const Value equal = x * 0;
         return gradients(max(equal), std::vector{equal})[0];
       }},
  };
  return all;
}

Value wide(const Value& x) { return interpret(cast(x, DType::f64)); }
}  // namespace

TEST_CASE("no operation reads a sum that was rounded to 16 bits inside of another") {
  for (const OpDef* def : registered_ops()) {
    if (!has_cases(*def) || !is_in_part(def->name)) continue;
    for (DType dtype : {DType::f16, DType::bf16}) {
      if (std::ranges::count(dtypes_of(*def), dtype) == 0) continue;
      Random random(hash_text(def->name));
      CaseSource source{.random = random,
                        .operand = [&](const Type& type, double low, double high) {
                          return random_values(type, low, high, random);
                        }};
      const Value y = draw_case(*def, dtype, source);
      INFO(def->name << " of " << name(dtype));
      if (def->decompose != nullptr)
        CHECK(readers_of_rounded_sums({def->decompose(*y.node())}, y->inputs) == "");
      if (def->gradient == nullptr || !is_float(y.dtype())) continue;
      const Value dy = random_values(y.type(), -1, 1, random);
      std::vector<Value> given = y->inputs, wanted;
      given.push_back(y);
      given.push_back(dy);
      for (const Value& gradient : def->gradient(y, dy))
        if (gradient.defined()) wanted.push_back(gradient);
      CHECK(readers_of_rounded_sums(wanted, given) == "");
    }
  }
}

TEST_CASE("sums inside of operations pass the largest float16") {
  for (const SumRow& row : sum_rows()) {
    const Value x = nearly_equal(row.shape, DType::f16);
    const Value y = row.apply(x), expected = interpret(row.apply(wide(x)));
    INFO(row.what);
    CHECK(y.dtype() == DType::f16);
    CHECK(readers_of_rounded_sums({y}, {x}) == "");
    for (const KernelLibrary* library : backends())
      CHECK(difference(run_planned({.outputs = {y}}, {}, *library)[0],
                       interpret(cast(expected, DType::f16)), 0x1p-10) == "");
    const Value in_bf16 = nearly_equal(row.shape, DType::bf16);
    CHECK(difference(interpret(row.apply(in_bf16)),
                     interpret(cast(interpret(row.apply(wide(in_bf16))), DType::bf16)),
                     0x1p-7) == "");
  }
}

// A sum in one accumulator would round most of these terms alike, by up to half of its last place.
TEST_CASE("long sums of nearly equal numbers are as exact as short ones") {
  struct Sum {
    const char* what;
    Shape shape;
    Dims axes;
  };
  for (const Sum& row : {
           Sum{"rows", {3, 5000}, {1}},
           {"rows that are no whole vectors", {2, 20'011}, {1}},
           {"columns", {5000, 40}, {0}},
           {"few columns", {20'011, 3}, {0}},
           {"both of many short rows", {2, 1500, 25}, {1, 2}},
           {"an axis between others", {2, 5000, 9}, {1}},
           {"images", {64, 3, 12, 12}, {0, 2, 3}},
           {"rows in chunks", {300'000}, {0}},
           {"columns in chunks", {70'000, 10}, {0}},
       }) {
    INFO(row.what);
    Random random(1);
    const Value x = random_values({DType::f32, row.shape}, 10'000, 10'001, random);
    const ReduceOptions over{.axes = row.axes};
    const auto all = [&](const Value& of) {
      return std::vector<Value>{sum(of, over), mean(of, over), variance(of, over)};
    };
    const std::vector<Value> expected = interpret(all(wide(x)));
    const std::vector<Value> got =
        run_planned({.outputs = all(x)}, {}, *backends().back(), {.step = {.skip = {"simplify"}}});
    const double tolerances[] = {3e-7, 3e-7, 2e-5};
    for (size_t i = 0; i < got.size(); ++i) {
      const std::vector<double> a = elements(got[i]), b = elements(expected[i]);
      for (size_t at = 0; at < a.size(); ++at)
        CHECK(std::abs(a[at] - b[at]) <= tolerances[i] * std::abs(b[at]));
    }
  }
}
