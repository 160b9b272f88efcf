#include "weft/runtime/summary.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "weft/base/numbers/quantity.h"
#include "weft/ir/op_def.h"
#include "weft/passes/memory/transfers.h"
#include "weft/runtime/executable.h"
#include "weft/runtime/inputs.h"

namespace weft {
namespace {
// `seconds` returns the duration of one launch.
template <class Seconds>
double seconds_of(const Plan& plan, const MachineSpec& machine, Seconds seconds) {
  if (!machine.known()) return 0;
  double now = 0, to_files = 0, from_files = 0;  // when the direction is free
  double link = 0;                               // when the link to other ranks is free
  std::map<int, double> over;                    // when the last transfer of a slot ends
  for (const Launch& launch : plan.launches) {
    if (launch.kind == Launch::Kind::transfer) {
      double& way = machine.both_ways && is_fetch(plan, launch) ? from_files : to_files;
      double& there = over[file_slot(plan, launch)];
      way = std::max({now, way, there}) +
            launch.bytes * machine.file_slowdown() / machine.bytes_per_s;
      there = over[memory_slot(plan, launch)] = way;
    } else if (launch.kind == Launch::Kind::collective) {
      link = std::max(now, link) + seconds(launch);
      over[launch.results[0].at.slot] = link;
    } else if (launch.kind == Launch::Kind::await) {
      now = std::max(now, over.at(launch.operands[0].at.slot));
    } else {
      now += seconds(launch);
    }
  }
  return now;
}

// Returns a name that is equal for launches of a plan that keep the same operand packed in the same
// layout.
std::string packed_operand(const Launch& launch) {
  const Placement& at = launch.operands[launch.body.front()->inputs.size() - 1].at;
  return fmt::format("s{}+{}{} {}", at.slot, at.offset, to_string(at.strides),
                     launch.packed_layout);
}
}  // namespace

double planned_seconds(const Plan& plan, const MachineSpec& machine) {
  return seconds_of(plan, machine,
                    [&](const Launch& launch) { return roofline(launch, machine).seconds(); });
}
double likely_seconds(const Plan& plan, const MachineSpec& machine) {
  return seconds_of(plan, machine,
                    [&](const Launch& launch) { return likely_seconds(launch, machine); });
}

std::string largest_value(const Plan& plan) {
  const Slot* largest = nullptr;
  for (const Slot& slot : plan.slots) {
    const bool is_value = slot.space != Space::file && slot.value.defined();  // no workspace
    if (is_value && (largest == nullptr || slot.bytes > largest->bytes)) largest = &slot;
  }
  if (largest == nullptr) return "";
  const Node& node = *largest->value.node();
  const std::string of = largest->variable >= 0  ? plan.variable(*largest).name
                         : node.module().empty() ? std::string(node.op->name)
                                                 : node.module();
  const auto [number, unit] = scaled(static_cast<double>(largest->bytes));
  return fmt::format("{} of {}, {:.1f} {}", to_string(largest->type), of, number, unit);
}

PlanSummary summarize(const Plan& plan, const KernelLibrary& library, const MachineSpec& machine) {
  PlanSummary summary{.arena_bytes = plan.arena_bytes,
                      .live_peak_bytes = plan.live_peak_bytes,
                      .file_bytes = plan.file_bytes,
                      .largest = largest_value(plan),
                      .flops = plan.flops(),
                      .seconds = planned_seconds(plan, machine)};
  if (library.stages_inputs()) summary.staging_bytes = staged_bytes(plan);
  if (machine.sustained) summary.likely_seconds = likely_seconds(plan, machine);
  std::set<int> counted;
  for (const Slot& slot : plan.slots)
    if (slot.space == Space::state) counted.insert(slot.variable);
  for (const Slot& slot : plan.slots) {
    if (slot.space == Space::state) {
      const std::vector<int>& sources = plan.variable(slot).sources;
      (sources.empty() ? summary.state_bytes : summary.constant_bytes) += slot.bytes;
      // The weights that it derives from stay in memory, though the step does not read them.
      for (const int source : sources)
        if (counted.insert(source).second)
          summary.state_bytes += plan.variables[static_cast<size_t>(source)].type.bytes();
    }
    if (slot.space == Space::constant) summary.constant_bytes += slot.bytes;
    if (slot.space == Space::argument) summary.argument_bytes += slot.bytes;
    if (slot.space == Space::file && slot.variable >= 0) summary.file_bytes += slot.bytes;
  }
  std::set<std::string> shared;  // packed weights that launches share
  for (const Launch& launch : plan.launches) {
    summary.bytes += launch.bytes;
    if (launch.packed_layout.empty() || shared.insert(packed_operand(launch)).second)
      summary.constant_bytes += launch.packed_bytes;
    if (launch.kind == Launch::Kind::transfer || launch.kind == Launch::Kind::await) continue;
    ++summary.launches;
    if (launch.rematerialized) ++summary.rematerialized;
  }
  return summary;
}

}  // namespace weft
