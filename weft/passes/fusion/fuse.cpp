#include "weft/passes/fusion/fuse.h"

#include <algorithm>
#include <queue>

#include "weft/passes/fusion/groups.h"

namespace weft {
namespace {
// Orders the groups by Kahn's algorithm; of the ready groups, the one whose last node was created
// first runs next.
std::vector<int> order_of(const Fusion& fusion) {
  const size_t count = fusion.groups.size();
  std::vector<std::vector<int>> readers(count);
  std::vector<int> waiting(count, 0);
  for (size_t u = 0; u < count; ++u)
    for (const Value& value : fusion.groups[u].nodes)
      for (const Value& input : value->inputs) {
        if (fusion.groups[u].contains(input.node())) continue;
        readers[static_cast<size_t>(fusion.home.at(input.node()))].push_back(static_cast<int>(u));
        ++waiting[u];
      }
  using Ready = std::pair<uint64_t, int>;
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready;
  auto enqueue = [&](int u) {
    ready.emplace(fusion.groups[static_cast<size_t>(u)].nodes.back()->id, u);
  };
  for (size_t u = 0; u < count; ++u)
    if (waiting[u] == 0) enqueue(static_cast<int>(u));
  std::vector<int> order;
  while (!ready.empty()) {
    const int group = ready.top().second;
    ready.pop();
    order.push_back(group);
    for (int reader : readers[static_cast<size_t>(group)])
      if (--waiting[static_cast<size_t>(reader)] == 0) enqueue(reader);
  }
  return order;
}
}  // namespace

bool FusionGroup::contains(const Node* node) const {
  if (nodes.front().node() == node) return true;
  const auto at = std::lower_bound(nodes.begin() + 1, nodes.end(), node->id,
                                   [](const Value& value, uint64_t id) { return value->id < id; });
  return at != nodes.end() && at->node() == node;
}

std::vector<Value> FusionGroup::inputs() const {
  std::vector<Value> inputs;
  if (kind == Kind::library) inputs = nodes.front()->inputs;
  for (const Value& value : nodes)
    for (const Value& input : value->inputs)
      if (!contains(input.node()) &&
          std::ranges::find(inputs, input.node(), &Value::node) == inputs.end())
        inputs.push_back(input);
  return inputs;
}

Fusion fuse(const Uses& uses, const PassOptions& options) {
  Fusion fusion;
  for (const bool exact : {false, true}) {
    FusionGroups groups(uses, options, exact);
    fuse_into_users(groups, uses, options);
    if (options.fuses()) {
      fuse_reductions(groups, uses, options);
      fuse_into_libraries(groups, uses, options);
    }
    fusion = groups.finish();
    fusion.order = order_of(fusion);
    if (fusion.order.size() == fusion.groups.size()) break;
  }
  return fusion;
}
}  // namespace weft
