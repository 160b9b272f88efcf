// Plans of steps that do not run here: memory and time on any device, and what would make it fit.
#include <algorithm>

#include "weft/base/host/stopwatch.h"
#include "weft/device/catalogue.h"
#include "weft/device/registry.h"
#include "weft/planner/costs.h"
#include "weft/planner/planner.h"
#include "weft/tensor/device.h"

#include "python/src/step.h"

namespace weft::python {
namespace {
// A Sum is state of one purpose: its name, "parameter" or "optimizer" or "buffer", and the bytes
// of each variable.
using Sum = std::tuple<std::string, std::string, std::vector<size_t>>;

Category category_of(const std::string& name) {
  if (name == "optimizer") return Category::optimizer_state;
  return name == "buffer" ? Category::buffer_state : Category::parameter;
}

std::vector<StateBill> bills_of(const std::vector<Sum>& sums) {
  std::vector<StateBill> bills;
  for (const auto& [what, category, sizes] : sums) {
    StateBill& bill = bills.emplace_back(StateBill{
        {.what = what, .key = what, .row = what, .is_always_shown = true, .precedes_arena = true}});
    for (const size_t bytes : sizes) bill.blocks.push_back({category_of(category), bytes});
  }
  return bills;
}

// Returns the question with other options, as a change that `what` says.
Ladder ladder_of(const PlanQuestion& question, const std::string& what,
                 const std::function<void(StepOptions&)>& change) {
  return {{{what, [question, change] {
              PlanQuestion other = question;
              other.may_change.clear();
              change(other.options);
              return other;
            }}}};
}

// Returns the full name of a device that is here, or of the catalogue.
std::string full_name(const std::string& device) {
  try {
    return Device(device).name();
  } catch (const Error&) {
    throw Error(ErrorKind::usage, "[plan] on '{}': no such device. {}", device,
                machine_hint(device));
  }
}

nb::dict figures(const PlanAnswer& found) {
  nb::dict all;
  nb::list state;
  for (const Bill& bill : found.state_bills())
    state.append(nb::make_tuple(bill.purpose.row, bill.bytes));
  all["device"] = found.device_name;
  all["state"] = state;
  all["arena_bytes"] = found.arena_bytes;
  all["constant_bytes"] = found.constant_bytes;
  all["staging_bytes"] = found.staging_bytes;
  all["data_bytes"] = found.data_bytes;
  all["runtime_bytes"] = found.on_host ? found.runtime_bytes : 0;
  all["memory_bytes"] = found.memory_taken();
  all["device_bytes"] = found.memory_there();
  all["flops"] = found.flops;
  all["bytes"] = found.bytes;
  all["least_seconds"] = found.seconds;
  all["seconds"] = found.expected_seconds();
  all["rematerialized"] = found.rematerialized;
  all["live_bytes"] = by_name(live_by_category(*found.plans.front().plan));
  return all;
}

// Plans a step for a device. Where it takes more memory than the device has (or than `has`), the
// result has "refusal" and the remedies that were found within `seconds`.
nb::dict plan_for(Step& step, const std::vector<PyType>& types, const std::string& device,
                  const StepOptions& options, const std::vector<Sum>& state, size_t data_bytes,
                  size_t has, double seconds) {
  const std::string name = full_name(device);
  PlanQuestion question{.device = name,
                        .machine = known_spec(name),
                        .options = options,
                        .state = bills_of(state),
                        .data_bytes = data_bytes};
  question.steps.push_back({.name = "step", .graph = step.capture(types)});
  PlanAnswer found;
  Remedies remedies;
  bool fits = true;
  {
    const nb::gil_scoped_release released;
    found = answer(question);
    const size_t there = has > 0 ? has : found.memory_there();
    fits = !found.refusal && (there == 0 || found.memory_taken() <= there);
    if (!fits) {
      const bool is_narrow = options.precision != Precision::as_written;
      size_t room = found.refusal ? there : found.room_within(there);
      if (options.memory > 0) room = std::min(room, options.memory);
      const auto within = [room](StepOptions& to) {
        to.memory = as_limit(room);
        to.recompute = Recompute::automatic;
      };
      const auto narrow = [](StepOptions& to) { to.precision = Precision::bf16_mixed; };
      question.may_change = {ladder_of(question, "recomputation", within)};
      if (!is_narrow) {
        question.may_change.push_back(ladder_of(question, "precision=\"bf16\"", narrow));
        Ladder both =
            ladder_of(question, "precision=\"bf16\" and recomputation", [=](StepOptions& to) {
              within(to);
              narrow(to);
            });
        both.unless = 1;  // the narrow step fits by itself
        question.may_change.push_back(std::move(both));
      }
      remedies =
          find_remedies(question, false, {.has = there, .until = processor_seconds() + seconds});
    }
  }
  nb::dict all = found.refusal ? nb::dict() : figures(found);
  all["fits"] = fits;
  if (found.refusal) all["refusal"] = found.refusal->message;
  nb::list list;
  for (const Remedy& remedy : remedies.found)
    list.append(nb::make_tuple(remedy.what, remedy.seconds));
  all["remedies"] = list;
  return all;
}
}  // namespace

void bind_planning(nb::module_& m) {
  m.def("_plan", &plan_for, "step"_a, "types"_a, "device"_a, "options"_a, "state"_a,
        "data_bytes"_a = 0, "has"_a = 0, "seconds"_a = 20);
}

}  // namespace weft::python
