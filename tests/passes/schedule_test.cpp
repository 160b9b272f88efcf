#include <algorithm>
#include <chrono>
#include <limits>
#include <map>

#include <doctest/doctest.h>

#include "tests/passes/graphs.h"
#include "weft/passes/passes.h"

using namespace weft;
using namespace weft::testing;

namespace {
// Returns the peak of live bytes, recomputed launch by launch from the accesses, with results that
// alias dying operands: a naive counterpart of the pass's own accounting.
size_t naive_peak(const Plan& plan) {
  std::map<int, std::pair<int, int>> lives;
  auto touch = [&](const Access& access, int at) {
    if (plan.slots[static_cast<size_t>(access.at.slot)].space != Space::arena) return;
    auto [life, is_new] = lives.try_emplace(access.at.slot, at, at);
    life->second.second = std::max(life->second.second, at);
  };
  int end = static_cast<int>(plan.launches.size());
  for (const Access& input : plan.inputs) touch(input, -1);
  for (int at = 0; at < end; ++at) {
    for (const Access& operand : plan.launches[static_cast<size_t>(at)].operands)
      touch(operand, at);
    for (const Access& result : plan.launches[static_cast<size_t>(at)].results) touch(result, at);
  }
  for (const Access& output : plan.outputs) touch(output, end);
  for (const Assign& assign : plan.assigns) touch(assign.value, end);
  auto bytes = [&](int slot) {
    return (plan.slots[static_cast<size_t>(slot)].bytes + 63) / 64 * 64;
  };
  size_t peak = 0;
  for (int at = -1; at < end; ++at) {
    size_t live = 0;
    for (const auto& [slot, life] : lives)
      if (life.first <= at && at <= life.second) live += bytes(slot);
    if (at >= 0) live += (plan.launches[static_cast<size_t>(at)].workspace + 63) / 64 * 64;
    peak = std::max(peak, live);
  }
  return peak;
}

// Returns the launches in a random order that respects their dependencies and what they overwrite.
Plan shuffled(const Plan& plan, Random& random) {
  size_t count = plan.launches.size();
  auto touches = [&](const std::vector<Access>& accesses, int slot) {
    return std::any_of(accesses.begin(), accesses.end(),
                       [&](const Access& a) { return a.at.slot == slot; });
  };
  std::vector<std::vector<size_t>> after(count);
  std::vector<int> waiting(count, 0);
  for (size_t i = 0; i < count; ++i)
    for (size_t j = i + 1; j < count; ++j) {
      bool ordered = false;
      for (const Access& result : plan.launches[i].results)
        ordered |= touches(plan.launches[j].operands, result.at.slot) ||
                   touches(plan.launches[j].results, result.at.slot);
      for (const Access& operand : plan.launches[i].operands)
        ordered |= touches(plan.launches[j].results, operand.at.slot);
      if (ordered) after[i].push_back(j), ++waiting[j];
    }
  Plan result = plan;
  result.launches.clear();
  std::vector<size_t> ready;
  for (size_t i = 0; i < count; ++i)
    if (waiting[i] == 0) ready.push_back(i);
  while (!ready.empty()) {
    size_t pick = static_cast<size_t>(random.below(static_cast<int64_t>(ready.size())));
    size_t step = ready[pick];
    ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(pick));
    result.launches.push_back(plan.launches[step]);
    for (size_t next : after[step])
      if (--waiting[next] == 0) ready.push_back(next);
  }
  REQUIRE(result.launches.size() == count);
  return result;
}

Plan scheduled(const Graph& graph, const KernelLibrary& library, std::vector<std::string> skip) {
  PassOptions options{.library = &library, .threads = 2, .step = {.skip = std::move(skip)}};
  Graph step = simplify(decompose(graph, options), options);
  return alias_state(bufferize(step, options), options);
}

// Compares the peak of the ordered plan, after the memory pass, with those of random orders.
void check_against_random(const Graph& graph, const std::vector<std::string>& skip, int trials) {
  PlanningLibrary library;
  library.workspace = 1024;
  Plan plan = scheduled(graph, library, skip);
  PassOptions reuse{.library = &library};
  Plan ordered = schedule(plan, reuse);
  verify(ordered);
  size_t ours = assign_memory(ordered, reuse).live_peak_bytes;
  Random random(11);
  size_t best = std::numeric_limits<size_t>::max();
  for (int i = 0; i < trials; ++i)
    best = std::min(best, assign_memory(shuffled(plan, random), reuse).live_peak_bytes);
  CAPTURE(plan.launches.size());
  CHECK(ours <= best);
}
}  // namespace

TEST_SUITE("schedule") {
  TEST_CASE("no random schedule of a training step has a lower peak") {
    for (const std::vector<std::string>& skip : {std::vector<std::string>{}, {"fuse"}}) {
      check_against_random(mlp_step(2, 32, 16), skip, 40);
      check_against_random(mlp_step(4, 16, 64), skip, 40);
      check_against_random(conv_step(2, 8, 4), skip, 40);
      check_against_random(gpt_step(1, 16, 2, 8), skip, 40);
    }
  }

  TEST_CASE("the live peak matches a naive count and aliasing never raises it") {
    PlanningLibrary library;
    for (const Graph& graph : {mlp_step(3, 16, 8), conv_step(2, 4, 2), gpt_step(1, 16, 1, 4)}) {
      Plan plan = schedule(scheduled(graph, library, {}), {});
      size_t apart = naive_peak(plan);
      Plan planned = assign_memory(plan, {});
      // After the pass, values that share memory have one slot, and each workspace has a slot, too.
      for (Launch& launch : planned.launches) launch.workspace = 0;
      CHECK(naive_peak(planned) == planned.live_peak_bytes);
      CHECK(planned.live_peak_bytes <= apart);
    }
  }

  TEST_CASE("updates are scheduled right after their gradients to free them") {
    PlanningLibrary library;
    Graph graph = mlp_step(12, 64, 4);
    size_t gradients = 12 * 64 * 64 * 4;
    Plan plan = assign_memory(schedule(scheduled(graph, library, {}), {}), {});
    CHECK(plan.live_peak_bytes < gradients / 3);
  }

  TEST_CASE("the verifier refuses a launch that is scheduled too early") {
    PlanningLibrary library;
    Plan plan = scheduled(mlp_step(2, 8, 4), library, {});
    const Plan early = schedule(plan, {.fault = "schedule-ignores-dependency"});
    CHECK_THROWS_AS(verify(early), InternalError);
  }
}

TEST_SUITE("slow order") {
  TEST_CASE("none of 1,000 random orders has a lower peak") {
    check_against_random(mlp_step(3, 64, 32), {}, 1000);
    check_against_random(conv_step(4, 16, 2), {}, 1000);
    check_against_random(gpt_step(2, 32, 2, 8), {}, 1000);
  }
}
