#include <doctest/doctest.h>

#include "tests/passes/graphs.h"
#include "tests/passes/run_plan.h"
#include "tests/support/offloaded.h"
#include "tests/support/planned.h"
#include "weft/passes/memory/recompute.h"
#include "weft/passes/memory/transfers.h"
#include "weft/passes/passes.h"

using namespace weft;
using namespace weft::testing;

namespace {
PassOptions with_offload(Offload offload) {
  PassOptions options = on_cpu();
  options.step.offload = std::move(offload);
  return options;
}
size_t bytes_in(const Plan& plan, Space space) {
  size_t bytes = 0;
  for (const Slot& slot : plan.slots)
    if (slot.space == space && (space != Space::file || slot.variable >= 0)) bytes += slot.bytes;
  return bytes;
}
size_t in_memory(const Plan& plan) {
  return plan.arena_bytes + bytes_in(plan, Space::state) + bytes_in(plan, Space::constant);
}
// Returns the number of launches that overlap a transfer, summed over all transfers.
int overlapped(const Plan& plan) {
  int under_way = 0, steps = 0;
  for (const Launch& launch : plan.launches) {
    if (launch.kind == Launch::Kind::transfer)
      ++under_way;
    else if (launch.kind == Launch::Kind::await)
      --under_way;
    else
      steps += under_way;
  }
  return steps;
}
int transfers(const Plan& plan) {
  int count = 0;
  for (const Launch& launch : plan.launches) count += launch.kind == Launch::Kind::transfer;
  return count;
}
// Returns a plan whose transfers run where they are needed, before the pass that overlaps them.
Plan sequential(const Graph& step, const PassOptions& options) {
  const Graph ready = simplify(decompose(step, options), options);
  const Recomputation way(
      schedule(offload_state(alias_state(bufferize(ready, options), options), options), options),
      options);
  return way.plan(way.stages().back());
}
}  // namespace

TEST_CASE("values offloaded to files keep their bits") {
  Random random(1);
  for (const Graph& step : training_steps()) {
    const std::vector<Value> inputs = random_inputs(step, random);
    const std::vector<Value> kept = run_planned(step, inputs, *backends().back());
    for (Category category : {Category::parameter, Category::optimizer_state, Category::gradient,
                              Category::activation}) {
      CAPTURE(name(category));
      const std::vector<Value> moved = run_planned(step, inputs, *backends().back(),
                                                   {.step = {.offload = in_files({category})}});
      for (size_t i = 0; i < kept.size(); ++i) CHECK(difference(moved[i], kept[i], 0) == "");
    }
  }
}

TEST_CASE("offloaded variables occupy memory only while they are in use") {
  for (const Graph& step : training_steps()) {
    const Plan whole = make_plan(step, on_cpu());
    const Plan plan = make_plan(step, with_offload(in_files({Category::parameter})));
    const size_t moved = bytes_in(plan, Space::file);
    CHECK(moved > 0);
    CHECK(bytes_in(plan, Space::state) + moved == bytes_in(whole, Space::state));
    CHECK(in_memory(plan) < in_memory(whole));
    CHECK(plan.file_bytes == 0);
  }
}

TEST_CASE("small variables are not offloaded") {
  const Plan plan = make_plan(mlp_step(6, 32, 512),
                              with_offload(in_files({Category::parameter}, size_t{32} * 32 * 4)));
  int in_file = 0;
  for (const Slot& slot : plan.slots) {
    if (slot.space == Space::file) CHECK(slot.bytes >= size_t{32} * 32 * 4);
    if (slot.space == Space::state) CHECK(slot.bytes < size_t{32} * 32 * 4);
    in_file += slot.space == Space::file;
  }
  CHECK(in_file == 12);  // weights and their momentum
}

TEST_CASE("activations and gradients are offloaded only as far as the limit requires") {
  for (const Graph& step : training_steps()) {
    PassOptions options = with_offload(in_files({Category::activation, Category::gradient}));
    const Plan least = make_plan(step, options);
    PassOptions without = on_cpu();
    const Plan whole = make_plan(step, without);
    CHECK(in_memory(least) < in_memory(whole));
    CHECK(least.file_bytes > 0);
    options.step.recompute = without.step.recompute = Recompute::none;
    options.step.memory = without.step.memory = in_memory(whole);
    CHECK(transfers(make_plan(step, options)) == 0);
    options.step.memory = without.step.memory = (in_memory(least) + in_memory(whole)) / 2;
    const Plan plan = make_plan(step, options);
    CHECK(in_memory(plan) <= options.step.memory);
    CHECK(transfers(plan) > 0);
    CHECK(transfers(plan) < transfers(least));
    CHECK_THROWS_AS(make_plan(step, without), Error);
  }
}

TEST_CASE("rematerialization never raises the least memory of an offloading plan") {
  for (const Graph& step : training_steps()) {
    PassOptions options =
        with_offload(in_files({Category::parameter, Category::gradient, Category::activation}));
    options.step.memory = 1;
    auto least = [&](Recompute recompute) {
      options.step.recompute = recompute;
      try {
        return in_memory(make_plan(step, options));
      } catch (const StepTooLarge& error) {
        return error.least_bytes;
      }
    };
    CHECK(least(Recompute::automatic) <= least(Recompute::none));
  }
}

TEST_CASE("transfers overlap with kernels without raising the peak") {
  for (const Graph& step : training_steps()) {
    const PassOptions options =
        with_offload(in_files({Category::parameter, Category::optimizer_state}));
    const Plan plan = make_plan(step, options);
    CHECK(overlapped(plan) > transfers(plan) / 2);
    CHECK(plan.live_peak_bytes <=
          assign_memory(sequential(step, options), options).live_peak_bytes);
  }
}

TEST_CASE("a transfer is in flight only while kernels cover its time") {
  constexpr size_t room = size_t{1} << 40;
  const PlanningLibrary library;
  for (const Graph& step : training_steps()) {
    PassOptions options = with_offload(in_files({Category::parameter, Category::optimizer_state}));
    options.library = &library;
    const Plan plan = sequential(step, options);
    auto under_way = [&](double file_bytes_per_s) {
      options.machine = {
          .flops_per_s = 1e9, .bytes_per_s = 1e9, .file_bytes_per_s = file_bytes_per_s};
      return overlapped(overlap(plan, room, options));
    };
    CHECK(under_way(1e18) <= transfers(plan));
    CHECK(under_way(1e9) > transfers(plan));
    CHECK(under_way(1e7) > under_way(1e9));
  }
}

TEST_CASE("the verifier refuses reads of in-flight transfers and dropped stores") {
  const Graph step = mlp_step(6, 32, 512);
  for (const char* fault : {"offload-forgets-stores", "overlap-awaits-late"}) {
    CAPTURE(fault);
    PassOptions options = with_offload(all_in_files());
    options.fault = fault;
    CHECK(verifier_refuses([&] { make_plan(step, options); }));
  }
}
