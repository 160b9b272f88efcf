#include "weft/cli/measure/ceiling.h"

#include <algorithm>
#include <set>

#include "weft/backends/cpu/selection.h"
#include "weft/device/spec.h"
#include "weft/ir/op_def.h"

namespace weft::cli {
namespace {
const Node* product_of(const Launch& launch) {
  auto found = std::ranges::find_if(
      launch.body, [](const Value& value) { return value->op->kind == OpKind::contraction; });
  return found == launch.body.end() ? nullptr : found->node();
}

// Returns the placements of a node's inputs; values that the launch computes itself count as
// row-major.
std::vector<Placement> operands_of(const Launch& launch, const Node& node) {
  std::vector<Placement> placements;
  for (const Value& input : node.inputs) {
    auto found = std::ranges::find_if(launch.operands, [&](const Access& operand) {
      return operand.value.node() == input.node();
    });
    if (found != launch.operands.end())
      placements.push_back(found->at);
    else
      placements.push_back({.strides = row_major_strides(input.shape())});
  }
  return placements;
}

// Returns everything that the time of the node depends on, as text.
std::string signature(const Node& node, std::span<const Placement> operands) {
  std::string text(node.op->name);
  for (const Attrs::Entry& entry : node.attrs.entries()) {
    if (const auto* number = std::get_if<int64_t>(&entry.value)) text += std::to_string(*number);
    if (const auto* dims = std::get_if<Dims>(&entry.value)) text += to_string(*dims);
    text += ' ';
  }
  for (size_t i = 0; i < operands.size(); ++i)
    text += to_string(node.inputs[i].type()) + to_string(operands[i].strides) + ' ';
  return text + to_string(node.type);
}
}  // namespace

LeastWork least_work(const Plan& plan) {
  LeastWork work;
  std::set<int> read;
  for (const Launch& launch : plan.launches) {
    if (launch.rematerialized) continue;
    work.flops[std::string(name(computed_in(launch)))] += launch.flops;
    for (const Access& operand : launch.operands) read.insert(operand.at.slot);
  }
  auto bytes_of = [](const Access& access) {
    return static_cast<double>(access.value.type().bytes());
  };
  for (int slot : read) {
    const Slot& at = plan.slots[static_cast<size_t>(slot)];
    if (at.space != Space::arena) work.bytes += static_cast<double>(at.bytes);
  }
  for (const Access& input : plan.inputs) work.bytes += bytes_of(input);
  for (const Access& output : plan.outputs) work.bytes += bytes_of(output);
  for (const Assign& assign : plan.assigns) work.bytes += bytes_of(assign.value);
  return work;
}

double products_milliseconds(const Plan& plan) {
  std::map<std::string, double> measured;
  double all = 0;
  for (const Launch& launch : plan.launches) {
    const Node* node = product_of(launch);
    if (node == nullptr || launch.rematerialized) continue;
    const std::vector<Placement> operands = operands_of(launch, *node);
    auto [found, is_new] = measured.try_emplace(signature(*node, operands));
    if (is_new) found->second = cpu::least_milliseconds(*node, operands);
    all += found->second;
  }
  return all;
}

}  // namespace weft::cli
