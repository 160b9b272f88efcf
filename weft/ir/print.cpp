// Prints graphs, and computes the hashes of graphs and plans.
#include <unordered_map>

#include <fmt/format.h>

#include "weft/base/numbers/hash.h"
#include "weft/ir/graph.h"
#include "weft/ir/op_def.h"
#include "weft/ir/plan.h"

namespace weft {
namespace {
std::string to_string(const Attr& attr) {
  struct {
    std::string operator()(int64_t v) const { return fmt::format("{}", v); }
    std::string operator()(double v) const { return fmt::format("{}", v); }
    std::string operator()(const std::string& v) const { return v; }
    std::string operator()(const Dims& v) const { return weft::to_string(v); }
  } print;
  return std::visit(print, attr);
}

std::string attributes(const Node& node) {
  std::string text = weft::to_string(node.attrs) + weft::to_string(node.annotations);
  if (node.variable != nullptr) text += ", " + node.variable->name;
  return text;
}

using Numbers = std::unordered_map<const Node*, int>;
Numbers number(const std::vector<Value>& nodes) {
  Numbers numbers;
  for (const Value& value : nodes) numbers.emplace(value.node(), static_cast<int>(numbers.size()));
  return numbers;
}

std::string expression(const Node& node, const Numbers& numbers) {
  std::string text;
  for (const Value& input : node.inputs) text += fmt::format(", %{}", numbers.at(input.node()));
  text += attributes(node);
  return fmt::format("{}({})", node.op->name, text.empty() ? text : text.substr(2));
}
}  // namespace

std::string to_string(const Attrs& attrs) {
  std::string text;
  for (const auto& [key, value] : attrs.entries())
    text += fmt::format(", {}={}", key, to_string(value));
  return text;
}

std::string to_string(const Annotations& annotations) {
  std::string text;
  if (annotations.tf32) text += ", tf32=1";
  if (annotations.compressed) text += ", compressed=1";
  if (annotations.fixed) text += ", fixed=1";
  if (annotations.by_algorithm) text += fmt::format(", by_algorithm={}", *annotations.by_algorithm);
  if (annotations.composite.defined())
    text += fmt::format(", composite={}", annotations.composite->op->name);
  return text;
}

std::string to_text(const Graph& graph) {
  std::vector<Value> nodes = graph.nodes();
  Numbers numbers = number(nodes);
  std::string text;
  for (const Value& value : nodes)
    text += fmt::format("%{} = {} : {}{}{}\n", numbers[value.node()],
                        expression(*value.node(), numbers), weft::to_string(value.type()),
                        value->module().empty() ? "" : "  # ", value->module());
  for (const Value& output : graph.outputs)
    text += fmt::format("output %{}\n", numbers[output.node()]);
  for (const auto& [variable, value] : graph.assignments)
    text += fmt::format("{} := %{}\n", variable->variable->name, numbers[value.node()]);
  return text;
}

std::string to_dot(const Graph& graph) {
  std::vector<Value> nodes = graph.nodes();
  Numbers numbers = number(nodes);
  std::string text = "digraph weft {\n  node [shape=box, fontname=monospace];\n";
  for (const Value& value : nodes) {
    int id = numbers[value.node()];
    text += fmt::format("  n{} [label=\"{}{}\\n{}\"];\n", id, value->op->name,
                        attributes(*value.node()), weft::to_string(value.type()));
    for (const Value& input : value->inputs)
      text += fmt::format("  n{} -> n{};\n", numbers[input.node()], id);
  }
  return text + "}\n";
}

uint64_t content_hash(const Plan& plan) {
  std::string text = to_text(plan);
  for (const Launch& launch : plan.launches) {
    std::vector<Value> nodes = launch.body;
    for (const Access& operand : launch.operands) nodes.push_back(operand.value);
    Numbers numbers = number(nodes);
    for (const Value& value : launch.body)
      text += fmt::format("%{} = {} : {}\n", numbers.at(value.node()),
                          expression(*value.node(), numbers), weft::to_string(value.type()));
  }
  return hash_text(text);
}

uint64_t structural_hash(const Graph& graph) {
  uint64_t hash = hash_text(to_text(graph));
  for (const Value& value : graph.nodes())
    if (value->has_data())
      hash = hash_combine(hash, reinterpret_cast<uintptr_t>(value->storage.get()));
  return hash;
}
}  // namespace weft
