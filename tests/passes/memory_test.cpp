#include <algorithm>
#include <iterator>
#include <set>

#include <doctest/doctest.h>

#include "tests/passes/graphs.h"
#include "tests/passes/run_plan.h"
#include "tests/support/planned.h"
#include "tests/support/values.h"
#include "weft/base/memory/storage.h"
#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"
#include "weft/passes/passes.h"

using namespace weft;
using namespace weft::testing;

namespace {
BoundPlan bound_of(const Graph& graph, std::vector<std::string> skip = {}, std::string fault = "") {
  static const PlanningLibrary library;
  return bound_plan(graph, {.library = &library,
                            .threads = 2,
                            .step = {.skip = std::move(skip)},
                            .verify = true,
                            .fault = std::move(fault)});
}
Plan plan_of(const Graph& graph, std::vector<std::string> skip = {}, std::string fault = "") {
  return bound_of(graph, std::move(skip), std::move(fault)).plan;
}
const Assign& assign_of(const Plan& plan, const std::string& name) {
  auto found = std::find_if(plan.assigns.begin(), plan.assigns.end(), [&](const Assign& assign) {
    const Slot& slot = plan.slots[static_cast<size_t>(assign.state_slot)];
    return plan.variable(slot).name == name;
  });
  REQUIRE(found != plan.assigns.end());
  return *found;
}
Type f32(const Shape& shape) { return {DType::f32, shape}; }
}  // namespace

TEST_SUITE("memory") {
  TEST_CASE("the arena of a training step is within 5 % of the live peak") {
    for (const std::vector<std::string>& skip : {std::vector<std::string>{}, {"fuse"}})
      for (const Graph& graph : {mlp_step(3, 64, 32), conv_step(3, 8, 4), gpt_step(2, 32, 2, 8)}) {
        Plan plan = plan_of(graph, skip);
        CHECK(plan.arena_bytes >= plan.live_peak_bytes);
        CHECK(static_cast<double>(plan.arena_bytes) <=
              1.05 * static_cast<double>(plan.live_peak_bytes));
        for (const Slot& slot : plan.slots) CHECK(slot.offset % 64 == 0);
      }
  }

  TEST_CASE("an elementwise chain runs in place in its input's memory") {
    Value x = input(f32({1000}), 0);
    Plan plan = plan_of({.inputs = {x}, .outputs = {exp(tanh(sin(x)))}}, {"fuse"});
    CHECK(plan.launches.size() == 3);
    CHECK(plan.arena_bytes == 4032);
    for (const Launch& launch : plan.launches) CHECK(launch.in_place.size() == 1);
  }

  TEST_CASE("an aliased slot has the category of its value at the peak") {
    auto kind_of = [](const Plan& plan, size_t step) {
      REQUIRE(plan.launches[step].in_place.size() == 1);
      return plan.slots[static_cast<size_t>(plan.launches[step].results[0].at.slot)].category;
    };
    Value x = input(f32({32, 32}), 0), wide = input(f32({32, 64}), 1);
    Plan before = plan_of({.inputs = {x, wide}, .outputs = {matmul(tanh(x), wide)}}, {"fuse"});
    CHECK(kind_of(before, 0) == Category::activation);  // an input holds it before the peak
    Value left = input(f32({32, 64}), 0), right = input(f32({64, 32}), 1);
    Plan after =
        plan_of({.inputs = {left, right}, .outputs = {exp(matmul(left, right))}}, {"fuse"});
    CHECK(kind_of(after, 1) == Category::activation);  // an output holds it after the peak
  }

  TEST_CASE("an operand that is read again is not overwritten in place") {
    Value x = input(f32({16}), 0), y = tanh(x);
    Plan later = plan_of({.inputs = {x}, .outputs = {exp(y), y}}, {"fuse"});
    CHECK(later.arena_bytes == 128);
    Value square = input(f32({4, 4}), 0);
    Plan twice =
        plan_of({.inputs = {square}, .outputs = {square + permute(square, {1, 0})}}, {"fuse"});
    CHECK(twice.launches.back().in_place.empty());
    Value flipped =
        plan_of({.inputs = {x}, .outputs = {exp(flip(x, {0}))}}, {"fuse"}).launches.back().body[0];
    CHECK(flipped->is("exp"));
  }

  TEST_CASE("the workspace of a kernel lives during its launch only") {
    PlanningLibrary library;
    library.workspace = 10'000;
    Value x = input(f32({4, 4}), 0);
    Plan plan = make_plan({.inputs = {x}, .outputs = {matmul(matmul(x, x), x)}},
                          {.library = &library, .verify = true});
    for (const Launch& launch : plan.launches) {
      const Slot& slot = plan.slots[static_cast<size_t>(launch.workspace_slot)];
      CHECK(slot.first == slot.last);
      CHECK(slot.bytes >= launch.workspace);
      CHECK(slot.category == Category::workspace);
    }
    CHECK(plan.arena_bytes < 2 * 10'000);
  }

  TEST_CASE("workspaces grow into free arena bytes without enlarging the arena") {
    const Graph graph = gpt_step(2, 32, 2, 8);
    PlanningLibrary library;
    library.workspace = 256;
    const Plan least = make_plan(graph, {.library = &library, .verify = true});
    library.most_workspace = 65'536;
    const Plan most = make_plan(graph, {.library = &library, .verify = true});
    CHECK(most.arena_bytes == least.arena_bytes);
    CHECK(most.live_peak_bytes == least.live_peak_bytes);
    std::set<size_t> sizes;
    for (size_t i = 0; i < most.launches.size(); ++i) {
      const Launch& launch = most.launches[i];
      if (launch.workspace_slot < 0) continue;
      const Slot& slot = most.slots[static_cast<size_t>(launch.workspace_slot)];
      CHECK(slot.bytes == launch.workspace);
      CHECK(slot.offset + slot.bytes <= most.arena_bytes);
      CHECK(launch.workspace >= least.launches[i].workspace);
      sizes.insert(launch.workspace);
    }
    CHECK(sizes.size() > 1);
    CHECK(sizes.erase(256));  // the launch with no free memory beside it
    for (const size_t size : sizes) CHECK((size == 16'384 || size == 32'768 || size == 65'536));
  }

  TEST_CASE("without reuse every slot has bytes of its own") {
    Plan plan = plan_of(mlp_step(2, 16, 4), {"reuse"});
    size_t total = 0;
    for (const Slot& slot : plan.slots) total += slot.space == Space::arena ? slot.bytes : 0;
    CHECK(plan.arena_bytes == total);
  }

  TEST_CASE("the verifier refuses seeded overlaps of slots") {
    Graph graph = mlp_step(2, 16, 4);
    CHECK(verifier_refuses([&] { plan_of(graph, {}, "memory-overlap"); }));
  }
}

TEST_SUITE("alias") {
  TEST_CASE("updates write in place into their variables") {
    for (const Graph& graph : {mlp_step(3, 16, 8), conv_step(2, 4, 2)}) {
      Plan plan = plan_of(graph);
      CHECK(plan.assigns.size() == graph.assignments.size());
      for (const Assign& assign : plan.assigns) CHECK(!assign.copy);
    }
  }

  TEST_CASE("readers of the old value run before the writer") {
    Random random(1);
    Value v = random_variable("v", f32({64}), random), x = input(f32({64}), 0);
    // The new value is ready long before the last read of the old one.
    Graph graph{.inputs = {x}, .outputs = {exp(v * x)}, .assignments = {{v, v + 1.0}}};
    Plan plan = plan_of(graph, {"fuse"});
    CHECK(!assign_of(plan, "v").copy);
    CHECK(plan.launches.back().results[0].at.slot == assign_of(plan, "v").state_slot);
    Plan wrong = plan_of({}, {});
    CHECK(wrong.launches.empty());
  }

  TEST_CASE("a new value is copied at the end where readers of the old value depend on it") {
    Random random(1);
    Value v = random_variable("v", f32({64}), random);
    Value next = tanh(v);
    Graph graph{.outputs = {sum(next * v)}, .assignments = {{v, next}}};
    CHECK(assign_of(plan_of(graph, {"fuse"}), "v").copy);
  }

  TEST_CASE("variables that read each other's old values or swap are assigned correctly") {
    Random random(1);
    Value a = random_variable("a", f32({8}), random), b = random_variable("b", f32({8}), random);
    Value c = random_variable("c", f32({8}), random);
    Graph graph{.outputs = {a, neg(b)}, .assignments = {{a, b}, {b, a}, {c, a + b}}};
    for (const std::vector<std::string>& skip :
         {std::vector<std::string>{}, {"alias"}, {"fuse"}, {"schedule"}}) {
      PlanResult result = run_plan(bound_of(graph, skip));
      auto old = [](const Value& leaf) {
        return difference(from_buffer(leaf->variable->storage->buffer(), leaf.type()),
                          from_buffer(leaf->variable->storage->buffer(), leaf.type()), 0);
      };
      CHECK(old(a) == "");
      CHECK(difference(result.assigned.at("a"),
                       from_buffer(b->variable->storage->buffer(), b.type()), 0) == "");
      CHECK(difference(result.assigned.at("b"),
                       from_buffer(a->variable->storage->buffer(), a.type()), 0) == "");
      CHECK(difference(result.outputs[0], from_buffer(a->variable->storage->buffer(), a.type()),
                       0) == "");
    }
  }

  TEST_CASE("one value assigned to two variables is written once and copied once") {
    Random random(1);
    Value a = random_variable("a", f32({8}), random), b = random_variable("b", f32({8}), random);
    Value next = tanh(a + b);
    Plan plan = plan_of({.assignments = {{a, next}, {b, next}}});
    CHECK(assign_of(plan, "a").copy != assign_of(plan, "b").copy);
  }

  TEST_CASE("an output that is also a new value has its own slot") {
    Random random(1);
    Value v = random_variable("v", f32({8}), random), next = v + 1.0;
    Plan plan = plan_of({.outputs = {next}, .assignments = {{v, next}}});
    CHECK(assign_of(plan, "v").copy);
    CHECK(plan.slots[static_cast<size_t>(plan.outputs[0].at.slot)].space == Space::arena);
  }

  TEST_CASE("a variable assigned to itself takes no launch") {
    Random random(1);
    Value v = random_variable("v", f32({8}), random);
    CHECK(plan_of({.assignments = {{v, v}}}).assigns.empty());
  }

  TEST_CASE("the verifier refuses a write over an old value that is still read") {
    Random random(1);
    Value v = random_variable("v", f32({64}), random);
    Value next = tanh(v);
    Graph graph{.outputs = {sum(next * v)}, .assignments = {{v, next}}};
    CHECK(verifier_refuses([&] { plan_of(graph, {"fuse"}, "alias-ignores-readers"); }));
  }
}

namespace {
// Returns the positions that the elements of a [rows, columns] access have in its slot.
std::set<int64_t> places(const Access& access) {
  std::set<int64_t> all;
  for (int64_t row = 0; row < access.value.dim(0); ++row)
    for (int64_t column = 0; column < access.value.dim(1); ++column)
      all.insert(access.at.offset + row * access.at.strides[0] + column * access.at.strides[1]);
  return all;
}
}  // namespace

TEST_SUITE("plan verifier") {
  TEST_CASE("a step may read and write disjoint parts of a slot") {
    Random random(3);
    int apart = 0, together = 0;
    for (int i = 0; i < 2000; ++i) {
      const Shape read{random.between(1, 4), random.between(1, 5)};
      const Shape written = random.between(0, 1) == 0 ? read : Shape{read[0], 1};
      const Dims strides{random.between(1, 8), random.between(1, 2)};
      const Value x = input(f32(read), 0);
      const Value y = input(f32(written), 1);
      const Access from{x, {0, random.between(0, 20), strides}};
      const Access to{y, {0, random.between(0, 20), strides}};
      Plan plan;
      plan.slots = {{.type = f32({64}), .bytes = 256, .first = -1, .last = 1, .value = x}};
      plan.inputs = {from};
      plan.launches = {{.kernel = "copy", .body = {y}, .operands = {from}, .results = {to}}};
      std::set<int64_t> both;
      std::ranges::set_intersection(places(from), places(to), std::inserter(both, both.end()));
      if (both.empty()) {
        ++apart;
        CHECK_NOTHROW(verify(plan));
      } else {
        ++together;
        CHECK_THROWS_AS(verify(plan), InternalError);
      }
    }
    CHECK(apart > 300);
    CHECK(together > 300);
  }
  TEST_CASE("the verifier refuses every broken invariant of a plan") {
    Value x = input(f32({64}), 0), y = tanh(x);
    const Plan plan = plan_of({.inputs = {x}, .outputs = {exp(y), y}}, {"fuse"});
    verify(plan);
    auto broken = [&](auto&& change) {
      Plan copy = plan;
      change(copy);
      CHECK_THROWS_AS(verify(copy), InternalError);
    };
    broken([](Plan& p) { std::swap(p.launches[0], p.launches[1]); });
    broken([](Plan& p) { p.slots[0].offset = p.slots[1].offset; });
    broken([](Plan& p) { p.arena_bytes = 64; });
    broken([](Plan& p) {
      p.slots[0].last = 0;
      p.slots[1].last = 0;
    });
    broken([](Plan& p) { p.launches[0].in_place.clear(); });
    broken([](Plan& p) { p.launches[1].results[0].at.slot = p.launches[1].operands[0].at.slot; });
    broken([](Plan& p) { p.outputs[0].at.slot = p.outputs[1].at.slot; });
  }
}
