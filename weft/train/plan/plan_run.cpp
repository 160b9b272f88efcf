// Plans runs for `weft plan`. A run that does not fit is planned again within the memory of the
// device or of this machine. Refuses a run that cannot fit, and names changes with which it would.
#include "weft/train/plan/plan_run.h"

#include <utility>

#include <fmt/format.h>

#include "weft/base/host/stopwatch.h"
#include "weft/base/memory/memory.h"
#include "weft/base/numbers/quantity.h"
#include "weft/device/link.h"
#include "weft/device/world.h"
#include "weft/ir/mesh.h"
#include "weft/planner/planner.h"
#include "weft/train/plan/advice.h"
#include "weft/train/run/ranks.h"

namespace weft::train {
namespace {
// Returns a limit as a recipe says it.
std::string limit_text(size_t bytes) {
  return bytes >> 20 > 0 ? fmt::format("{}MiB", bytes >> 20) : fmt::format("{}", bytes);
}

std::string too_large(const PlanAnswer& found) {
  auto text = [](size_t count) { return bytes_text(static_cast<double>(count)); };
  return fmt::format("the plan does not fit: it takes {} of memory. A run can use {} on {}.",
                     text(found.memory_taken()), text(found.memory_there()),
                     found.on_host ? "this machine" : found.device_name);
}

// Compares an answer with `whole`, the answer without a memory limit.
void compare(PlanAnswer& found, const PlanAnswer& whole) {
  found.unlimited_bytes = whole.total_bytes();
  found.unlimited_seconds = whole.expected_seconds();
}

PlanQuestion without_limit(PlanQuestion question) {
  question.options.memory = 0;
  return question;
}

// Records the cost of fitting in memory: asks again without a limit for comparison.
void compare_with_unlimited(PlanAnswer& found, const PlanQuestion& question) {
  const bool is_compared = found.unlimited_bytes > 0;
  if (is_compared || (found.rematerialized == 0 && question.options.memory == 0)) return;
  PlanQuestion unlimited = without_limit(question);
  unlimited.options.recompute = Recompute::none;
  compare(found, answer_that_fits(unlimited));
}

// Answers within `host_memory`, or the memory of the device. `whole` is the answer without a limit.
// The question and the recipe get the limit that is found.
PlanAnswer fitted_answer(RunQuestion& run, size_t host_memory, std::string message, double began,
                         const PlanAnswer& whole) {
  PlanQuestion& question = run.question;
  const size_t has = whole.on_host ? host_memory : whole.device_bytes;
  const size_t own = question.options.memory > 0 ? question.options.memory : INT64_MAX;
  const size_t room = whole.room_within(has);
  const RunReport report = make_report(run.experiment, whole);
  if (room == 0 || own <= room)
    throw DoesNotFit(message + " " + changes_that_fit(run, has, began, whole.expected_seconds()),
                     refusal_table(report, own));
  if (question.options.memory > 0) message = too_large(whole);
  auto limit_to = [&](size_t bytes) {
    question.options.memory = bytes;
    run.is_limit_found = true;
    run.experiment.recipe.set(keys::train::memory, limit_text(bytes), limit_origin);
  };
  limit_to(as_limit(room));
  PlanAnswer found = answer_within(question, has);
  if (!found.refusal) {
    limit_to(question.options.memory);
    if (question.options.recompute == Recompute::automatic) compare(found, whole);
    return found;
  }
  limit_to(as_limit(room));
  if (const size_t least = found.refusal->least_bytes; least > 0)
    message +=
        fmt::format(" Its smallest plan takes {}, and {} are available to it.",
                    bytes_text(static_cast<double>(least)), bytes_text(static_cast<double>(room)));
  throw DoesNotFit(message + " " + changes_that_fit(run, has, began, whole.expected_seconds()),
                   refusal_table(report, room));
}

std::unique_ptr<PlannedRun> planned(RunQuestion run, PlanAnswer found) {
  RunReport report = make_report(run.experiment, std::move(found));
  return std::make_unique<PlannedRun>(std::move(run), std::move(report));
}
}  // namespace

namespace {
// Returns the mesh of the ranks that a recipe asks for; null for one.
std::shared_ptr<const Mesh> planned_mesh(const Recipe& recipe) {
  refuse_described(recipe);
  const int64_t ranks = recipe->parallel.dp.value_or(world().size());
  if (ranks == 1) return nullptr;
  refuse_on_ranks(recipe);
  return std::make_shared<Mesh>(Mesh{.axes = {mesh_axis(std::string(data_axis), ranks, 0)}});
}
MachineSpec with_link(const Experiment& experiment, MachineSpec machine) {
  if (experiment.ranks() > 1) machine.link = &link_of(*experiment.mesh, machine.name);
  return machine;
}
}  // namespace

PlanQuestion question_of(const Experiment& experiment, const Steps& steps,
                         const MachineSpec& machine) {
  const std::string& device = experiment.recipe->train.device;
  std::vector<StateBill> state = experiment.bills();
  state.push_back({{.what = "accumulated gradients",
                    .key = "accumulator_bytes",
                    .row = "gradients",
                    .note = "accumulated over micro-batches",
                    .depends_on_batch = true},
                   blocks_of(steps.accumulators())});
  return {.steps = {},
          .device = device,
          .machine = with_link(experiment, machine),
          .options = step_options(experiment, device),
          .state = std::move(state),
          .data_bytes = experiment.data_bytes(),
          .snapshot_bytes = experiment.snapshot_bytes(experiment.recipe)};
}

RunQuestion ask(const Recipe& recipe, const MachineSpec& machine) {
  RunQuestion run{
      .experiment = make_experiment(recipe, {.initialize = false, .mesh = planned_mesh(recipe)}),
      .question = {}};
  share_out(run.experiment);
  Steps steps(run.experiment, "null:" + recipe->train.device);
  run.question = question_of(run.experiment, steps, machine);
  run.question.steps = steps.captured();
  return run;
}

std::unique_ptr<PlannedRun> plan_within(const Recipe& recipe, const MachineSpec& machine,
                                        size_t host_memory, const std::string& message,
                                        double began) {
  RunQuestion run = ask(recipe, machine);
  const PlanAnswer whole = answer_that_fits(without_limit(run.question));
  PlanAnswer found = fitted_answer(run, host_memory, message, began, whole);
  return planned(std::move(run), std::move(found));
}

PlannedRun::PlannedRun(const Recipe& recipe, const MachineSpec& machine)
    : RunQuestion(ask(recipe, machine)),
      report(make_report(experiment, answer_that_fits(question))) {}
PlannedRun::PlannedRun(RunQuestion run, RunReport report)
    : RunQuestion(std::move(run)), report(std::move(report)) {}

std::unique_ptr<PlannedRun> plan_run(const Recipe& recipe, const MachineSpec& machine) {
  const double began = processor_seconds();
  RunQuestion run = ask(recipe, machine);
  PlanAnswer found = answer(run.question);
  std::string refusal;
  if (found.refusal)
    refusal = found.refusal->message;
  else if (const size_t has = found.memory_there(); has > 0 && found.memory_taken() > has)
    refusal = too_large(found);
  if (!refusal.empty()) {
    const bool is_whole = !found.refusal && run.question.options.memory == 0;
    const PlanAnswer whole = is_whole ? found : answer_that_fits(without_limit(run.question));
    found = fitted_answer(run, machine_memory(), refusal, began, whole);
  }
  compare_with_unlimited(found, run.question);
  constexpr double dear = 0.4;  // rematerializing the whole forward pass takes about a third
  std::string quicker;
  if (found.recompute_price() > dear)
    quicker = quicker_changes(run, found.memory_there(), began, found.expected_seconds());
  refuse_gathers(run.experiment.recipe, make_report(run.experiment, found));
  std::unique_ptr<PlannedRun> result = planned(std::move(run), std::move(found));
  result->report.quicker = std::move(quicker);
  return result;
}

}  // namespace weft::train
