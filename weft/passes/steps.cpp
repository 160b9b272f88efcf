#include "weft/passes/steps.h"

#include <algorithm>
#include <unordered_set>

#include "weft/device/catalogue.h"
#include "weft/ir/op_def.h"

namespace weft {

void count_work(Step& step, std::span<const Slot> slots) {
  step.flops = step.bytes = 0;
  for (const Value& value : step.body) step.flops += flops(*value.node());
  for (auto operand = step.operands.begin(); operand != step.operands.end(); ++operand) {
    const auto same = [&](const Access& other) { return other.at.slot == operand->at.slot; };
    if (std::any_of(step.operands.begin(), operand, same)) continue;  // counted before
    size_t bytes = 0;
    for (auto view = operand; view != step.operands.end(); ++view)
      if (same(*view)) bytes += view->value.type().bytes();
    const Slot& slot = slots[static_cast<size_t>(operand->at.slot)];
    step.bytes += static_cast<double>(std::min(bytes, slot.bytes));
  }
  for (const Access& result : step.results)
    step.bytes += static_cast<double>(result.value.type().bytes());
}

double cost(const Step& step, const MachineSpec& machine) {
  if (step.kind == Step::Kind::transfer) return machine.file_slowdown() * step.bytes;
  const MachineSpec& peaks = machine.known() ? machine : processor_spec();
  const double flops_per_byte = flops_per_s_of(step, peaks) / peaks.bytes_per_s;
  return std::max(step.flops / flops_per_byte, step.bytes);
}

Step run_again_for(Step step, std::span<const int> slots, std::span<const Slot> all,
                   const KernelLibrary& library) {
  step.again = true;
  auto is_needed = [&](const Access& result) {
    return std::ranges::find(slots, result.at.slot) != slots.end();
  };
  if (step.kind == Step::Kind::library || std::ranges::all_of(step.results, is_needed)) return step;
  std::unordered_set<const Node*> needed, read;
  for (const Access& result : step.results)
    if (is_needed(result)) needed.insert(result.value.node());
  bool reduces = false;
  for (auto value = step.body.rbegin(); value != step.body.rend(); ++value) {
    if (!needed.contains(value->node())) continue;
    reduces = reduces || (*value)->op->kind == OpKind::reduce;
    for (const Value& input : (*value)->inputs) needed.insert(input.node());
  }
  if (reduces) return step;
  std::erase_if(step.results, [&](const Access& result) { return !is_needed(result); });
  std::erase_if(step.body, [&](const Value& value) { return !needed.contains(value.node()); });
  for (const Value& value : step.body)
    for (const Value& input : value->inputs) read.insert(input.node());
  std::erase_if(step.operands,
                [&](const Access& operand) { return !read.contains(operand.value.node()); });
  step.in_place.clear();
  count_work(step, all);
  step.workspace = library.compiler().workspace(step);
  return step;
}

void insert(Plan& plan, std::vector<std::pair<int, Step>> made) {
  std::ranges::stable_sort(made, {}, &std::pair<int, Step>::first);
  std::vector<Step> steps;
  auto next = made.begin();
  for (size_t at = 0; at <= plan.steps.size(); ++at) {
    for (; next != made.end() && next->first == static_cast<int>(at); ++next)
      steps.push_back(std::move(next->second));
    if (at < plan.steps.size()) steps.push_back(std::move(plan.steps[at]));
  }
  plan.steps = std::move(steps);
}

bool gathers(const Step& step, const Node* operand) {
  return std::ranges::any_of(step.body, [operand](const Value& value) {
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
