#include "weft/passes/steps.h"

#include <algorithm>

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
