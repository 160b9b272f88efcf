#include "weft/passes/memory/launches.h"

#include <algorithm>
#include <unordered_set>

#include "weft/device/catalogue.h"
#include "weft/device/link.h"
#include "weft/ir/op_def.h"

namespace weft {

void count_work(Launch& launch, std::span<const Slot> slots) {
  launch.flops = launch.bytes = 0;
  for (const Value& value : launch.body) launch.flops += flops(*value.node());
  for (auto operand = launch.operands.begin(); operand != launch.operands.end(); ++operand) {
    const auto same = [&](const Access& other) { return other.at.slot == operand->at.slot; };
    if (std::any_of(launch.operands.begin(), operand, same)) continue;  // counted before
    size_t bytes = 0;
    for (auto view = operand; view != launch.operands.end(); ++view)
      if (same(*view)) bytes += view->value.type().bytes();
    const Slot& slot = slots[static_cast<size_t>(operand->at.slot)];
    launch.bytes += static_cast<double>(std::min(bytes, slot.bytes));
  }
  for (const Access& result : launch.results)
    launch.bytes += static_cast<double>(result.value.type().bytes());
}

double cost(const Launch& launch, const MachineSpec& machine) {
  if (launch.kind == Launch::Kind::transfer) return machine.file_slowdown() * launch.bytes;
  const MachineSpec& peaks = machine.known() ? machine : processor_spec();
  if (launch.kind == Launch::Kind::collective) {
    // Waiting for other ranks takes about as long as a kernel that reads a MiB.
    constexpr double exchange_latency = 1 << 20;
    if (machine.link == nullptr) return exchange_latency;
    return exchange_seconds(launch, *machine.link, peaks.bytes_per_s) * peaks.bytes_per_s +
           exchange_latency;
  }
  const double flops_per_byte = flops_per_s_of(launch, peaks) / peaks.bytes_per_s;
  return std::max(launch.flops / flops_per_byte, launch.bytes);
}

Launch run_again_for(Launch launch, std::span<const int> slots, std::span<const Slot> all,
                     const KernelLibrary& library) {
  launch.rematerialized = true;
  auto is_needed = [&](const Access& result) {
    return std::ranges::find(slots, result.at.slot) != slots.end();
  };
  if (launch.kind == Launch::Kind::library || std::ranges::all_of(launch.results, is_needed))
    return launch;
  std::unordered_set<const Node*> needed, read;
  for (const Access& result : launch.results)
    if (is_needed(result)) needed.insert(result.value.node());
  bool reduces = false;
  for (auto value = launch.body.rbegin(); value != launch.body.rend(); ++value) {
    if (!needed.contains(value->node())) continue;
    reduces = reduces || (*value)->op->kind == OpKind::reduce;
    for (const Value& input : (*value)->inputs) needed.insert(input.node());
  }
  if (reduces) return launch;
  std::erase_if(launch.results, [&](const Access& result) { return !is_needed(result); });
  std::erase_if(launch.body, [&](const Value& value) { return !needed.contains(value.node()); });
  for (const Value& value : launch.body)
    for (const Value& input : value->inputs) read.insert(input.node());
  std::erase_if(launch.operands,
                [&](const Access& operand) { return !read.contains(operand.value.node()); });
  launch.in_place.clear();
  count_work(launch, all);
  launch.workspace = library.compiler().workspace(launch);
  return launch;
}

void insert(Plan& plan, std::vector<std::pair<int, Launch>> made) {
  std::ranges::stable_sort(made, {}, &std::pair<int, Launch>::first);
  std::vector<Launch> launches;
  auto next = made.begin();
  for (size_t at = 0; at <= plan.launches.size(); ++at) {
    for (; next != made.end() && next->first == static_cast<int>(at); ++next)
      launches.push_back(std::move(next->second));
    if (at < plan.launches.size()) launches.push_back(std::move(plan.launches[at]));
  }
  plan.launches = std::move(launches);
}

bool gathers(const Launch& launch, const Node* operand) {
  return std::ranges::any_of(launch.body, [operand](const Value& value) {
    auto same = [operand](const Value& input) { return input.node() == operand; };
    return reads_memory(*value.node()) && std::ranges::any_of(value->inputs, same);
  });
}

bool reads_own(std::span<const Value> body) {
  return std::ranges::any_of(body, [&](const Value& value) {
    return std::ranges::find(value->inputs, body.front().node(), &Value::node) !=
           value->inputs.end();
  });
}

}  // namespace weft
