#include "weft/ir/graph.h"

#include <algorithm>
#include <atomic>
#include <bitset>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "weft/base/memory/storage.h"
#include "weft/ir/op_def.h"

namespace weft {

std::string_view name(Category category) {
  constexpr std::string_view names[] = {"parameters", "optimizer state", "buffers",
                                        "inputs",     "constants",       "activations",
                                        "gradients",  "workspace",       "outputs"};
  return names[static_cast<int>(category)];
}

namespace {
std::atomic<uint64_t> next_variable{1};
}  // namespace

VariableState::VariableState(std::string its_name, Type its_type, Category its_category,
                             std::shared_ptr<Storage> its_storage)
    : id(next_variable++),
      name(std::move(its_name)),
      type(its_type),
      category(its_category),
      storage(std::move(its_storage)) {
  const size_t bytes = type.bytes();  // throws for extents whose bytes overflow
  if (storage == nullptr) storage = std::make_shared<Storage>(bytes);
}

namespace {
std::mutex copying;  // guards all `copies`: several sessions may plan steps that read one variable

std::vector<std::shared_ptr<VariableState>> living_copies(const VariableState& variable) {
  std::vector<std::shared_ptr<VariableState>> living;
  for (const std::weak_ptr<VariableState>& known : variable.copies)
    if (std::shared_ptr<VariableState> copy = known.lock()) living.push_back(std::move(copy));
  return living;
}
}  // namespace

std::vector<std::shared_ptr<VariableState>> copies_of(const VariableState& variable) {
  const std::lock_guard lock(copying);
  return living_copies(variable);
}

std::shared_ptr<VariableState> copy_in(const std::shared_ptr<VariableState>& variable, DType type,
                                       size_t room) {
  const std::lock_guard lock(copying);
  for (std::shared_ptr<VariableState>& copy : living_copies(*variable))
    if (copy->type.dtype == type) return std::move(copy);
  auto copy = std::make_shared<VariableState>(variable->name, Type{type, variable->type.shape},
                                              variable->category, std::make_shared<Storage>(room));
  copy->copy_of = variable;
  std::erase_if(variable->copies, [](const auto& known) { return known.expired(); });
  variable->copies.push_back(copy);
  return copy;
}

std::vector<Value> Graph::roots() const {
  std::vector<Value> all = outputs;
  for (const Assignment& assignment : assignments) all.push_back(assignment.value);
  return all;
}

namespace {
// Ids is a set of ids with a bit for each, in pages: a graph's ids fill few pages almost whole.
class Ids {
 public:
  bool insert(uint64_t id) {
    if (id / bits != last_) page_ = &pages_[last_ = id / bits];
    const auto bit = static_cast<size_t>(id % bits);
    return !page_->test(bit) && page_->set(bit).test(bit);
  }

 private:
  static constexpr size_t bits = 4096;
  std::unordered_map<uint64_t, std::bitset<bits>> pages_;
  uint64_t last_ = UINT64_MAX;
  std::bitset<bits>* page_ = nullptr;  // pages_[last_]; the map never moves its elements
};
}  // namespace

std::vector<Value> Graph::nodes() const {
  std::vector<std::pair<uint64_t, const Value*>> reached;  // by id: where the value was first seen
  Ids seen;
  auto reach = [&](const Value& value) {
    if (seen.insert(value->id)) reached.emplace_back(value->id, &value);
  };
  for (const Value& output : outputs) reach(output);
  for (const auto& [variable, value] : assignments) reach(variable), reach(value);
  for (const Value& input : inputs) reach(input);
  for (size_t i = 0; i < reached.size(); ++i)
    for (const Value& input : (*reached[i].second)->inputs) reach(input);
  std::ranges::sort(reached);
  std::vector<Value> found;
  found.reserve(reached.size());
  for (const auto& [id, value] : reached) found.push_back(*value);
  return found;
}

Uses::Uses(const Graph& graph) : nodes_(graph.nodes()) {
  ranges_.reserve(nodes_.size());
  for (const Value& value : nodes_) {
    ranges_[value.node()];
    for (const Value& input : value->inputs) ++ranges_.at(input.node()).count;
  }
  for (const Value& root : graph.roots()) ++ranges_.at(root.node()).roots;
  size_t all = 0;
  for (const Value& value : nodes_) {
    Range& range = ranges_.at(value.node());
    range.first = all;
    all += std::exchange(range.count, 0);
  }
  users_.resize(all);
  for (const Value& value : nodes_)
    for (const Value& input : value->inputs) {
      Range& range = ranges_.at(input.node());
      users_[range.first + range.count++] = value.node();
    }
}
std::span<const Node* const> Uses::of(const Node* node) const {
  const Range* range = ranges_.find(node);
  if (range == nullptr) return {};
  return std::span(users_).subspan(range->first, range->count);
}
bool Uses::is_root(const Node* node) const {
  const Range* range = ranges_.find(node);
  return range != nullptr && range->roots > 0;
}
int Uses::count(const Node* node) const {
  const Range* range = ranges_.find(node);
  return range == nullptr ? 0 : static_cast<int>(range->count) + range->roots;
}

namespace {
using Rule = std::function<Value(const Value&)>;

class Rewriter {
 public:
  Rewriter(const Rule& rule, bool fully) : rule_(rule), fully_(fully) {}

  Graph run(const Graph& graph) {
    std::vector<Value> nodes = graph.nodes();
    replaced_.reserve(2 * nodes.size());
    for (const Value& value : nodes) now(value);
    Graph result;
    for (const Value& input : graph.inputs) result.inputs.push_back(now(input));
    for (const Value& output : graph.outputs) result.outputs.push_back(now(output));
    for (const auto& [variable, value] : graph.assignments)
      result.assignments.push_back({now(variable), now(value)});
    return result;
  }

 private:
  // Recursion reaches only nodes that a rule has just made: all earlier nodes are replaced already.
  Value now(const Value& value) {
    if (const Value* known = replaced_.find(value.node())) return *known;
    Value current = with_inputs(value, [&](const Value& input) { return now(input); });
    carry_composite(*value.node(), current, [&](const Value& operand) {
      const Value* known = replaced_.find(operand.node());
      return known == nullptr ? Value() : *known;
    });
    OriginOverride origin(current->origin);
    if (Value replacement = rule_(current); replacement.defined()) {
      WEFT_ASSERT(replacement.type() == value.type(), "a rewrite of {} changes its type: {} to {}",
                  value->op->name, to_string(value.type()), to_string(replacement.type()));
      if (fully_) replacement = now(replacement);
      carry_composite(*current.node(), replacement, [](const Value& operand) { return operand; });
      current = replacement;
    }
    replaced_.insert(value.node(), current);
    if (fully_) replaced_.insert(current.node(), current);
    return current;
  }

  const Rule& rule_;
  bool fully_;
  NodeMap<Value> replaced_;
};
}  // namespace

Graph rewrite(const Graph& graph, const Rule& rule) { return Rewriter(rule, false).run(graph); }
Graph rewrite_fully(const Graph& graph, const Rule& rule) {
  return Rewriter(rule, true).run(graph);
}

void verify(const Graph& graph) {
  std::unordered_set<const Node*> assigned;
  for (const auto& [variable, value] : graph.assignments) {
    WEFT_ASSERT(variable->variable != nullptr, "assignment to {}", variable->op->name);
    WEFT_ASSERT(variable.type() == value.type(), "assignment changes the type of {}",
                variable->variable->name);
    WEFT_ASSERT(assigned.insert(variable.node()).second, "{} is assigned twice",
                variable->variable->name);
  }
  for (const Value& value : graph.nodes()) {
    const Node& node = *value.node();
    WEFT_ASSERT(node.op != nullptr, "node {} has no op", node.id);
    for (const Value& input : node.inputs)
      WEFT_ASSERT(input->id < node.id, "node {} ({}) precedes its input", node.id, node.op->name);
    if (node.op->kind == OpKind::leaf) continue;
    if (const Value& composite = node.annotations.composite; composite.defined())
      for (const Value& operand : composite->inputs)
        WEFT_ASSERT(operand->id < node.id, "node {} precedes an operand of the {} that it is",
                    node.id, composite->op->name);
    WEFT_ASSERT(rebuild(node, node.inputs).type() == node.type, "type of node {} ({}) is not {}",
                node.id, node.op->name, to_string(node.type));
    if (node.op->kind == OpKind::elementwise)
      for (const Value& input : node.inputs)
        WEFT_ASSERT(input.shape() == node.type.shape, "operands of {} differ in shape",
                    node.op->name);
  }
}
}  // namespace weft
