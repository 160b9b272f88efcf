#include "weft/onnx/net/narrow.h"

#include <algorithm>
#include <optional>
#include <set>

namespace weft::onnx {
namespace {
std::vector<int64_t> integers_of(const Tensor& tensor) {
  std::vector<int64_t> integers;
  for (const double each : tensor.to_doubles()) integers.push_back(static_cast<int64_t>(each));
  return integers;
}

// Returns the elements of an initializer or of a Constant node; nullopt for other values.
std::optional<std::vector<int64_t>> constant_of(const Graph& graph, const std::string& name) {
  for (const Initializer& each : graph.initializers)
    if (each.name == name) return integers_of(each.value);
  for (const Node& node : graph.nodes) {
    if (node.op != "Constant" || node.outputs.empty() || node.outputs[0] != name) continue;
    for (const auto& [key, value] : node.attributes) {
      if (const auto* tensor = std::get_if<Tensor>(&value)) return integers_of(*tensor);
      if (const auto* list = std::get_if<std::vector<int64_t>>(&value)) return *list;
    }
  }
  return std::nullopt;
}

// Returns a name that no value of the graph has.
std::string new_name(const Graph& graph, std::string name) {
  std::set<std::string> taken;
  for (const Initializer& each : graph.initializers) taken.insert(each.name);
  for (const ValueInfo& each : graph.inputs) taken.insert(each.name);
  for (const Node& node : graph.nodes) taken.insert(node.outputs.begin(), node.outputs.end());
  while (taken.contains(name)) name += '_';
  return name;
}

// Returns whether a value is read exactly once: by one operand of a node, or as an output.
bool is_read_once(const Graph& graph, const std::string& name) {
  int64_t count = std::ranges::count(graph.outputs, name, &ValueInfo::name);
  for (const Node& node : graph.nodes) {
    count += std::ranges::count(node.inputs, name);
    for (const auto& [key, value] : node.attributes)  // a nested graph may read it, too
      if (std::holds_alternative<std::shared_ptr<const Graph>>(value)) return false;
  }
  return count == 1;
}

int64_t groups_of(const Node& node) {
  const auto found = node.attributes.find("group");
  if (found == node.attributes.end()) return 1;
  const auto* groups = std::get_if<int64_t>(&found->second);
  return groups == nullptr ? 1 : *groups;
}
}  // namespace

std::vector<std::string> results_of(const Model& file) {
  std::vector<std::string> names;
  for (const Node& node : file.graph.nodes)
    for (const std::string& name : node.outputs)
      if (!name.empty()) names.push_back(name);
  return names;
}

std::map<std::string, Edit, std::less<>> edits_of(const Model& file, const Narrowing& narrowing) {
  std::map<std::string, Edit, std::less<>> edits;
  for (const Node& node : file.graph.nodes) {
    if (!node.domain.empty() || node.outputs.empty()) continue;
    const auto value = narrowing.values.find(node.outputs[0]);
    if (value == narrowing.values.end()) continue;
    const auto& [before, after] = value->second;
    // Of convolutions with several groups only depthwise ones lose channels, and a group with each.
    if (node.op == "Conv" && groups_of(node) > 1 && before[1] != after[1])
      edits[value->first].groups = groups_of(node) * after[1] / before[1];
    if ((node.op != "Reshape" && node.op != "Expand") || node.inputs.size() < 2) continue;
    const std::optional<std::vector<int64_t>> shape = constant_of(file.graph, node.inputs[1]);
    if (!shape || std::ssize(*shape) != before.size()) continue;
    std::vector<int64_t> narrow = *shape;
    for (int axis = 0; axis < before.size(); ++axis)
      if (int64_t& extent = narrow[static_cast<size_t>(axis)]; extent == before[axis])
        extent = after[axis];
    if (narrow == *shape) continue;
    Edit& edit = edits[value->first];
    edit.shape = std::move(narrow);
    edit.shape_name = new_name(file.graph, value->first + "_shape");
    if (is_read_once(file.graph, node.inputs[1])) edit.unread = node.inputs[1];
  }
  return edits;
}

Model narrowed(Model file, const Narrowing& narrowing) {
  const auto edits = edits_of(file, narrowing);
  Graph& graph = file.graph;
  for (Initializer& each : graph.initializers)
    if (const auto narrow = narrowing.initializers.find(each.name);
        narrow != narrowing.initializers.end())
      each.value = narrow->second;
  for (Node& node : graph.nodes) {
    const auto edit = node.outputs.empty() ? edits.end() : edits.find(node.outputs[0]);
    if (edit == edits.end()) continue;
    if (edit->second.groups > 0) node.attributes.insert_or_assign("group", edit->second.groups);
    if (edit->second.shape.empty()) continue;
    node.inputs[1] = edit->second.shape_name;
    std::erase_if(graph.initializers, [&](const Initializer& each) {
      return !edit->second.unread.empty() && each.name == edit->second.unread;
    });
    graph.initializers.push_back(
        {.name = edit->second.shape_name,
         .value = tensor(edit->second.shape, {std::ssize(edit->second.shape)})});
  }
  graph.defaults.clear();  // their declared shapes are out of date
  std::erase_if(graph.values, [&](const auto& each) {
    return narrowing.values.contains(each.first) || narrowing.initializers.contains(each.first);
  });
  return file;
}

}  // namespace weft::onnx
