#include "weft/ir/axis_map.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/ir/op_def.h"
#include "weft/ir/plan.h"

namespace weft {
namespace {
using Axes = std::vector<std::vector<int>>;  // [axis]: its items

// A Composition unifies the factors of a composite's nodes: an axis that is one factor in one node
// may be two in another, and is then split.
class Composition {
 public:
  explicit Composition(const Node& composite) : composite_(composite) {
    for (const Value& input : composite.inputs) axes_[input.node()] = axes_of(input.shape());
    std::vector<Value> nodes = decomposition(composite);
    for (const Value& value : nodes) add(*value.node(), &value == &nodes.back());
    result_ = nodes.empty() ? composite.inputs.front().node() : nodes.back().node();
    if (nodes.empty()) read_.insert(result_);
  }

  AxisMap map() {
    AxisMap map(composite_);
    std::unordered_map<int, int> factors;
    auto fill = [&](std::vector<FactoredAxis>& to, const Node* node, bool is_result) {
      for (size_t axis = 0; axis < to.size(); ++axis)
        for (int item : settled(axes_.at(node)[axis])) {
          Item& whole = items_[static_cast<size_t>(item)];
          // A reduced factor that is broadcast back is a statistic over the whole axis.
          if (is_result && whole.factor.relation == Relation::reduced)
            whole.factor.relation = Relation::whole;
          if (factors.try_emplace(item, std::ssize(factors)).second) order_.push_back(item);
          to[axis].factors.push_back(factors.at(item));
        }
    };
    fill(map.result, result_, true);
    const size_t of_result = order_.size();
    for (size_t i = 0; i < composite_.inputs.size(); ++i)
      if (read_.contains(composite_.inputs[i].node()))
        fill(map.operands[i], composite_.inputs[i].node(), false);
    for (size_t i = 0; i < order_.size(); ++i) {
      Factor factor = items_[static_cast<size_t>(order_[i])].factor;
      factor.count = {};
      // A factor that the result lacks stays reduced only if one final reduction removes it and all
      // operands have it; otherwise parts cannot simply be combined.
      if (i >= of_result && (factor.relation == Relation::plain || !is_of_all(map, i)))
        factor.relation = Relation::whole;
      map.factors.push_back(factor);
    }
    return map;
  }

 private:
  struct Item {
    Factor factor;
    int same_as = -1;        // index of the item that it was joined with
    std::vector<int> parts;  // the items that it was split into; the major one first
  };

  static bool is_of_all(const AxisMap& map, size_t factor) {
    return std::ranges::all_of(map.operands, [&](const std::vector<FactoredAxis>& axes) {
      return std::ranges::any_of(axes, [&](const FactoredAxis& axis) {
        return std::ranges::find(axis.factors, static_cast<int>(factor)) != axis.factors.end();
      });
    });
  }

  int item(const Factor& factor) {
    items_.push_back({.factor = factor});
    return static_cast<int>(items_.size()) - 1;
  }
  Axes axes_of(const Shape& shape) {
    Axes axes;
    for (int64_t extent : shape)
      axes.push_back(extent == 1 ? std::vector<int>() : std::vector{item({.size = extent})});
    return axes;
  }

  // Returns the axis's items after all joins and splits.
  std::vector<int> settled(const std::vector<int>& axis) const {
    std::vector<int> found;
    for (int at : axis) {
      while (items_[static_cast<size_t>(at)].same_as >= 0)
        at = items_[static_cast<size_t>(at)].same_as;
      const Item& one = items_[static_cast<size_t>(at)];
      if (one.parts.empty())
        found.push_back(at);
      else
        for (int part : settled(one.parts)) found.push_back(part);
    }
    return found;
  }

  void make_whole(const std::vector<int>& axis) {
    for (int at : settled(axis)) items_[static_cast<size_t>(at)].factor.relation = Relation::whole;
  }
  void join(int a, int b) {
    if (a == b) return;
    Factor& kept = items_[static_cast<size_t>(a)].factor;
    const Factor& other = items_[static_cast<size_t>(b)].factor;
    if (other.relation == Relation::reduced) kept.combine = other.combine;
    kept.relation = std::max(kept.relation, other.relation);
    kept.positional |= other.positional;
    items_[static_cast<size_t>(b)].same_as = a;
  }
  void split(int at, int64_t major) {
    Factor part = items_[static_cast<size_t>(at)].factor;
    part.count = {};
    const int64_t minor = part.size / major;
    part.size = major;
    const int first = item(part);
    part.size = minor;
    items_[static_cast<size_t>(at)].parts = {first, item(part)};
  }

  // Unifies two factorizations of one axis, splitting where one is finer.
  void meet(const std::vector<int>& one, const std::vector<int>& other) {
    for (;;) {
      const std::vector<int> a = settled(one), b = settled(other);
      size_t i = 0;
      while (i < a.size() && i < b.size() && a[i] == b[i]) ++i;
      if (i == a.size() && i == b.size()) return;
      if (i == a.size() || i == b.size()) break;
      const int64_t m = size_of(a[i]), n = size_of(b[i]);
      if (m == n)
        join(a[i], b[i]);
      else if (m > n && m % n == 0)
        split(a[i], n);
      else if (n > m && n % m == 0)
        split(b[i], m);
      else
        break;
    }
    make_whole(one);
    make_whole(other);
  }
  int64_t size_of(int at) const { return items_[static_cast<size_t>(at)].factor.size; }

  void add(const Node& node, bool is_last) {
    const AxisMap map = axis_map(node);
    std::vector<int> items;
    for (const Factor& factor : map.factors) {
      items.push_back(item(factor));
      Relation& relation = items_.back().factor.relation;
      const bool goes_on = relation == Relation::reduced && !is_last;
      if (relation == Relation::affine || goes_on) relation = Relation::whole;
    }
    auto of = [&](const FactoredAxis& axis) {
      std::vector<int> found;
      found.reserve(axis.factors.size());
      for (int factor : axis.factors) found.push_back(items[static_cast<size_t>(factor)]);
      return found;
    };
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      read_.insert(node.inputs[i].node());
      const Axes& have = axes_.at(node.inputs[i].node());
      for (size_t axis = 0; axis < have.size(); ++axis) {
        const FactoredAxis& reads = map.operands[i][axis];
        const bool affine =
            reads.factors.size() == 1 &&
            map.factors[static_cast<size_t>(reads.factors[0])].relation == Relation::affine;
        if (affine)
          make_whole(have[axis]);
        else if (!reads.factors.empty())
          meet(have[axis], of(reads));
      }
    }
    Axes& made = axes_[&node];
    std::vector<int> all;
    for (const FactoredAxis& axis : map.result) {
      made.push_back(of(axis));
      for (int at : settled(made.back())) all.push_back(at);
    }
    // In x + transpose(x), a range of one factor spans two axes of the result, so it does not
    // select a range of the result.
    std::ranges::sort(all);
    for (size_t i = 1; i < all.size(); ++i)
      if (all[i] == all[i - 1]) make_whole({all[i]});
  }

  const Node& composite_;
  const Node* result_ = nullptr;
  std::vector<Item> items_;
  std::unordered_map<const Node*, Axes> axes_;
  std::unordered_set<const Node*> read_;
  std::vector<int> order_;
};

const Shape& shape_at(const Node& node, int operand) {
  return operand == AxisMap::of_result ? node.type.shape
                                       : node.inputs[static_cast<size_t>(operand)].shape();
}

std::string letters(const std::vector<FactoredAxis>& axes) {
  std::string text;
  for (const FactoredAxis& axis : axes) {
    text += text.empty() ? "" : ", ";
    for (int factor : axis.factors) text += static_cast<char>('a' + factor % 26);
    if (axis.factors.empty()) text += '1';
  }
  return "[" + text + "]";
}
}  // namespace

AxisMap::AxisMap(const Node& node) : result(static_cast<size_t>(node.type.shape.size())) {
  for (const Value& input : node.inputs) operands.emplace_back(static_cast<size_t>(input.rank()));
}

void AxisMap::relate(const Node& node, Factor factor, const std::vector<Place>& places) {
  if (factor.size == 1 && factor.relation != Relation::affine) return;
  const int index = static_cast<int>(factors.size());
  bool is_there = false;
  for (const Place& place : places) {
    if (shape_at(node, place.operand)[place.axis] == 1) continue;
    auto& axes = place.operand == of_result ? result : operands[static_cast<size_t>(place.operand)];
    FactoredAxis& axis = axes[static_cast<size_t>(place.axis)];
    axis.factors.push_back(index);
    axis.window = place.window;
    is_there = true;
  }
  if (is_there) factors.push_back(factor);
}

AxisMap axis_by_axis(const Node& node, Factor (*factor_of)(const Node& node, int axis)) {
  AxisMap map(node);
  for (int axis = 0; axis < node.type.shape.size(); ++axis) {
    std::vector<AxisMap::Place> places{{AxisMap::of_result, axis}};
    for (int i = 0; i < static_cast<int>(node.inputs.size()); ++i) places.push_back({i, axis});
    map.relate(node, factor_of(node, axis), places);
  }
  return map;
}

AxisMap axis_map(const Node& node) {
  if (node.op->axes != nullptr) return node.op->axes(node);
  if (node.op->decompose != nullptr) return Composition(node).map();
  return axis_by_axis(
      node, [](const Node& each, int axis) { return Factor{.size = each.type.shape[axis]}; });
}

Placement place_in_whole(const Node& node) {
  if (!node.attrs.has("strides")) {
    if (node.op->leaf != LeafKind::iota) return {-1, 0, row_major_strides(node.type.shape)};
    Placement along{-1, 0, Dims::filled(node.type.shape.size(), 0)};
    along.strides[static_cast<int>(node.attrs.integer("axis"))] = 1;
    return along;
  }
  const Dims& strides = node.attrs.dims("strides");
  WEFT_ASSERT(strides.size() == node.type.shape.size(), "strides {} of a part of shape {}",
              to_string(strides), to_string(node.type.shape));
  return {-1, node.attrs.integer("offset"), strides};
}

Attrs attrs_for(const Node& node, const AxisMap& map, const Part& part) {
  std::string_view count;
  if (part.factor >= 0) count = map.factors[static_cast<size_t>(part.factor)].count;
  Attrs attrs;
  for (const Attrs::Entry& entry : node.attrs.entries()) {
    if (map.has_place && (entry.key == "offset" || entry.key == "strides")) continue;
    attrs = attrs.with(entry.key == map.shape ? Attrs::Entry{entry.key, part.shape}
                       : entry.key == count   ? Attrs::Entry{entry.key, part.count}
                                              : entry);
  }
  if (!map.has_place) return attrs;
  const Placement whole = place_in_whole(node);
  return attrs.with({"offset", whole.offset + part.from * whole.strides[part.axis]})
      .with({"strides", whole.strides});
}

std::string to_string(const AxisMap& map) {
  std::string text;
  for (const auto& operand : map.operands) text += (text.empty() ? "" : ", ") + letters(operand);
  text = fmt::format("({}) -> {}", text, letters(map.result));
  constexpr std::string_view words[] = {"", "reduced", "affine", "whole"};
  for (size_t i = 0; i < map.factors.size(); ++i) {
    const Factor& factor = map.factors[i];
    const char letter = static_cast<char>('a' + i % 26);
    if (factor.relation != Relation::plain)
      text += fmt::format(", {} {}", letter, words[static_cast<size_t>(factor.relation)]);
    if (factor.positional) text += fmt::format(", {} positional", letter);
  }
  return text;
}

}  // namespace weft
