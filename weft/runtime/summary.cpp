#include "weft/runtime/summary.h"

#include <algorithm>
#include <map>

#include "weft/passes/transfers.h"
#include "weft/runtime/executable.h"

namespace weft {
namespace {
// `seconds`: of a kernel.
template <class Seconds>
double seconds_of(const Plan& plan, const MachineSpec& machine, Seconds seconds) {
  if (!machine.known()) return 0;
  double now = 0, to_files = 0, from_files = 0;  // when the way is free
  std::map<int, double> over;                    // when the transfer of a slot is
  for (const Step& step : plan.steps) {
    if (step.kind == Step::Kind::transfer) {
      double& way = machine.both_ways && is_fetch(plan, step) ? from_files : to_files;
      double& there = over[file_slot(plan, step)];
      way =
          std::max({now, way, there}) + step.bytes * machine.file_slowdown() / machine.bytes_per_s;
      there = over[memory_slot(plan, step)] = way;
    } else if (step.kind == Step::Kind::await) {
      now = std::max(now, over.at(step.operands[0].at.slot));
    } else {
      now += seconds(step);
    }
  }
  return now;
}
}  // namespace

double planned_seconds(const Plan& plan, const MachineSpec& machine) {
  return seconds_of(plan, machine,
                    [&](const Step& step) { return roofline(step, machine).seconds(); });
}
double likely_seconds(const Plan& plan, const MachineSpec& machine) {
  return seconds_of(plan, machine, [&](const Step& step) { return likely_seconds(step, machine); });
}

PlanSummary summarize(const Plan& plan, const KernelLibrary& library, const MachineSpec& machine) {
  PlanSummary summary{.arena_bytes = plan.arena_bytes,
                      .live_peak_bytes = plan.live_peak_bytes,
                      .file_bytes = plan.file_bytes,
                      .flops = plan.flops(),
                      .seconds = planned_seconds(plan, machine)};
  if (library.stages_inputs()) summary.staging_bytes = staged_bytes(plan);
  if (machine.sustained) summary.likely_seconds = likely_seconds(plan, machine);
  for (const Slot& slot : plan.slots) {
    if (slot.space == Space::state) summary.state_bytes += slot.bytes;
    if (slot.space == Space::constant) summary.constant_bytes += slot.bytes;
    if (slot.space == Space::file && slot.value->variable != nullptr)
      summary.file_bytes += slot.bytes;
  }
  for (const Step& step : plan.steps) {
    summary.bytes += step.bytes;
    if (step.kind == Step::Kind::transfer || step.kind == Step::Kind::await) continue;
    ++summary.launches;
    if (step.again) ++summary.again;
  }
  return summary;
}

}  // namespace weft
