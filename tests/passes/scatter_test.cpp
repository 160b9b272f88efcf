// Tests the gradient of a table from which few rows were read (weft/passes/graph/scatter.cpp).
#include <algorithm>
#include <cstring>

#include <doctest/doctest.h>

#include "tests/passes/graphs.h"
#include "tests/support/planned.h"
#include "weft/ops/autodiff.h"
#include "weft/ops/ops.h"
#include "weft/passes/passes.h"

using namespace weft;
using namespace weft::testing;

namespace {
std::vector<std::byte> bytes_of(const Value& value) {
  return {value->data(), value->data() + value.type().bytes()};
}

// Returns random numbers, among them zeros of both signs.
Value numbers(const Type& type, Random& random) {
  Value draw = random_values(type, -2, 2, random);
  if (!is_float(type.dtype)) return draw;
  for (int64_t i = 0; i < type.elements(); i += 3)
    store(draw->data(), type.dtype, i, i % 2 == 0 ? -0.0 : 0.0);
  return draw;
}

// Lookup is a training step whose loss is the sum of table rows, each times a number. It updates
// the table by SGD, scaled by the gradient's norm if `clips`.
struct Lookup {
  Random random{5};
  Type type;
  Value table, indices;
  Graph graph;

  Lookup(DType dtype, const Shape& shape, int64_t count, bool clips)
      : type{dtype, shape}, table(random_variable("table", type, random)) {
    indices =
        random_values({DType::i64, {2, count / 2}}, -1, static_cast<double>(shape[0]), random);
    Value rows = gather(table, indices);
    Value loss = sum(cast(rows * numbers(rows.type(), random), DType::f32));
    Value gradient = gradients(loss, std::vector{table})[0];
    if (clips) gradient = gradient * cast(rsqrt(sum(square(cast(gradient, DType::f32)))), dtype);
    graph = {.outputs = {loss}, .assignments = {{table, table - gradient * 0.1}}};
  }

  std::vector<Value> run(const std::vector<std::string>& skip) const {
    return run_planned(graph, {}, *backends().back(), {.step = {.skip = skip}});
  }
  std::string disagreement() const {
    return testing::disagreement(run({}), interpret_with_errors(graph), *backends().back());
  }
  Plan plan(const std::vector<std::string>& skip) const {
    return make_plan(graph, {.library = backends().back(), .threads = 2, .step = {.skip = skip}});
  }
};

bool stores(const Plan& plan, const Type& type) {
  return std::ranges::any_of(plan.slots, [&](const Slot& slot) {
    return slot.space == Space::arena && slot.bytes >= type.bytes();
  });
}
}  // namespace

TEST_CASE("a scatter_add of few rows into zeros becomes a gather of their sums") {
  Value indices = input({DType::i32, {2, 3}}, 0), rows = input({DType::f32, {2, 3, 5}}, 1);
  Value y = simplified(scatter_add(zeros({12, 5}), indices, rows));
  REQUIRE(y->is("gather"));
  CHECK(y.shape() == Shape{12, 5});
  CHECK(y->inputs[0]->is("scatter_add"));
  CHECK(y->inputs[0].shape() == Shape{6, 5});
  CHECK(y->inputs[1]->is("first_position"));
}

TEST_CASE("scatter_add of many rows or into other values is unchanged") {
  Value indices = input({DType::i32, {6}}, 0), rows = input({DType::f32, {6, 5}}, 1);
  Value none = input({DType::i32, {0}}, 0), no_rows = input({DType::f32, {0, 5}}, 1);
  CHECK(simplified(scatter_add(zeros({11, 5}), indices, rows))->is("scatter_add"));
  CHECK(simplified(scatter_add(full({12, 5}, -0.0), indices, rows))->is("scatter_add"));
  CHECK(simplified(scatter_add(ones({12, 5}), indices, rows))->is("scatter_add"));
  CHECK(simplified(scatter_add(input({DType::f32, {12, 5}}, 2), indices, rows))->is("scatter_add"));
  CHECK(simplified(scatter_add(zeros({12, 5}), none, no_rows))->is("scatter_add"));
}

TEST_CASE("sums of few rows are bit-identical to scatter_add on every backend in every type") {
  for (DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i32, DType::u8})
    for (uint64_t seed = 0; seed < 8; ++seed) {
      Random random(seed);
      const int64_t count = random.between(1, 12), rows = random.between(2 * count, 40);
      const int64_t used = random.between(1, rows);  // fewer rows repeat more often
      Value indices = random_values({DType::i32, {count}}, -2, static_cast<double>(used), random);
      Value updates = numbers({dtype, {count, 3}}, random);
      Value y = scatter_add(zeros({rows, 3}, dtype), indices, updates);
      REQUIRE(simplified(y)->is("gather"));
      for (const KernelLibrary* library : backends()) {
        INFO(library->name() << " " << name(dtype) << " seed " << seed);
        auto run = [&](const std::vector<std::string>& skip) {
          return bytes_of(run_planned({.outputs = {y}}, {}, *library, {.step = {.skip = skip}})[0]);
        };
        CHECK(run({}) == run({"simplify"}));
      }
    }
}

TEST_CASE("a seeded out-of-range index that adds to the first sum is detected") {
  Value indices = constant(std::vector<double>{2, -1, 9}, {3}, DType::i32), rows = ones({3, 2});
  Value y = scatter_add(zeros({8, 2}), indices, rows);
  auto run = [&](const std::string& fault) {
    Graph graph = {.outputs = {simplified(y, fault)}};
    return bytes_of(
        run_planned(graph, {}, *backends().back(), {.step = {.skip = {"simplify"}}})[0]);
  };
  CHECK(run("") == bytes_of(run_planned({.outputs = {y}}, {}, *backends().front())[0]));
  CHECK(run("scatter-adds-outside") != run(""));
}

TEST_CASE("the dense gradient of a large table is never stored and its update is bit-identical") {
  for (DType dtype : {DType::f32, DType::bf16}) {
    const Lookup step(dtype, {1024, 64}, 200, false);
    CHECK(stores(step.plan({"simplify"}), step.type));
    CHECK(!stores(step.plan({}), step.type));
    CHECK(bytes_of(step.run({}).back()) == bytes_of(step.run({"simplify"}).back()));
    CHECK(step.disagreement() == "");
  }
}

TEST_CASE("an update scaled by the gradient's norm stores no dense gradient of the table") {
  const Lookup step(DType::f32, {4096, 64}, 200, true);
  const Plan plan = step.plan({});
  CHECK(!stores(plan, step.type));
  const size_t positions = 4096 * sizeof(int64_t);
  CHECK(plan.arena_bytes + step.type.bytes() <= step.plan({"simplify"}).arena_bytes + positions);
  CHECK(step.disagreement() == "");
}
