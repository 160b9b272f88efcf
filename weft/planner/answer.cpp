#include "weft/planner/answer.h"

#include <algorithm>
#include <set>

#include "weft/base/host/parallel.h"
#include "weft/base/memory/memory.h"
#include "weft/device/link.h"
#include "weft/device/registry.h"
#include "weft/ops/collective.h"
#include "weft/runtime/footprint.h"
#include "weft/runtime/summary.h"

namespace weft {
namespace {
// Counts offloaded state and copies of weights once for all steps, and their other values in files
// for each step.
void count_shared(PlanAnswer& answer) {
  Bill copies{{.what = "16-bit weight copies",
               .key = "copy_bytes",
               .row = "copies",
               .note = "of weights, in the type that matrix products read"}};
  std::set<std::pair<uint64_t, DType>> counted;  // variables
  for (const PlannedStep& step : answer.plans) {
    answer.file_bytes += step.plan->file_bytes;
    for (const Slot& slot : step.plan->slots) {
      if (slot.space == Space::arena || slot.variable < 0) continue;
      if (!counted.insert(step.plan->identity(slot)).second) continue;
      if (slot.space == Space::file) answer.offloaded_bytes += slot.bytes;
      if (step.plan->variable(slot).copy_of >= 0) copies.bytes += static_cast<int64_t>(slot.bytes);
    }
    for (const Launch& kernel : step.plan->launches)
      if (kernel.kind == Launch::Kind::transfer)
        answer.file_traffic += static_cast<double>(step.per_update) * kernel.bytes;
  }
  answer.file_bytes += answer.offloaded_bytes;
  answer.state.push_back(std::move(copies));
}

// Adds to the bill for the same work.
void put_down(std::vector<TimeBill>& bills, const TimeBill& more) {
  const auto same = std::ranges::find_if(bills, [&](const TimeBill& bill) {
    return bill.work == more.work && bill.is_again == more.is_again;
  });
  if (same == bills.end())
    bills.push_back(more);
  else
    same->seconds += more.seconds;
}

// Adds a collective that an update runs so many times.
void put_down(PlanAnswer& answer, const Launch& collective, int64_t times,
              const MachineSpec& machine) {
  auto same = std::ranges::find(answer.exchanges, collective.kernel, &Exchange::op);
  if (same == answer.exchanges.end())
    same = answer.exchanges.insert(same, {.op = collective.kernel});
  same->count += times;
  same->bytes_sent += static_cast<double>(times) * bytes_sent(collective);
  const double seconds = static_cast<double>(times) * roofline(collective, machine).seconds();
  answer.exchange_seconds += seconds;
  const Collective what = collective_of(*collective.body.front().node());
  if (what.reader.empty()) return;
  auto known = std::ranges::find_if(answer.gathers, [&](const Gather& each) {
    return each.op == what.reader && each.module == collective.module;
  });
  if (known == answer.gathers.end())
    known = answer.gathers.insert(known, {std::string(what.reader), collective.module});
  known->bytes_sent += static_cast<double>(times) * bytes_sent(collective);
  known->seconds += seconds;
}

// Adds what one step takes, and what its executions add to an update.
void add(PlanAnswer& answer, const PlannedStep& step, const KernelLibrary& device,
         const MachineSpec& machine) {
  const auto times = static_cast<double>(step.per_update);
  const PlanSummary one = summarize(*step.plan, device, machine);
  answer.arena_bytes = std::max(answer.arena_bytes, one.arena_bytes);
  answer.staging_bytes += one.staging_bytes;
  answer.constant_bytes += one.constant_bytes;
  answer.flops += times * one.flops;
  answer.bytes += times * one.bytes;
  answer.seconds += times * one.seconds;
  answer.likely_seconds += times * one.likely_seconds;
  if (machine.was_measured())
    answer.measured_peaks_seconds += times * planned_seconds(*step.plan, as_measured(machine));
  double in_kernels = 0;
  for (const Launch& kernel : step.plan->launches) {
    if (kernel.rematerialized) answer.rematerialized += step.per_update;
    if (kernel.kind == Launch::Kind::transfer || kernel.kind == Launch::Kind::await) continue;
    if (kernel.kind == Launch::Kind::collective) {
      put_down(answer, kernel, step.per_update, machine);
      continue;
    }
    const Roofline best = roofline(kernel, machine);
    in_kernels += best.seconds();
    put_down(answer.time, {.work = best.compute_bound() ? TimeBill::Work::arithmetic
                                                        : TimeBill::Work::memory_traffic,
                           .is_again = kernel.rematerialized,
                           .seconds = times * best.seconds()});
  }
  MachineSpec apart = machine;
  apart.link = nullptr;
  const bool is_likely = one.likely_seconds > 0;
  const double alone =
      is_likely ? likely_seconds(*step.plan, apart) : planned_seconds(*step.plan, apart);
  answer.exposed_seconds += times * ((is_likely ? one.likely_seconds : one.seconds) - alone);
  put_down(answer.time,
           {.work = TimeBill::Work::transfers, .seconds = times * (one.seconds - in_kernels)});
}
}  // namespace

size_t bytes_of(const StateBlocks& state) { return resident_bytes(state, {}); }
size_t resident_bytes(const StateBlocks& state, const Offload& offload) {
  size_t bytes = 0;
  for (const StateBlock& block : state)
    if (!offload.covers(block.category, block.bytes)) bytes += block.bytes;
  return bytes;
}

size_t PlanQuestion::resident_state() const {
  size_t bytes = 0;
  for (const StateBill& bill : state)
    if (!bill.purpose.depends_on_batch) bytes += resident_bytes(bill.blocks, options.offload);
  return bytes;
}

PlanAnswer sum_up(const PlanQuestion& question, std::vector<PlannedStep> plans) {
  const KernelLibrary& device = library(question.device);
  PlanAnswer all{.plans = std::move(plans),
                 .data_bytes = question.data_bytes,
                 .snapshot_bytes = question.snapshot_bytes,
                 .on_host = device.on_host(),
                 .basis = question.machine.basis,
                 .device_name = question.machine.name,
                 .device_bytes = question.machine.memory_bytes,
                 .machine = device.kernels().machine(),
                 .kernels = device.kernels().selection()};
  for (const StateBill& bill : question.state)
    all.state.push_back({bill.purpose, static_cast<int64_t>(bytes_of(bill.blocks))});
  std::vector<const Plan*> each;
  for (const PlannedStep& step : all.plans) {
    each.push_back(step.plan.get());
    add(all, step, device, question.machine);
  }
  count_shared(all);
  all.runtime_bytes = runtime_bytes(thread_count(), each);
  return all;
}

size_t PlanAnswer::bytes_of(std::string_view what) const {
  for (const Bill& bill : state)
    if (bill.purpose.what == what) return static_cast<size_t>(bill.bytes);
  return 0;
}

size_t PlanAnswer::initial_bytes() const {
  size_t bytes = 0;
  for (const Bill& bill : state)
    if (bill.purpose.precedes_arena) bytes += static_cast<size_t>(bill.bytes);
  return bytes;
}

size_t PlanAnswer::state_bytes() const {
  size_t bytes = 0;
  for (const Bill& bill : state) bytes += static_cast<size_t>(bill.bytes);
  return bytes - offloaded_bytes;
}

std::vector<Bill> PlanAnswer::state_bills() const {
  std::vector<Bill> bills = state;
  bills.push_back({{.what = "offloaded"}, -static_cast<int64_t>(offloaded_bytes)});
  std::erase_if(bills, [](const Bill& bill) { return !bill.is_shown(); });
  return bills;
}

double PlanAnswer::compute_bound_seconds() const {
  double sum = 0;
  for (const TimeBill& bill : time)
    if (bill.work == TimeBill::Work::arithmetic) sum += bill.seconds;
  return sum;
}

double PlanAnswer::rematerialized_seconds() const {
  double sum = 0;
  for (const TimeBill& bill : time)
    if (bill.is_again) sum += bill.seconds;
  return sum;
}

double PlanAnswer::recompute_price() const {
  if (rematerialized == 0 || seconds <= 0) return 0;
  return unlimited_seconds > 0
             ? expected_seconds() / unlimited_seconds - 1
             : rematerialized_seconds() / std::max(seconds - rematerialized_seconds(), 1e-12);
}

size_t PlanAnswer::memory_there() const { return on_host ? machine_memory() : device_bytes; }

size_t PlanAnswer::room_within(size_t has) const {
  const size_t besides = on_host ? data_bytes + snapshot_bytes + runtime_bytes : staging_bytes;
  return has - std::min(has, besides);
}

}  // namespace weft
