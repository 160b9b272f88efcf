#include "tests/support/planning_library.h"

#include <algorithm>

#include "weft/ir/op_def.h"

namespace weft::testing {

std::optional<KernelChoice> PlanningLibrary::choose(const Node& node,
                                                    std::span<const Placement>) const {
  bool overridden = std::find(overrides.begin(), overrides.end(), node.op->name) != overrides.end();
  bool own = node.op->kind == OpKind::contraction || node.op->kind == OpKind::window || overridden;
  if (!own) return std::nullopt;
  KernelChoice choice;
  choice.kernel = "test:" + std::string(node.op->name);
  for (const Value& input : node.inputs) choice.operand_order.push_back(Dims::iota(input.rank()));
  if (const auto order = orders.find(node.op->name); order != orders.end())
    choice.operand_order.back() = order->second;
  if (node.op->kind == OpKind::contraction) {
    choice.workspace = workspace;
    choice.most_workspace = most_workspace;
  }
  return choice;
}

std::optional<KernelChoice> PlanningLibrary::choose_with(
    std::span<const Value> body, std::span<const Value> results,
    std::span<const Placement> operands) const {
  if (results.size() > most_results) return std::nullopt;
  if (std::ranges::any_of(body, [&](const Value& node) {
        return std::ranges::find(alone, node->op->name) != alone.end();
      }))
    return std::nullopt;
  const auto is_inside = [&](const Value& value) {
    return std::ranges::find(body, value.node(), &Value::node) != body.end();
  };
  const auto follows = [&](const Value& node) {
    return choose(*node.node(), {}).has_value() && std::ranges::any_of(node->inputs, is_inside);
  };
  if (!chains && std::ranges::any_of(body, follows)) return std::nullopt;
  std::optional<KernelChoice> choice = choose(*body.front().node(), operands);
  choice->kernel += "+" + std::to_string(body.size() - 1);
  return choice;
}

bool PlanningLibrary::is_epilogue(const Node& composite) const {
  return std::ranges::find(epilogues, composite.op->name) != epilogues.end();
}

}  // namespace weft::testing
