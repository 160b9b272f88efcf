// Runs the passes, and defines the wrapper that runs one of them; table.cpp says why each runs
// where it does.
#include <algorithm>

#include <fmt/format.h>

#include "weft/base/host/stopwatch.h"
#include "weft/base/logging.h"
#include "weft/base/memory/device_memory.h"
#include "weft/device/link.h"
#include "weft/ir/op_def.h"
#include "weft/passes/memory/launches.h"
#include "weft/passes/passes.h"
#include "weft/passes/table.h"

namespace weft {
namespace {
// Under a memory limit, rows are cut into at most this many tiles: with more, the widest rows no
// longer determine the peak.
constexpr int most_parts = 32;

#ifdef WEFT_DEBUG_BUILD
constexpr bool debug_build = true;
#else
constexpr bool debug_build = false;
#endif

// A Runner runs, times (WEFT_DEBUG=1), prints (WEFT_DEBUG=3) and verifies one pass.
class Runner {
 public:
  Runner(const PassOptions& options, logging::LongWork& planning)
      : options_(options), planning_(planning) {}

  template <class Subject, class Function>
  auto always(std::string_view name, Function pass, Subject&& subject) const {
    pass_named(name);  // asserts that the table has the pass
    Stopwatch watch;
    auto result = pass(std::forward<Subject>(subject), options_);
    logging::debug(1, "pass {:<10} {:8.2f} ms", name, watch.milliseconds());
    planning_.go_on(fmt::format("pass {} is done", name));
    if (debug_level() >= 3) logging::debug(3, "after {}:\n{}", name, to_text(result));
    if (debug_build || options_.verify) verify(result);
    return result;
  }
  template <class Subject, class Function>
  Subject unless_skipped(std::string_view name, Function pass, Subject subject) const {
    WEFT_ASSERT(pass_named(name).optional, "pass '{}' cannot be skipped", name);
    if (options_.skips(name)) return subject;
    return always(name, pass, std::move(subject));
  }

 private:
  const PassOptions& options_;
  logging::LongWork& planning_;
};

// Returns the plan of a step's kernels, in the order of the graph.
Plan kernels_of(const Graph& step, const PassOptions& options, logging::LongWork& planning) {
  Runner run(options, planning);
  const Graph stored = run.always("compression", compression, step);
  Plan plan = run.always("bufferize", bufferize, stored);    // fuses if options.fuses()
  plan = run.always("alias", alias_state, std::move(plan));  // copies where "alias" is skipped
  plan = run.always("rematerialize", rematerialize, std::move(plan));
  return run.always("offload", offload_state, std::move(plan));
}
Graph in_parts(int count, const Graph& step, PassOptions options, logging::LongWork& planning) {
  options.step.row_tiles = count;
  return count < 2 ? step
                   : Runner(options, planning).unless_skipped("row_tiling", row_tiling, step);
}

// Returns whether a library kernel stores values that derive from its other stored results.
bool stores_beside(const Plan& plan) {
  return std::ranges::any_of(plan.launches, [&](const Launch& launch) {
    return launch.kind == Launch::Kind::library && launch.results.size() > 1 &&
           reads_own(launch.body);
  });
}

// Plans the whole step or, under a memory limit, with its widest rows tiled and with
// rematerialization. For a tiled step the order of the graph is a second candidate: its tiles run
// one after another, and none waits for a sum.
Plan fitting(const Graph& step, PassOptions options, logging::LongWork& planning) {
  const Runner run(options, planning);
  auto is_cut = [&](const Graph& graph) { return graph.nodes().size() > step.nodes().size(); };
  auto plans_of = [&](const Graph& graph, bool cut) {
    Plan plan = kernels_of(graph, options, planning);
    std::vector<Plan> plans(cut ? 2 : 1);
    if (cut) plans.back() = plan;
    plans.front() = run.unless_skipped("schedule", schedule, std::move(plan));
    return plans;
  };
  const Graph graph = in_parts(options.step.row_tiles, step, options, planning);
  const bool cut = options.step.row_tiles > 1 && is_cut(graph);
  std::vector<Plan> plans = plans_of(graph, cut);
  Plan placed = run.always("memory", place_memory, plans.front());
  if (options.step.memory > 0 ? fits_memory(placed, options) : !options.may_drop()) return placed;
  if (stores_beside(plans.front())) {
    options.apart = true;
    plans = plans_of(graph, cut);
  }
  if (options.step.memory > 0 && options.step.row_tiles == 0) {
    const Graph parts = in_parts(most_parts, step, options, planning);
    if (is_cut(parts)) plans = plans_of(parts, true);
  }
  return run.always("fit", fit_memory, plans);
}

// Returns the graph whose values a plan computes, as long as these are the graph's own.
Graph roots_of(const Plan& plan) {
  Graph graph;
  for (const Access& input : plan.inputs) graph.inputs.push_back(input.value);
  for (const Access& output : plan.outputs) graph.outputs.push_back(output.value);
  for (const Assign& assign : plan.assigns)
    graph.assignments.push_back(
        {plan.slots[static_cast<size_t>(assign.state_slot)].value, assign.value.value});
  return graph;
}
}  // namespace

bool PassOptions::skips(std::string_view pass) const {
  return std::ranges::find(step.skip, pass) != step.skip.end();
}
bool PassOptions::fuses() const { return !skips("fuse") && !step.store_every_value; }
bool PassOptions::lends() const { return step.lend_arguments && library->memory().is_host(); }
bool PassOptions::has_fault(std::string_view name) const {
  if (fault.empty()) return false;
  check_fault(fault);
  check_fault(name);
  return fault == name;
}

BoundPlan bound_plan(const Graph& graph, PassOptions options) {
  const std::vector<std::string_view> optional = optional_passes();
  for (const std::string& name : options.step.skip)
    WEFT_CHECK(std::ranges::find(optional, name) != optional.end(),
               "[compile] no pass '{}' to skip. Known: {}.", name, fmt::join(optional, ", "));
  for (const PassDef& pass : passes())
    if (pass.off != nullptr && options.skips(pass.name)) pass.off(options.step);
  if (!options.fault.empty()) check_fault(options.fault);
  const std::shared_ptr<const Mesh>& mesh = options.step.mesh;
  if (options.may_drop() || mesh) options.machine = options.library->meters().spec();
  if (mesh) options.machine.link = &link_of(*mesh, options.machine.name);
  logging::LongWork planning("planning a step");
  Runner run(options, planning);
  Graph step = run.always("modules", mark_modules, graph);
  step = run.unless_skipped("integers", multiply_integers, std::move(step));
  step = run.always("precision", precision, step);
  step = run.always("shard", shard, step);
  step = run.always("decompose", decompose, step);
  step = run.unless_skipped("simplify", simplify, std::move(step));
  step = run.unless_skipped("copies", narrow_copies, std::move(step));
  step = run.unless_skipped("hoist", hoist_fixed, std::move(step));
  step = run.unless_skipped("fixed", mark_fixed, std::move(step));
  Plan plan = fitting(step, options, planning);
  check_memory(plan, options);
  if (debug_level() >= 2) logging::debug(2, "plan:\n{}", to_text(plan));
  const bool with_graph = options.with_graph || options.step.store_every_value;
  Graph planned = with_graph ? roots_of(plan) : Graph();
  BoundPlan bound = detached(std::move(plan));
  bound.graph = std::move(planned);
  if (debug_build || options.verify) verify(bound.plan);
  return bound;
}

Plan make_plan(const Graph& graph, PassOptions options) {
  return bound_plan(graph, std::move(options)).plan;
}

}  // namespace weft
