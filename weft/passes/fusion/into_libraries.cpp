#include <algorithm>
#include <initializer_list>
#include <unordered_set>

#include "weft/ir/op_def.h"
#include "weft/passes/fusion/groups.h"
#include "weft/passes/memory/launches.h"

namespace weft {
namespace {
// Returns `value` and the fusable nodes `inside` that it is computed from, up to a library's node.
template <class Inside>
std::vector<Value> behind(const FusionGroups& groups, const Value& value, Inside inside) {
  std::vector<Value> found{value};
  for (size_t i = 0; i < found.size(); ++i) {
    const Node* node = found[i].node();
    if (!groups.fusable(node)) continue;
    for (const Value& input : node->inputs)
      if (inside(input.node()) &&
          std::ranges::find(found, input.node(), &Value::node) == found.end())
        found.push_back(input);
  }
  return found;
}

class Joiner {
 public:
  Joiner(FusionGroups& groups, const Uses& uses, const PassOptions& options)
      : groups_(groups), uses_(uses), options_(options) {}

  // Fuses a kernel that computes one value elementwise from a library kernel's result into that
  // library kernel as an epilogue, where the library has a kernel for both; sums of the kernel may
  // stay behind. A kernel that sums what a library kernel reads is fused in the same way.
  void join(int other) {
    if (is_library(other)) {
      join_alike(other);
      return join_chain(other);
    }
    if (groups_[other].kind != FusionGroup::Kind::fused) return;
    const std::vector<Value> part = elementwise_part(other);
    for (const Value& member : part)
      for (const Value& input : member->inputs)
        if (const int maker = groups_.home(input.node());
            maker >= 0 && is_library(maker) && try_join(maker, other, part))
          return join(other);
    if (!reduces(groups_[other])) return;
    const std::vector<Value> all = groups_[other].nodes;
    for (const Value& member : all)
      for (const Value& input : member->inputs)
        for (const int reader : libraries_that_read(groups_.before_views(input.node())))
          if (try_join(reader, other, all)) return;
  }

 private:
  bool is_library(int group) const { return groups_[group].kind == FusionGroup::Kind::library; }

  // Fuses a library kernel into another one that has the same operands and computes both values.
  void join_alike(int other) {
    const std::vector<Value> own = groups_[other].nodes;
    if (own.size() != 1 || own.front()->op->kind != OpKind::composite) return;
    for (const int reader :
         libraries_that_read(groups_.before_views(own.front()->inputs[0].node())))
      if (reader != other && try_join(reader, other, own)) return;
  }

  // Fuses a library kernel into the one that makes its first operand, with the elementwise kernel
  // between them if there is one, where nothing else reads what lies between them and the library
  // has a kernel for all.
  void join_chain(int other) {
    const Node* operand = groups_[other].nodes.front()->inputs.empty()
                              ? nullptr
                              : groups_[other].nodes.front()->inputs[0].node();
    if (operand == nullptr || groups_.home(operand) < 0) return;
    const int maker = groups_.home(operand);
    if (is_library(maker)) return try_chain({maker, other});
    if (groups_[maker].kind != FusionGroup::Kind::fused || reduces(groups_[maker])) return;
    for (const Value& member : groups_[maker].nodes)
      for (const Value& input : member->inputs)
        if (const int first = groups_.home(input.node()); first >= 0 && is_library(first))
          return try_chain({first, maker, other});
  }

  // Returns the one value that a group stores without reducing, and the nodes that it is computed
  // from there. Returns nothing if there are more such values, or if this part and the rest share a
  // value that is not stored.
  std::vector<Value> elementwise_part(int group) const {
    std::vector<Value> part;
    for (const Value& member : groups_[group].nodes) {
      if (member->op->kind == OpKind::reduce || groups_.home(member.node()) != group) continue;
      if (!part.empty()) return {};
      part = behind(groups_, member, [&](const Node* node) { return groups_.holds(group, node); });
    }
    std::unordered_set<const Node*> inside;
    for (const Value& value : part) {
      if (value->op->kind == OpKind::reduce) return {};
      inside.insert(value.node());
    }
    for (const Value& member : groups_[group].nodes)
      for (const Value& input : member->inputs)
        if (groups_.holds(group, input.node()) &&
            inside.contains(member.node()) != inside.contains(input.node()) &&
            input.node() != part.front().node() && !is_constant(*input.node()))
          return {};
    return part;
  }
  // Returns library kernels that read the node or a view of it. Readers of a constant do not count:
  // every layer reads the same one, and fusing two of them would save no traffic.
  std::vector<int> libraries_that_read(const Node* node) const {
    std::vector<int> readers;
    if (is_constant(*node)) return readers;
    for (const Node* user : uses_.of(node))
      for (int group : groups_.holders(user)) {
        if (is_library(group)) readers.push_back(group);
        if (groups_[group].kind != FusionGroup::Kind::view) continue;
        const std::vector<int> more = libraries_that_read(user);
        readers.insert(readers.end(), more.begin(), more.end());
      }
    return readers;
  }

  // Moves `part` of another group into a library's group, where the library has a kernel for both.
  // The operands of the library's own node must come from memory.
  bool try_join(int library, int other, const std::vector<Value>& part) {
    FusionGroup both = groups_[library];
    for (const Value& value : part)
      if (!groups_.holds(library, value.node())) both.nodes.push_back(value);
    sort_nodes(both);
    const auto made_within = [&](const Value& input) { return both.contains(input.node()); };
    if (std::ranges::any_of(both.nodes.front()->inputs, made_within)) return false;
    std::vector<Value> stored, dropped;
    for (const Value& value : both.nodes) {
      const int home = groups_.home(value.node());
      if (home == other ||
          (home == library && is_read_outside(value.node(), both, {library, other})))
        stored.push_back(value);
      else if (home == library)
        dropped.push_back(value);
    }
    if (options_.apart && stored.size() > 1 && reads_own(both.nodes)) return false;
    if (!options_.library->kernels().choose_with(both.nodes, stored, dense(both.inputs())) ||
        groups_.merging_makes_cycle(library, other))
      return false;
    groups_.move(part, other, library);
    for (const Value& value : dropped) groups_.unstore(value.node());
    return true;
  }
  // Moves the groups that follow a library's kernel, the first one, into it, if only the last one's
  // values are read outside of them.
  void try_chain(std::initializer_list<int> chain) {
    const int library = *chain.begin(), last = *(chain.end() - 1);
    FusionGroup all = groups_[library];
    for (const int group : chain)
      for (const Value& value : groups_[group].nodes)
        if (!groups_.holds(library, value.node())) all.nodes.push_back(value);
    sort_nodes(all);
    std::vector<Value> stored, dropped;
    for (const Value& value : all.nodes) {
      const int home = groups_.home(value.node());
      if (home == last) stored.push_back(value);
      if (home < 0 || home == last) continue;
      dropped.push_back(value);
      if (is_read_outside(value.node(), all, chain)) return;
    }
    if (!options_.library->kernels().choose_with(all.nodes, stored, dense(all.inputs()))) return;
    for (const int group : chain)
      if (group != library) groups_.move(std::vector(groups_[group].nodes), group, library);
    for (const Value& value : dropped) groups_.unstore(value.node());
  }
  // Returns whether anyone reads the value except `merged`, which has all or some nodes of `parts`.
  bool is_read_outside(const Node* node, const FusionGroup& merged,
                       std::initializer_list<int> parts) const {
    const auto is_part = [&](int group) { return std::ranges::find(parts, group) != parts.end(); };
    return uses_.is_root(node) || std::ranges::any_of(uses_.of(node), [&](const Node* user) {
             return !merged.contains(user) || !std::ranges::all_of(groups_.holders(user), is_part);
           });
  }

  FusionGroups& groups_;
  const Uses& uses_;
  const PassOptions& options_;
};
}  // namespace

void fuse_into_libraries(FusionGroups& groups, const Uses& uses, const PassOptions& options) {
  Joiner joiner(groups, uses, options);
  for (int u = groups.count(); u-- > 0;) joiner.join(u);
}

bool library_makes(const FusionGroups& groups, const Node* own, const Value& value,
                   const Uses& uses, const PassOptions& options) {
  FusionGroup group{.kind = FusionGroup::Kind::library, .space = {}, .reduced = {}, .nodes = {}};
  group.nodes =
      behind(groups, value, [&](const Node* node) { return node == own || groups.fusable(node); });
  std::iter_swap(group.nodes.begin(), std::ranges::find(group.nodes, own, &Value::node));
  if (group.nodes.size() > largest_kernel) return false;
  sort_nodes(group);
  const auto is_read = [&](const Value& member) {
    const auto outside = [&](const Node* user) { return !group.contains(user); };
    return member.node() != value.node() && !is_constant(*member.node()) &&
           (uses.is_root(member.node()) || std::ranges::any_of(uses.of(member.node()), outside));
  };
  if (options.apart && std::ranges::any_of(group.nodes, is_read)) return false;
  return options.library->kernels()
      .choose_with(group.nodes, {&value, 1}, dense(group.inputs()))
      .has_value();
}
}  // namespace weft
