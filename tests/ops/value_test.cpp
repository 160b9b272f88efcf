// The value of every op of the table: on every backend, through passes, plan and executable,
// against the interpreter; and the interpreter's against what does not depend on it.
#include <cmath>

#include <doctest/doctest.h>

#include "tests/support/interpreter.h"
#include "tests/support/op_cases.h"
#include "tests/support/planned.h"
#include "weft/base/buffer.h"
#include "weft/ops/ops.h"

using namespace weft;
using namespace weft::testing;

namespace {
// Random operands: plain elements, or views of them; sometimes axes of extent 0.
CaseSource source_of_views(Random& random) {
  CaseSource source{.random = random,
                    .operand = [&random](const Type& type, double low, double high) {
                      return random_view(type, low, high, random);
                    }};
  return source;
}

// Reductions to nothing have no value: these ops refuse empty axes.
bool takes_empty_axes(const OpDef& def) {
  return def.kind == OpKind::elementwise || def.kind == OpKind::movement;
}

std::string tested(const OpDef& def, DType dtype, uint64_t seed, const KernelLibrary& library) {
  Random random(seed);
  CaseSource source = source_of_views(random);
  if (takes_empty_axes(def) && random.chance(0.1)) source.extents = {0, 1, 3};
  Graph graph;
  graph.outputs = {draw_case(def, dtype, source)};
  return disagreement(run_planned(graph, {}, library), interpret_with_errors(graph), library);
}

void test_all(uint64_t first_seed, uint64_t seeds) {
  for (const auto& library : backends())
    for (const OpDef* def : registered_ops()) {
      if (!has_cases(*def)) continue;
      for (DType dtype : dtypes_of(*def))
        for (uint64_t seed = first_seed; seed < first_seed + seeds; ++seed) {
          INFO(library->name() << " " << def->name << " " << name(dtype) << " seed " << seed);
          CHECK(tested(*def, dtype, seed, *library) == "");
        }
    }
}
}  // namespace

TEST_CASE("every op on every backend computes what the interpreter computes") { test_all(0, 2); }

TEST_SUITE("slow ops") {
  TEST_CASE("every op on every backend computes what the interpreter computes, many shapes") {
    test_all(100, 40);
  }
}

TEST_CASE("the expression of an elementwise composite agrees with its oracle") {
  for (const OpDef* def : registered_ops()) {
    if (def->kind != OpKind::composite || def->oracle == nullptr) continue;
    INFO(def->name);
    Random random(5);
    Value x = random_values({DType::f64, {200}}, -30, 30, random);
    std::vector<double> got = elements(interpret(make_node(*def, {x}))), in = elements(x);
    for (size_t i = 0; i < in.size(); ++i) {
      double want = def->oracle(in[i], 0, 0);
      CHECK(std::fabs(got[i] - want) <= 1e-13 * std::max(1.0, std::fabs(want)));
    }
  }
}

TEST_CASE("integers keep all their bits") {
  int64_t big = (int64_t{1} << 60) + 1;
  auto values = [](std::vector<int64_t> list) {
    Random random(0);
    Value x = random_values({DType::i64, {static_cast<int64_t>(list.size())}}, 0, 0, random);
    for (size_t i = 0; i < list.size(); ++i)
      store_int(x->data->data, DType::i64, static_cast<int64_t>(i), list[i]);
    return x;
  };
  auto first = [](const Value& x) { return load_int(x->data->data, x.dtype(), 0); };
  Value a = values({big, -7}), b = values({3, 2});
  for (const auto& library : backends()) {
    INFO(library->name());
    auto run = [&](const Value& y) {
      Graph graph;
      graph.outputs = {y};
      return run_planned(graph, {}, *library).front();
    };
    CHECK(first(run(a + b)) == big + 3);
    CHECK(first(run(a * b)) == big * 3);
    CHECK(first(run(-a)) == -big);
    CHECK(first(run(floor_divide(a, b))) == big / 3);
    CHECK(elements(run(floor_divide(a, b)))[1] == -4);
    CHECK(elements(run(remainder(a, b)))[1] == 1);
    CHECK(first(run(maximum(a, b))) == big);
    CHECK(first(run(sum(a))) == big - 7);
    CHECK(elements(run(a == a + 1))[0] == 0);
    CHECK(first(run(cast(a, DType::i8))) == 1);  // wraps
    CHECK(first(run(matmul(reshape(a, {1, 2}), reshape(b, {2, 1})))) == big * 3 - 14);
  }
}

TEST_CASE("casts from floats truncate, saturate, and make 0 of NaN") {
  std::vector<double> in = {2.9, -2.9, 1e30, -1e30, NAN, 300, -5};
  Value x = constant(in, {7}, DType::f64);
  for (const auto& library : backends()) {
    INFO(library->name());
    auto run = [&](DType dtype) {
      Graph graph;
      graph.outputs = {cast(x, dtype)};
      return elements(run_planned(graph, {}, *library).front());
    };
    CHECK(run(DType::i8) == std::vector<double>{2, -2, 127, -128, 0, 127, -5});
    CHECK(run(DType::u8) == std::vector<double>{2, 0, 255, 0, 0, 255, 0});
    CHECK(run(DType::i32) == std::vector<double>{2, -2, 2147483647, -2147483648.0, 0, 300, -5});
    CHECK(run(DType::boolean) == std::vector<double>{1, 1, 1, 1, 1, 1, 1});
  }
}
