#include "weft/passes/fuse.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <queue>
#include <unordered_set>

#include "weft/ir/op_def.h"

namespace weft {
namespace {
constexpr size_t most_selected = 4;           // parts that a kernel picks from, element by element
constexpr int64_t cached_elements = 1 << 17;  // of f32, that the L2 cache holds

size_t index(int unit) { return static_cast<size_t>(unit); }

bool is_row(const Shape& space, const Dims& reduced, int threads) {
  int first = space.size() - reduced.size();
  int64_t rows = 1, row = 1;
  for (int i = 0; i < space.size(); ++i) {
    if (reduced.contains(i) != (i >= first)) return false;
    (i >= first ? row : rows) *= space[i];
  }
  return row <= cached_elements && rows >= 2 * threads;
}

Shape reduced_shape(Shape space, const Dims& axes) {
  for (int64_t axis : axes) space[static_cast<int>(axis)] = 1;
  return space;
}

// Operands of these are read from memory, at places of the op's own choosing.
bool reads_memory(const Node& node) {
  return node.is("pad") || node.is("concat") || node.op->kind == OpKind::gather;
}

class Fuser {
 public:
  // `exact` follows every path when it looks for a way back into a kernel.
  Fuser(const Graph& graph, const Uses& uses, const PassOptions& options, bool exact)
      : uses_(uses),
        options_(options),
        nodes_(graph.nodes()),
        whole_(!options.skips("fuse")),
        exact_(exact) {}

  Fusion run() {
    for (const Value& value : nodes_) classify(value);
    if (whole_)
      for (const Value& value : nodes_) note_base(value);
    for (size_t i = nodes_.size(); i-- > 0;) place(nodes_[i]);
    if (whole_) {
      const bool merged = merge_reductions();
      if (merge_across() || merged) forget_unread();
      for (size_t u = fusion_.units.size(); u-- > 0;) join_library(static_cast<int>(u));
    }
    finish();
    return std::move(fusion_);
  }

 private:
  using Units = std::vector<int>;

  Unit::Kind kind_of(const Node& node) const {
    const KernelLibrary& library = *options_.library;
    bool constant = node.is("scalar") || node.is("iota");
    if (node.op->kind == OpKind::leaf && !constant) return Unit::Kind::leaf;
    bool moves = node.op->kind == OpKind::movement && !reads_memory(node);
    if (moves) return Unit::Kind::view;
    if (library.choose(node, dense(node.inputs))) return Unit::Kind::library;
    if (node.is("concat") && is_placed(node)) return Unit::Kind::placed;
    WEFT_ASSERT(library.generates(), "{} has no kernel for {}", library.name(), node.op->name);
    return Unit::Kind::fused;
  }
  static std::vector<Placement> dense(const std::vector<Value>& inputs) {
    std::vector<Placement> placements;
    placements.reserve(inputs.size());
    for (const Value& input : inputs)
      placements.push_back({-1, 0, row_major_strides(input.shape())});
    return placements;
  }
  // Whether each part can be computed where it belongs, or they are too many to pick from.
  bool is_placed(const Node& concat) const {
    return concat.inputs.size() > most_selected ||
           std::ranges::all_of(concat.inputs, [&](const Value& part) {
             const Node* node = part.node();
             while (node->is("reshape")) node = node->inputs[0].node();
             const Unit::Kind kind = kinds_.at(node);
             const bool computed = kind == Unit::Kind::fused || kind == Unit::Kind::library;
             return computed && !is_constant(*node) && uses_.count(node) == 1;
           });
  }
  void classify(const Value& value) { kinds_[value.node()] = kind_of(*value.node()); }
  bool fusable(const Node* node) const { return kinds_.at(node) == Unit::Kind::fused; }
  static bool is_constant(const Node& node) { return node.is("scalar") || node.is("iota"); }

  // The one full-size stored value that an elementwise expression derives from; null: none; itself:
  // a value that is not such an expression, or one of several.
  void note_base(const Value& value) {
    const Node* node = value.node();
    const Node* base = nullptr;
    bool expression = node->op->kind == OpKind::elementwise || node->op->kind == OpKind::random ||
                      is_constant(*node) || gathers_few(*node);
    bool several = !fusable(node) || !expression;
    for (const Value& input : node->inputs) {
      const Node* of = input.elements() < value.elements() ? nullptr : bases_.at(input.node());
      if (kinds_.at(input.node()) == Unit::Kind::view && broadcasts_small(*input.node()))
        of = nullptr;
      if (of == nullptr) continue;
      several |= base != nullptr && base != of;
      base = of;
    }
    bases_[node] = several ? node : base;
  }
  // A broadcast of fewer elements: what it reads stays in cache.
  static bool broadcasts_small(const Node& node) {
    return node.is("broadcast") && node.inputs[0].elements() < node.type.elements();
  }
  // A gather from fewer elements of what no cache would hold: the gradient of a large table.
  static bool gathers_few(const Node& node) {
    return node.op->kind == OpKind::gather && node.type.elements() > cached_elements &&
           node.inputs[0].elements() < node.type.elements();
  }
  // Cheaper to compute again than to store: an elementwise expression of at most one full-size
  // value.
  bool recomputes(const Node* node) const {
    if (!whole_) return false;
    if (node->op->kind == OpKind::random) return true;
    return (node->op->kind == OpKind::elementwise || gathers_few(*node)) && bases_.at(node) != node;
  }

  int new_unit(const Value& value) {
    const Node* node = value.node();
    Unit unit;
    unit.kind = kinds_.at(node);
    bool reduces = node->op->kind == OpKind::reduce;
    unit.space = reduces ? node->inputs[0].shape() : node->type.shape;
    if (reduces) unit.reduced = node->attrs.dims("axes");
    unit.nodes.push_back(value);
    fusion_.units.push_back(std::move(unit));
    first_id_.push_back(node->id);
    last_id_.push_back(node->id);
    first_stored_.push_back(std::numeric_limits<uint64_t>::max());
    int made = static_cast<int>(fusion_.units.size()) - 1;
    units_of_[node].push_back(made);
    return made;
  }
  void store(const Value& value, int unit) {
    fusion_.home[value.node()] = unit;
    uint64_t& first = first_stored_[index(unit)];
    first = std::min(first, value->id);
  }

  // The fused units that could take `value` in, and whether anyone needs it in memory.
  struct Demand {
    Units takers;
    bool memory = false;
  };
  Demand demand(const Value& value) const {
    Demand result;
    result.memory = uses_.roots.contains(value.node());
    auto users = uses_.users.find(value.node());
    if (users == uses_.users.end()) return result;
    for (const Node* user : users->second) {
      bool inlines = !reads_memory(*user) && user->op->kind != OpKind::random;
      for (int unit : units_of(user)) {
        if (!inlines || at(unit).kind != Unit::Kind::fused)
          result.memory = true;
        else if (!contains(result.takers, unit))
          result.takers.push_back(unit);
      }
    }
    return result;
  }
  const Unit& at(int unit) const { return fusion_.units[static_cast<size_t>(unit)]; }
  static bool contains(const Units& units, int unit) {
    return std::find(units.begin(), units.end(), unit) != units.end();
  }
  // None for a node that is not placed yet.
  const Units& units_of(const Node* node) const {
    static const Units none;
    auto found = units_of_.find(node);
    return found == units_of_.end() ? none : found->second;
  }
  bool holds(int unit, const Node* node) const { return contains(units_of(node), unit); }

  // Whether `value` has a place in the unit's iteration space; `upgrade` are the axes that joining
  // adds.
  bool shape_fits(const Value& value, const Unit& unit, std::optional<Dims>& upgrade) const {
    const Node& node = *value.node();
    if (node.type.shape.size() != unit.space.size()) return false;
    if (node.op->kind == OpKind::reduce) {
      const Dims& axes = node.attrs.dims("axes");
      const Shape& from = node.inputs[0].shape();
      if (from == unit.space && unit.reduced == axes) return true;
      // A kernel over the reduced shape only becomes the epilogue of this reduction.
      bool epilogue = unit.reduced.empty() && unit.space == node.type.shape;
      for (const Value& member : unit.nodes)
        epilogue &= member->op->kind == OpKind::elementwise || is_constant(*member.node());
      if (epilogue) upgrade = axes;
      return epilogue;
    }
    if (value.shape() == unit.space) return true;
    return !unit.reduced.empty() && value.shape() == reduced_shape(unit.space, unit.reduced);
  }

  bool can_join(const Value& value, int index, const Demand& need,
                std::optional<Dims>& upgrade) const {
    const Unit& unit = fusion_.units[static_cast<size_t>(index)];
    if (unit.nodes.size() >= largest_kernel) return false;
    if (!shape_fits(value, unit, upgrade)) return false;
    bool again = recomputes(value.node()) && !need.memory;
    return again || !leads_back(value.node(), index);
  }

  // Whether a user of `node` outside of unit `target` leads back into it: then it must not join.
  bool leads_back(const Node* node, int target) const {
    auto users = uses_.users.find(node);
    if (users == uses_.users.end()) return false;
    Units pending;
    for (const Node* user : users->second)
      for (int unit : units_of(user))
        if (unit != target) pending.push_back(unit);
    return leads_to(pending, target);
  }
  // Whether any of these units leads to `target`, through values that are stored and read. The
  // latest unit goes first: values that the backward pass reads are short cuts. Units that store
  // nothing before the target's last node can lead back only through one that straddles it: rare,
  // so the search stops there and fuse() checks the outcome.
  // With `other`, the target is what the two would be as one.
  bool leads_to(const Units& from, int target, int other = -1) const {
    if (options_.fault == "fuse-ignores-cycles") return false;
    uint64_t last = last_id_[index(target)];
    if (other >= 0) last = std::max(last, last_id_[index(other)]);
    std::unordered_set<int> seen;
    std::priority_queue<std::pair<uint64_t, int>> pending;
    auto reach = [&](const Units& units) {
      for (int unit : units)
        if (seen.insert(unit).second) pending.emplace(first_stored_[index(unit)], unit);
    };
    for (reach(from); !pending.empty();) {
      auto [first_stored, unit] = pending.top();
      pending.pop();
      if (unit == target || unit == other) return true;
      if (exact_ || first_stored <= last)
        reach(other < 0 ? readers_of(unit) : readers_of(unit, target, other));
    }
    return false;
  }
  // The units that read what this one stores; where `a` and `b` would be one, of those two only
  // what neither holds.
  Units readers_of(int unit, int a = -1, int b = -1) const {
    Units readers;
    for (const Value& member : at(unit).nodes) {
      auto home = fusion_.home.find(member.node());
      auto users = uses_.users.find(member.node());
      if (home == fusion_.home.end() || home->second != unit || users == uses_.users.end())
        continue;
      const bool inside = a >= 0 && lives_within(*member.node(), a, b);
      for (const Node* user : users->second)
        for (int next : units_of(user)) {
          const bool joined = a >= 0 && (next == a || next == b);
          if (joined ? !inside : next != unit && !holds(next, member.node()))
            readers.push_back(next);
        }
    }
    return readers;
  }

  // Whether a kernel made of both would hold it: theirs, or a broadcast over the rows of what is.
  bool lives_within(const Node& node, int a, int b) const {
    if (holds(a, &node) || holds(b, &node)) return true;
    if (!node.is("broadcast") || node.type.shape != at(a).space) return false;
    const Value& small = node.inputs[0];
    const auto spans_rows = [&](int unit) {
      return small.shape() == reduced_shape(at(unit).space, at(unit).reduced) &&
             is_row(at(unit).space, at(unit).reduced, options_.threads);
    };
    return (spans_rows(a) || spans_rows(b)) && (holds(a, small.node()) || holds(b, small.node()));
  }

  void join(const Value& value, int index, const std::optional<Dims>& upgrade) {
    Unit& unit = fusion_.units[static_cast<size_t>(index)];
    if (upgrade) {
      unit.space = value->inputs[0].shape();
      unit.reduced = *upgrade;
    }
    unit.nodes.push_back(value);
    units_of_[value.node()].push_back(index);
    uint64_t& first = first_id_[static_cast<size_t>(index)];
    uint64_t& last = last_id_[static_cast<size_t>(index)];
    first = std::min(first, value->id);
    last = std::max(last, value->id);
  }

  // A broadcast of a reduced value lives inside the kernels that reduce and read it again; true if
  // in all.
  bool place_broadcast(const Value& value) {
    const Node& node = *value.node();
    const Value& small = whole_ && node.is("broadcast") ? node.inputs[0] : value;
    if (!fusable(small.node()) || is_constant(*small.node())) return false;
    Dims axes;
    for (int i = 0; i < node.type.shape.size(); ++i)
      if (node.type.shape[i] != small.shape()[i]) axes.push_back(i);
    if (!is_row(node.type.shape, axes, options_.threads)) return false;
    if (!derives_from_reduction(small, axes, node.type.shape)) return false;
    Demand need = demand(value);
    size_t joined = 0;
    for (int taker : need.takers) {
      Unit& unit = fusion_.units[static_cast<size_t>(taker)];
      bool fits = unit.space == node.type.shape && (unit.reduced.empty() || unit.reduced == axes);
      // The reduction itself must be able to join: its other users must not lead back here.
      if (!fits || leads_back(small.node(), taker) || leads_back(value.node(), taker)) continue;
      unit.reduced = axes;
      join(value, taker, {});
      ++joined;
    }
    return joined > 0 && joined == need.takers.size() && !need.memory;
  }
  // Whether a value of reduced shape comes out of a reduction over `axes` of values of `space`.
  bool derives_from_reduction(const Value& value, const Dims& axes, const Shape& space,
                              int depth = 0) const {
    const Node& node = *value.node();
    if (!fusable(value.node()) || depth > 8) return false;
    if (node.op->kind == OpKind::reduce)
      return node.attrs.dims("axes") == axes && node.inputs[0].shape() == space;
    if (node.op->kind != OpKind::elementwise) return false;
    for (const Value& input : node.inputs)
      if (derives_from_reduction(input, axes, space, depth + 1)) return true;
    return false;
  }

  void place(const Value& value) {
    const Node* node = value.node();
    if (!fusable(node)) {
      if (place_broadcast(value)) return;
      store(value, new_unit(value));
      return;
    }
    Demand need = demand(value);
    if (is_constant(*node)) return place_constant(value, need);
    if (!whole_ || is_kept(*node) || library_makes(value, need)) {
      store(value, new_unit(value));
      return;
    }
    bool again = recomputes(node) && !need.memory;
    size_t joined = 0;
    for (int taker : by_first_use(need.takers)) {
      std::optional<Dims> upgrade;
      if (!can_join(value, taker, need, upgrade)) continue;
      join(value, taker, upgrade);
      ++joined;
      if (!again) break;  // stored by the first, read by the others
    }
    if (joined > 0 && joined == need.takers.size() && !need.memory) return;
    store(value, again || joined == 0 ? new_unit(value) : units_of_[node].front());
  }
  // Whether a library's kernel makes it beside its own node's, which nobody else reads: then not
  // each of several readers does.
  bool library_makes(const Value& value, const Demand& need) const {
    const Node* own = bases_.at(value.node());
    if (own == nullptr || own == value.node() || kinds_.at(own) != Unit::Kind::library ||
        uses_.count(own) != 1 || need.takers.size() + (need.memory ? 1 : 0) < 2)
      return false;
    Unit unit{.kind = Unit::Kind::library, .space = {}, .reduced = {}, .nodes = {}};
    unit.nodes = behind(value, [&](const Node* node) { return node == own || fusable(node); });
    std::iter_swap(unit.nodes.begin(), std::ranges::find(unit.nodes, own, &Value::node));
    if (unit.nodes.size() > largest_kernel) return false;
    sort_nodes(unit);
    return options_.library->choose_with(unit.nodes, {&value, 1}, dense(unit.inputs())).has_value();
  }
  // What is kept for later in a narrower type is made where its operand is, not where it is read.
  static bool is_kept(const Node& node) { return node.attrs.has("keep"); }
  // Constants cost nothing: every kernel that wants one has its own.
  void place_constant(const Value& value, const Demand& need) {
    for (int taker : need.takers) join(value, taker, {});
    if (need.memory || need.takers.empty()) store(value, new_unit(value));
  }
  Units by_first_use(Units units) const {
    std::sort(units.begin(), units.end(), [&](int a, int b) {
      return first_id_[static_cast<size_t>(a)] < first_id_[static_cast<size_t>(b)];
    });
    return units;
  }

  // Reductions of the same space over the same axes that read a value in common read it once: the
  // two sums of a batch norm's backward, a bias gradient beside them.
  bool merge_reductions() {
    bool any = false;
    for (const Units& units : readers_of_whole_values())
      for (size_t i = 0; i < units.size(); ++i)
        for (size_t j = i + 1; j < units.size(); ++j) any |= try_merge(units[i], units[j]);
    return any;
  }
  // For each value, the reducing units that read all of it from memory.
  std::vector<Units> readers_of_whole_values() const {
    std::unordered_map<const Node*, Units> readers;
    for (size_t u = 0; u < fusion_.units.size(); ++u) {
      const Unit& unit = fusion_.units[u];
      if (unit.kind != Unit::Kind::fused || unit.reduced.empty()) continue;
      for (const Value& member : unit.nodes)
        for (const Value& input : member->inputs)
          if (input.shape() == unit.space && !holds(static_cast<int>(u), input.node()))
            readers[input.node()].push_back(static_cast<int>(u));
    }
    std::vector<Units> result;
    for (const Value& value : nodes_)
      if (auto found = readers.find(value.node()); found != readers.end())
        result.push_back(found->second);
    return result;
  }
  bool try_merge(int into, int from) {
    const Unit &a = at(into), &b = at(from);
    bool alike = into != from && a.space == b.space && a.reduced == b.reduced && !b.nodes.empty() &&
                 !a.nodes.empty() && a.nodes.size() + b.nodes.size() <= largest_kernel;
    if (!alike) return false;
    const bool rows = is_row(a.space, a.reduced, options_.threads);  // may read each other's
    if (rows ? merging_makes_cycle(into, from)
             : leads_to(readers_of(into), from) || leads_to(readers_of(from), into))
      return false;
    merge(into, from);
    return true;
  }
  void merge(int into, int from) {
    std::vector<Value> within;  // views that the two had of each other
    for (int unit : {into, from})
      for (const Value& member : at(unit).nodes)
        for (const Value& input : member->inputs)
          if (!holds(into, input.node()) && !holds(from, input.node()) &&
              lives_within(*input.node(), into, from))
            within.push_back(input);
    move(std::vector(at(from).nodes), from, into);
    for (const Value& view : within)
      if (!holds(into, view.node())) join(view, into, {});
  }
  // Constants that what stays behind reads are there, too.
  void move(const std::vector<Value>& part, int from, int into) {
    for (const Value& value : part) {
      Units& in = units_of_.at(value.node());
      in.erase(std::find(in.begin(), in.end(), from));
      if (!contains(in, into)) join(value, into, {});
      if (is_stored_by(from, value.node())) store(value, into);
    }
    std::vector<Value>& left = fusion_.units[index(from)].nodes;
    std::erase_if(left, [&](const Value& value) { return !holds(from, value.node()); });
    for (const Value& value : std::vector(left))
      for (const Value& input : value->inputs)
        if (is_constant(*input.node()) && !holds(from, input.node())) join(input, from, {});
  }

  // A kernel of rows takes over reductions across its rows that read the same values: the gradients
  // of a norm's gain and bias beside that of its input.
  bool merge_across() {
    bool any = false;
    for (const Units& units : readers_of_whole_values())
      for (int rows : units)
        for (int columns : units)
          if (rows != columns && reduces_across(at(rows), at(columns)) &&
              !merging_makes_cycle(rows, columns)) {
            merge(rows, columns);
            any = true;
          }
    return any;
  }
  // What only the reader that was taken over had read: views, and the values behind them.
  void forget_unread() {
    for (size_t i = nodes_.size(); i-- > 0;) {
      const Node* node = nodes_[i].node();
      auto home = fusion_.home.find(node);
      if (home == fusion_.home.end() || is_read(node)) continue;
      Unit& unit = fusion_.units[index(home->second)];
      if (unit.kind == Unit::Kind::view) {
        unit.nodes.clear();
        Units& in = units_of_.at(node);
        in.erase(std::find(in.begin(), in.end(), home->second));
      } else if (unit.kind != Unit::Kind::fused) {
        continue;
      }
      fusion_.home.erase(home);
    }
  }
  // Whether anyone reads it from memory.
  bool is_read(const Node* node) const {
    if (uses_.roots.contains(node)) return true;
    auto users = uses_.users.find(node);
    if (users == uses_.users.end()) return false;
    for (const Node* user : users->second) {
      if (reads_memory(*user) || user->op->kind == OpKind::random) return true;
      for (int unit : units_of(user))
        if (!holds(unit, node)) return true;
    }
    return false;
  }
  bool reduces_across(const Unit& rows, const Unit& columns) const {
    if (rows.nodes.empty() || columns.nodes.empty() || rows.space != columns.space) return false;
    if (rows.nodes.size() + columns.nodes.size() > largest_kernel) return false;
    if (!is_row(rows.space, rows.reduced, options_.threads)) return false;
    const int kept = rows.space.size() - rows.reduced.size();
    if (reduced_shape(rows.space, rows.reduced) == rows.space) return false;
    if (columns.reduced.size() != kept) return false;
    for (int64_t axis : columns.reduced)
      if (axis >= kept) return false;
    // Only sums and the like, which nothing here reads.
    for (const Value& member : columns.nodes) {
      bool reduces = member->op->kind == OpKind::reduce;
      if (reduces && member.dtype() != member->inputs[0].dtype()) return false;
      if (!reduces && member.shape() != rows.space && !is_constant(*member.node()) &&
          member.shape() != reduced_shape(rows.space, rows.reduced))
        return false;
    }
    return true;
  }
  // Whether one of the two would read what comes of the other, but for what they could read of each
  // other inside one kernel.
  bool merging_makes_cycle(int a, int b) const {
    Units readers = readers_of(a, a, b), more = readers_of(b, a, b);
    readers.insert(readers.end(), more.begin(), more.end());
    return leads_to(readers, a, b);
  }
  // A kernel that computes one value, element by element, of what a library's kernel makes becomes
  // part of that one, where the library has a kernel for both; its sums may stay behind. So does
  // one that sums what a library's kernel reads.
  void join_library(int other) {
    if (at(other).kind != Unit::Kind::fused) return;
    const std::vector<Value> part = elementwise_part(other);
    for (const Value& member : part)
      for (const Value& input : member->inputs)
        if (const int maker = library_of(input.node()); maker >= 0 && try_join(maker, other, part))
          return join_library(other);
    if (!reduces(at(other))) return;
    const std::vector<Value> all = at(other).nodes;
    for (const Value& member : all)
      for (const Value& input : member->inputs)
        for (const int reader : libraries_that_read(before_views(input.node())))
          if (try_join(reader, other, all)) return;
  }
  // The one value that a unit stores without reducing, and what it is computed from there; nothing
  // where there are more, or the rest reads what is not stored.
  std::vector<Value> elementwise_part(int unit) const {
    std::vector<Value> part;
    for (const Value& member : at(unit).nodes) {
      if (member->op->kind == OpKind::reduce || !is_stored_by(unit, member.node())) continue;
      if (!part.empty()) return {};
      part = behind(member, [&](const Node* node) { return holds(unit, node); });
    }
    std::unordered_set<const Node*> inside;
    for (const Value& value : part) {
      if (value->op->kind == OpKind::reduce) return {};
      inside.insert(value.node());
    }
    for (const Value& member : at(unit).nodes)
      for (const Value& input : member->inputs)
        if (!inside.contains(member.node()) && inside.contains(input.node()) &&
            input.node() != part.front().node() && !is_constant(*input.node()))
          return {};
    return part;
  }
  // `value`, and what it is computed from by nodes inside, the last of which may be a library's.
  template <class Inside>
  std::vector<Value> behind(const Value& value, Inside inside) const {
    std::vector<Value> found{value};
    for (size_t i = 0; i < found.size(); ++i) {
      if (!fusable(found[i].node())) continue;
      for (const Value& input : std::vector(found[i]->inputs))
        if (inside(input.node()) &&
            std::ranges::find(found, input.node(), &Value::node) == found.end())
          found.push_back(input);
    }
    return found;
  }
  bool is_stored_by(int unit, const Node* node) const {
    const auto home = fusion_.home.find(node);
    return home != fusion_.home.end() && home->second == unit;
  }
  // The unit that stores it, if that is a library's kernel; else -1.
  int library_of(const Node* node) const {
    const auto home = fusion_.home.find(node);
    const bool made = home != fusion_.home.end() && at(home->second).kind == Unit::Kind::library;
    return made ? home->second : -1;
  }
  const Node* before_views(const Node* node) const {
    while (kinds_.at(node) == Unit::Kind::view) node = node->inputs[0].node();
    return node;
  }
  // Itself, or a view of it.
  Units libraries_that_read(const Node* node) const {
    Units readers;
    const auto users = uses_.users.find(node);
    if (users == uses_.users.end()) return readers;
    for (const Node* user : users->second)
      for (int unit : units_of(user)) {
        if (at(unit).kind == Unit::Kind::library) readers.push_back(unit);
        if (at(unit).kind != Unit::Kind::view) continue;
        const Units more = libraries_that_read(user);
        readers.insert(readers.end(), more.begin(), more.end());
      }
    return readers;
  }
  // Moves `part` of another unit into a library's, where the library has a kernel for that.
  bool try_join(int library, int other, const std::vector<Value>& part) {
    Unit both = at(library);
    for (const Value& value : part)
      if (!holds(library, value.node())) both.nodes.push_back(value);
    sort_nodes(both);
    std::vector<Value> stored, dropped;
    for (const Value& value : both.nodes) {
      const bool before = is_stored_by(library, value.node());
      if (is_stored_by(other, value.node()) ||
          (before && is_read_outside(value.node(), both, other)))
        stored.push_back(value);
      else if (before)
        dropped.push_back(value);
    }
    if (options_.apart && stored.size() > 1 && !reduces(both)) return false;
    if (!options_.library->choose_with(both.nodes, stored, dense(both.inputs())) ||
        merging_makes_cycle(library, other))
      return false;
    move(part, other, library);
    for (const Value& value : dropped) fusion_.home.erase(value.node());
    return true;
  }
  // Whether anyone but `unit`, which is made of its value's home and a part of `other`, reads it.
  bool is_read_outside(const Node* node, const Unit& unit, int other) const {
    if (uses_.roots.contains(node)) return true;
    return std::ranges::any_of(uses_.users.at(node), [&](const Node* user) {
      return !unit.contains(user) || std::ranges::any_of(units_of(user), [&](int in) {
        return in != other && in != fusion_.home.at(node);
      });
    });
  }
  static bool reduces(const Unit& unit) {
    return std::ranges::any_of(
        unit.nodes, [](const Value& value) { return value->op->kind == OpKind::reduce; });
  }
  // A library's own node stays first.
  static void sort_nodes(Unit& unit) {
    const auto first = unit.nodes.begin() + (unit.kind == Unit::Kind::library ? 1 : 0);
    std::sort(first, unit.nodes.end(),
              [](const Value& a, const Value& b) { return a->id < b->id; });
  }
  void finish() {
    for (Unit& unit : fusion_.units) {
      if (!reduces(unit)) unit.reduced = {};
      sort_nodes(unit);
    }
    drop_merged();
  }

  // Units that were merged into others are empty.
  void drop_merged() {
    std::vector<int> moved(fusion_.units.size(), -1);
    std::vector<Unit> kept;
    for (size_t u = 0; u < moved.size(); ++u) {
      if (fusion_.units[u].nodes.empty()) continue;
      moved[u] = static_cast<int>(kept.size());
      kept.push_back(std::move(fusion_.units[u]));
    }
    fusion_.units = std::move(kept);
    for (auto& [node, unit] : fusion_.home) unit = moved[static_cast<size_t>(unit)];
  }

  const Uses& uses_;
  const PassOptions& options_;
  std::vector<Value> nodes_;
  bool whole_, exact_;
  std::vector<uint64_t> first_id_, last_id_;  // per unit, over its nodes
  std::vector<uint64_t> first_stored_;        // per unit, over those that it stores
  Fusion fusion_;
  std::unordered_map<const Node*, Unit::Kind> kinds_;
  std::unordered_map<const Node*, const Node*> bases_;
  std::unordered_map<const Node*, Units> units_of_;
};
}  // namespace

namespace {
// Kahn's algorithm; among those that are ready, the one whose last node was written first.
std::vector<int> order_of(const Fusion& fusion) {
  const size_t count = fusion.units.size();
  std::vector<std::vector<int>> readers(count);
  std::vector<int> waiting(count, 0);
  for (size_t u = 0; u < count; ++u)
    for (const Value& value : fusion.units[u].nodes)
      for (const Value& input : value->inputs) {
        if (fusion.units[u].contains(input.node())) continue;
        readers[static_cast<size_t>(fusion.home.at(input.node()))].push_back(static_cast<int>(u));
        ++waiting[u];
      }
  using Ready = std::pair<uint64_t, int>;
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready;
  auto enqueue = [&](int u) {
    ready.emplace(fusion.units[static_cast<size_t>(u)].nodes.back()->id, u);
  };
  for (size_t u = 0; u < count; ++u)
    if (waiting[u] == 0) enqueue(static_cast<int>(u));
  std::vector<int> order;
  while (!ready.empty()) {
    const int unit = ready.top().second;
    ready.pop();
    order.push_back(unit);
    for (int reader : readers[static_cast<size_t>(unit)])
      if (--waiting[static_cast<size_t>(reader)] == 0) enqueue(reader);
  }
  return order;
}
}  // namespace

bool Unit::contains(const Node* node) const {
  if (nodes.front().node() == node) return true;
  const auto at = std::lower_bound(nodes.begin() + 1, nodes.end(), node->id,
                                   [](const Value& value, uint64_t id) { return value->id < id; });
  return at != nodes.end() && at->node() == node;
}

std::vector<Value> Unit::inputs() const {
  std::vector<Value> inputs;
  if (kind == Kind::library) inputs = nodes.front()->inputs;
  for (const Value& value : nodes)
    for (const Value& input : value->inputs)
      if (!contains(input.node()) &&
          std::ranges::find(inputs, input.node(), &Value::node) == inputs.end())
        inputs.push_back(input);
  return inputs;
}

Fusion fuse(const Graph& graph, const Uses& uses, const PassOptions& options) {
  Fusion fusion;
  for (const bool exact : {false, true}) {
    fusion = Fuser(graph, uses, options, exact).run();
    fusion.order = order_of(fusion);
    if (fusion.order.size() == fusion.units.size()) break;
  }
  return fusion;
}
}  // namespace weft
