#include <limits>
#include <string>

#include <doctest/doctest.h>

#include "tests/passes/graphs.h"
#include "tests/passes/run_plan.h"
#include "tests/support/planned.h"
#include "tests/support/values.h"
#include "weft/base/numbers/quantity.h"
#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"
#include "weft/passes/memory/launches.h"
#include "weft/passes/passes.h"
#include "weft/runtime/executable.h"
#include "weft/tensor/compile.h"

using namespace weft;
using namespace weft::testing;

namespace {
// Returns the bytes that the plan takes in memory: state, constants and the arena.
size_t total(const Plan& plan) {
  size_t bytes = plan.arena_bytes;
  for (const Slot& slot : plan.slots)
    if (slot.space == Space::state || slot.space == Space::constant) bytes += slot.bytes;
  return bytes;
}
// Returns steps of ten MiB and more; the rows of the last one's logits can be tiled.
std::vector<Graph> larger_steps() {
  return {mlp_step(8, 64, 4096), conv_step(6, 32, 64), gpt_step(4, 64, 16, 64),
          gpt_step(2, 64, 16, 64, 4000)};
}
double planned_time(const Plan& plan) {
  double time = 0;
  for (const Launch& launch : plan.launches) time += cost(launch, {});
  return time;
}
int again(const Plan& plan) {
  int count = 0;
  for (const Launch& launch : plan.launches) count += launch.rematerialized;
  return count;
}
}  // namespace

TEST_CASE("a plan fits every memory limit down to the least, which the refusal names") {
  const PlanningLibrary library;  // its kernels need no workspace, unlike those of some hosts
  for (const Graph& step : training_steps()) {
    PassOptions options{.library = &library, .threads = 2, .verify = true};
    const Plan whole = make_plan(step, options);
    options.step.recompute = Recompute::full;
    const size_t least = total(make_plan(step, options));
    options.step.recompute = Recompute::automatic;
    CHECK(least < 0.9 * static_cast<double>(total(whole)));
    for (int part = 0; part <= 4; ++part) {
      options.step.memory = least + (total(whole) - least) * static_cast<size_t>(part) / 4;
      const Plan plan = make_plan(step, options);
      CHECK(total(plan) <= options.step.memory);
      CHECK((again(plan) == 0) == (part == 4));
    }
    options.step.memory = least_by_refusal(step, options);
    CHECK(total(make_plan(step, options)) <= options.step.memory);
    options.step.memory = total(whole) - 1;
    options.step.recompute = Recompute::none;
    CHECK_THROWS_AS(make_plan(step, options), Error);
  }
}

TEST_CASE("a larger memory limit never takes more time and the named least is minimal") {
  for (const Graph& step : larger_steps())
    for (bool files : {false, true}) {
      PassOptions options = on_cpu();
      if (files) options.step.offload.categories = {Category::activation, Category::gradient};
      const size_t most = total(make_plan(step, on_cpu()));
      const size_t least = least_by_refusal(step, options);
      double time = std::numeric_limits<double>::infinity();
      for (size_t part = 0; part <= 4; ++part) {
        options.step.memory = least + (most - least) * part / 4;
        CAPTURE(options.step.memory);
        const Plan plan = make_plan(step, options);
        CHECK(total(plan) <= options.step.memory);
        CHECK(planned_time(plan) <= time);
        time = planned_time(plan);
      }
      options.step.memory = least / 50 * 49;
      CHECK_THROWS_AS(make_plan(step, options), Error);
    }
}

TEST_CASE("rematerialized values are bit-identical") {
  Random random(1);
  for (const Graph& step : training_steps()) {
    const std::vector<Value> inputs = random_inputs(step, random);
    const std::vector<Value> kept = run_planned(step, inputs, *backends().back());
    for (Recompute extent : {Recompute::selective, Recompute::full}) {
      const std::vector<Value> repeated =
          run_planned(step, inputs, *backends().back(), {.step = {.recompute = extent}});
      for (size_t i = 0; i < kept.size(); ++i) CHECK(difference(repeated[i], kept[i], 0) == "");
    }
  }
}

TEST_CASE("selective rematerialization repeats no product") {
  int count = 0;
  for (const Graph& step : training_steps()) {
    PassOptions options = on_cpu();
    options.step.recompute = Recompute::selective;
    const Plan plan = make_plan(step, options);
    count += again(plan);
    for (const Launch& each : plan.launches) {
      CHECK(!(each.rematerialized && each.kind == Launch::Kind::library));
      // A rematerialized kernel has only one result and needs the workspace of that alone.
      if (each.rematerialized) CHECK(each.workspace == options.library->compiler().workspace(each));
    }
  }
  CHECK(count > 0);
}

TEST_CASE("values that read reassigned state are not rematerialized") {
  Variable state("v", {DType::f32, {64, 64}});
  state.assign(full({64, 64}, 0.01));
  const Value v = variable_leaf(state.state()), y = matmul(v, v), z = v * sum(y);
  const Value c = matmul(broadcast_to(z, {8, 64, 64}), z), d = matmul(c, c);
  Graph graph{
      .inputs = {}, .outputs = {sum(matmul(y, sum(d, {.axes = {0}})))}, .assignments = {{v, z}}};
  const std::vector<Value> kept = run_planned(graph, {}, *backends().back());
  PlanSettings settings{.step = {.recompute = Recompute::full, .skip = {"schedule"}}};
  CHECK(difference(run_planned(graph, {}, *backends().back(), settings)[0], kept[0], 0) == "");
  settings.fault = "recompute-ignores-writers";
  CHECK(verifier_refuses([&] { run_planned(graph, {}, *backends().back(), settings); }));
}

TEST_CASE("a compiled step meets its memory limit or is refused") {
  const Tensor x = ones({256, 64}), weight = full({64, 64}, 0.02);
  auto deep = [weight](Tensor value) {
    Tensor y = value;
    for (int i = 0; i < 6; ++i) y = tanh(matmul(y, weight));
    return std::vector<Tensor>{sum(y), grad(sum(y), std::vector{value})[0]};
  };
  auto free = compile(deep);
  const std::vector<Tensor> wanted = free(x);
  const Plan& plan = free.prepare(std::vector{x.type()}).plan();
  auto limited = compile(deep, {.memory = total(plan) * 4 / 5});
  CHECK(same_bits(limited(x)[1].to_doubles(), wanted[1].to_doubles()));
  CHECK(total(limited.prepare(std::vector{x.type()}).plan()) <= total(plan) * 4 / 5);
  auto hopeless = compile(deep, {.memory = 64_KiB});
  CHECK_THROWS_WITH_AS(hopeless(x), doctest::Contains("The limit is 64.0 KiB."), Error);
}
