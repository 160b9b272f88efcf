#include "weft/train/methods/channels.h"

#include <algorithm>
#include <optional>
#include <set>

#include "weft/base/error.h"
#include "weft/ir/axis_map.h"
#include "weft/ir/op_def.h"
#include "weft/quantization/layers.h"
#include "weft/tensor/compile.h"
#include "weft/train/methods/channel_values.h"

namespace weft::train {
namespace {
using VariableStates = std::set<const VariableState*>;

bool is_contraction(const Node& node) {
  return node.op->kind == OpKind::contraction && contracts(*node.op);
}

// Returns the weights of grouped convolutions. A depthwise convolution has no channels of its own;
// the channels of other grouped convolutions stay whole.
VariableStates weights_in_groups(const std::vector<Value>& nodes) {
  VariableStates found;
  for (const Value& node : nodes) {
    if (node->op->family != OpFamily::convolution || !node->attrs.has("groups") ||
        node->attrs.integer("groups") == 1)
      continue;
    const Node* weight = node->inputs[1].node();
    while (weight->inputs.size() == 1) weight = weight->inputs[0].node();
    if (weight->variable != nullptr) found.insert(weight->variable.get());
  }
  return found;
}
}  // namespace

// ChannelSearch gives axes their segments: first the axes of the weights, and then, sweep by sweep,
// the axes that the axis maps relate to them. Groups that cannot be removed are dropped, and the
// search begins anew without them, until the segments of the remaining groups are consistent.
class ChannelSearch {
 public:
  ChannelSearch(Channels& found, const Model& model, const Graph& graph, bool any)
      : found_(found), graph_(graph) {
    for (const nn::NamedVariable& each : model.state())
      variables_.emplace(each.variable.state().get(), each.variable);
    for (const Value& node : graph.nodes()) expand(node);
    maps_.reserve(nodes_.size());
    for (const Value& node : nodes_) maps_.push_back(axis_map(*node.node()));
    add_sources(model, any);
  }

  void run() {
    for (;;) {
      dropped_.clear();
      segments_.clear();
      read_.clear();
      for (size_t i = 0; i < sources_.size(); ++i)
        if (sources_[i].weight.variable.defined())
          set({sources_[i].weight.variable.state().get(), sources_[i].weight.axis},
              {{static_cast<int>(i), sources_[i].channels(), 1}}, false);
      do {
        is_changed_ = false;
        for (size_t i = 0; i < nodes_.size(); ++i) relate(i);
        for (size_t i = nodes_.size(); i-- > 0;) relate(i);
      } while (is_changed_);
      drop_outputs();
      if (dropped_.empty()) drop_nonzero();
      if (dropped_.empty()) drop_unread();
      if (dropped_.empty()) break;
      for (const int group : dropped_) sources_[static_cast<size_t>(group)].weight.variable = {};
    }
    collect();
  }

 private:
  using Segment = Channels::Segment;
  using Segments = Channels::Segments;
  using Place = Channels::Place;

  // ---- the graph

  // Adds a node, or the nodes that a composite decomposes to.
  void expand(const Value& value) {
    if (value->op->kind != OpKind::composite) {
      nodes_.push_back(value);
      found_.expanded_.push_back(value);
      return;
    }
    const std::vector<Value> parts = decomposition(*value.node());
    for (const Value& part : parts) expand(part);
    found_.expanded_.push_back(value);
    found_.results_[value.node()] = holder(parts.empty() ? value->inputs[0] : parts.back());
  }
  const void* holder(const Value& value) const {
    if (value->variable != nullptr) return value->variable.get();
    const auto result = found_.results_.find(value.node());
    return result == found_.results_.end() ? value.node() : result->second;
  }

  void add_sources(const Model& model, bool any) {
    const VariableStates in_groups = weights_in_groups(nodes_);
    VariableStates inner;
    for (const Variable& weight : model.inner_weights()) inner.insert(weight.state().get());
    for (const quantization::Layer& layer : quantization::layers_of(graph_).layers) {
      const auto variable = variables_.find(layer.weight.get());
      if (variable == variables_.end() || in_groups.contains(layer.weight.get()) ||
          variable->second.frozen() || variable->second.dim(layer.channel_axis) < 2 ||
          !(any || inner.contains(layer.weight.get())))
        continue;
      sources_.push_back({{variable->second, layer.channel_axis}, {}, {}});
    }
  }

  // ---- the rules

  void drop(const Segments& segments) {
    for (const Segment& segment : segments)
      if (segment.group >= 0) dropped_.insert(segment.group);
  }
  const Segments* at(const Place& place) const {
    const auto found = segments_.find(place);
    return found == segments_.end() ? nullptr : &found->second;
  }
  // Gives a place its segments. If the place has other segments already, or differs in `is_read`,
  // drops the groups of both.
  void set(const Place& place, const Segments& segments, bool is_read) {
    const auto [known, is_new] = segments_.emplace(place, segments);
    if (is_new) {
      is_changed_ = true;
      if (is_read) read_.insert(place);
    } else if (known->second != segments || read_.contains(place) != is_read) {
      drop(known->second);
      drop(segments);
      note_shared(place.first);
    }
  }
  // Notes the name of the variable in which, directly or in a view, the channels of several weights
  // meet.
  void note_shared(const void* holder) {
    const auto node = std::ranges::find(nodes_, holder, &Value::node);
    if (node != nodes_.end() && (*node)->op->view != nullptr)
      return note_shared(this->holder((*node)->inputs[0]));
    const auto variable = variables_.find(static_cast<const VariableState*>(holder));
    if (variable != variables_.end()) found_.shared_ = variable->second.name();
  }

  // A Use is an axis of an operand or the result that has a factor.
  struct Use {
    int operand;
    Place place;
    bool is_major;  // whether the factor is the first one of the axis
    int64_t minor;  // product of the sizes of the factors after this one
  };
  std::vector<Use> uses_of(const Node& node, const AxisMap& map, int factor) const {
    std::vector<Use> uses;
    const auto add = [&](int operand, const void* holder, const std::vector<FactoredAxis>& axes) {
      for (size_t axis = 0; axis < axes.size(); ++axis) {
        const std::vector<int>& factors = axes[axis].factors;
        const auto found = std::ranges::find(factors, factor);
        if (found == factors.end()) continue;
        int64_t minor = 1;
        for (auto each = found + 1; each != factors.end(); ++each)
          minor *= map.factors[static_cast<size_t>(*each)].size;
        uses.push_back(
            {operand, {holder, static_cast<int>(axis)}, found == factors.begin(), minor});
      }
    };
    for (size_t i = 0; i < node.inputs.size(); ++i)
      add(static_cast<int>(i), holder(node.inputs[i]), map.operands[i]);
    add(AxisMap::of_result, &node, map.result);
    return uses;
  }

  static Segments scaled(Segments segments, int64_t by) {
    for (Segment& each : segments) (each.group < 0 ? each.count : each.each) *= by;
    return segments;
  }
  // Returns the segments of the major factor of an axis; nullopt where they cut its minor ones.
  static std::optional<Segments> of_major(Segments segments, int64_t minor) {
    for (Segment& each : segments) {
      int64_t& size = each.group < 0 ? each.count : each.each;
      if (size % minor != 0) return std::nullopt;
      size /= minor;
    }
    return segments;
  }

  void relate(size_t index) {
    const Node& node = *nodes_[index].node();
    const AxisMap& map = maps_[index];
    if (node.op->leaf != LeafKind::none && node.op->leaf != LeafKind::scalar &&
        node.op->leaf != LeafKind::iota) {
      if (node.variable == nullptr) drop_all(node);
      return;
    }
    if (node.op->kind == OpKind::random) return drop_all(node);
    const int joined = node.is("concat") ? static_cast<int>(node.attrs.integer("axis")) : -1;
    if (joined >= 0) concatenate(node, joined);
    for (size_t factor = 0; factor < map.factors.size(); ++factor) {
      const std::vector<Use> uses = uses_of(node, map, static_cast<int>(factor));
      const bool is_joined = joined >= 0 && std::ranges::all_of(uses, [&](const Use& use) {
                               return use.place.second == joined;
                             });
      if (!is_joined) relate_factor(node, map.factors[factor], uses);
    }
    drop_unrelated(node, map, joined);
  }

  void relate_factor(const Node& node, const Factor& factor, const std::vector<Use>& uses) {
    std::optional<Segments> segments;
    bool is_read = false;
    bool of_operand = false;
    for (const Use& use : uses) {
      const Segments* known = use.is_major ? at(use.place) : nullptr;
      if (known == nullptr) continue;
      of_operand = of_operand || use.operand != AxisMap::of_result;
      if (segments) continue;
      segments = of_major(*known, use.minor);
      is_read = read_.contains(use.place);
      if (!segments) return drop(*known);
    }
    if (!segments) return;
    const bool sums = factor.relation == Relation::reduced && is_contraction(node);
    // A layer's output channels are an axis of its weight. Segments that only the axis of the
    // result has cannot be removed from it.
    const bool imposes =
        is_contraction(node) && !sums && !of_operand &&
        std::ranges::none_of(uses, [](const Use& use) { return use.operand == 0; });
    if ((factor.relation != Relation::plain && !sums) || factor.positional || imposes)
      return drop(*segments);
    for (const Use& use : uses) {
      if (!use.is_major) return drop(*segments);
      const bool reads = sums ? use.operand == 1 : is_read;
      set(use.place, scaled(*segments, use.minor), reads);
    }
  }

  // Along the axis that a concatenation joins, its result has the segments of its operands, which
  // a sweep has found before.
  void concatenate(const Node& node, int axis) {
    Segments joined;
    bool is_known = false;
    for (const Value& input : node.inputs) {
      const Place place{holder(input), axis};
      const Segments* segments = at(place);
      if (segments != nullptr && read_.contains(place)) drop(*segments);
      is_known = is_known || segments != nullptr;
      const Segments own = segments != nullptr ? *segments : Segments{{-1, input.dim(axis), 1}};
      joined.insert(joined.end(), own.begin(), own.end());
    }
    const Place place{&node, axis};
    if (is_known)
      set(place, joined, false);
    else if (const Segments* own = at(place))
      drop(*own);
  }

  // Drops the channels of axes that the axis map relates to nothing.
  void drop_unrelated(const Node& node, const AxisMap& map, int joined) {
    const auto check = [&](const void* holder, const std::vector<FactoredAxis>& axes) {
      for (size_t axis = 0; axis < axes.size(); ++axis)
        if (axes[axis].factors.empty() && static_cast<int>(axis) != joined)
          if (const Segments* segments = at({holder, static_cast<int>(axis)})) drop(*segments);
    };
    for (size_t i = 0; i < node.inputs.size(); ++i) check(holder(node.inputs[i]), map.operands[i]);
    check(&node, map.result);
  }
  void drop_all(const Node& node) {
    for (int axis = 0; axis < node.type.shape.size(); ++axis)
      if (const Segments* segments = at({&node, axis})) drop(*segments);
  }

  // ---- groups that must stay

  void drop_outputs() {
    for (const Value& output : graph_.outputs)
      for (int axis = 0; axis < output.rank(); ++axis)
        if (const Segments* segments = at({holder(output), axis})) drop(*segments);
  }

  // Drops groups whose removed channels would not be zero where weights multiply them.
  void drop_nonzero() {
    ChannelValues values([&](const Value& value) { return holder(value); });
    for (const auto& [place, segments] : segments_)
      if (!read_.contains(place))
        for (const Segment& each : segments)
          if (each.group >= 0) values.add(place.first, each.group);
    for (const Value& node : nodes_) values.compute(*node.node());
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const Node& node = *nodes_[i].node();
      if (!is_contraction(node)) continue;
      for (size_t axis = 0; axis < maps_[i].operands[0].size(); ++axis) {
        const Segments* segments = at({holder(node.inputs[0]), static_cast<int>(axis)});
        if (segments == nullptr || !is_summed(maps_[i], maps_[i].operands[0][axis])) continue;
        for (const Segment& each : *segments)
          if (each.group >= 0 && values.of(node.inputs[0], each.group) != 0.0)
            dropped_.insert(each.group);
      }
    }
  }
  static bool is_summed(const AxisMap& map, const FactoredAxis& axis) {
    return std::ranges::any_of(axis.factors, [&](int factor) {
      return map.factors[static_cast<size_t>(factor)].relation == Relation::reduced;
    });
  }

  void drop_unread() {
    std::set<int> unread;
    for (size_t i = 0; i < sources_.size(); ++i)
      if (sources_[i].weight.variable.defined()) unread.insert(static_cast<int>(i));
    for (const auto& [place, segments] : segments_)
      if (read_.contains(place))
        for (const Segment& each : segments) unread.erase(each.group);
    dropped_.insert(unread.begin(), unread.end());
  }

  void collect() {
    std::vector<int> index(sources_.size(), -1);
    for (size_t i = 0; i < sources_.size(); ++i) {
      if (!sources_[i].weight.variable.defined()) continue;
      index[i] = static_cast<int>(found_.groups_.size());
      found_.groups_.push_back(sources_[i]);
    }
    for (const auto& [place, segments] : segments_) {
      Segments& numbered = found_.segments_[place] = segments;
      for (Segment& each : numbered)
        if (each.group >= 0) each.group = index[static_cast<size_t>(each.group)];
    }
    // Variables in the order of their names, so that every run has the same.
    for (const auto& [state, variable] : variables_)
      for (int axis = 0; axis < variable.rank(); ++axis) add_parts(variable, {state, axis});
    for (ChannelGroup& group : found_.groups_)
      for (auto* parts : {&group.follows, &group.readers})
        std::ranges::sort(*parts, {}, [](const ChannelSlices& part) {
          return std::pair(part.variable.name(), part.offset);
        });
  }
  void add_parts(const Variable& variable, const Place& place) {
    const auto segments = found_.segments_.find(place);
    if (segments == found_.segments_.end()) return;
    int64_t offset = 0;
    for (const Segment& each : segments->second) {
      if (each.group >= 0) {
        ChannelGroup& group = found_.groups_[static_cast<size_t>(each.group)];
        const bool is_own =
            group.weight.variable.state() == variable.state() && group.weight.axis == place.second;
        auto& parts = read_.contains(place) ? group.readers : group.follows;
        if (!is_own) parts.push_back({variable, place.second, offset, each.each});
      }
      offset += each.count * each.each;
    }
  }

  Channels& found_;
  const Graph& graph_;
  std::map<const VariableState*, Variable> variables_;
  std::vector<Value> nodes_;           // without composites
  std::vector<AxisMap> maps_;          // of the nodes
  std::vector<ChannelGroup> sources_;  // without a weight: it was dropped
  std::map<Place, Segments> segments_;
  std::set<Place> read_;  // axes of weights, or their views, that sum over the channels
  std::set<int> dropped_;
  bool is_changed_ = false;
};

Channels::Channels(const Model& model, const Graph& graph, bool any) {
  ChannelSearch(*this, model, graph, any).run();
}

Shape Channels::narrowed(const Value& value, std::span<const int64_t> channels) const {
  const auto result = results_.find(value.node());
  const void* const holder = value->variable != nullptr ? value->variable.get()
                             : result != results_.end() ? result->second
                                                        : value.node();
  Shape shape = value.shape();
  for (int axis = 0; axis < shape.size(); ++axis) {
    const auto segments = segments_.find({holder, axis});
    if (segments == segments_.end()) continue;
    shape[axis] = 0;
    for (const Segment& each : segments->second)
      shape[axis] +=
          each.each * (each.group < 0 ? each.count : channels[static_cast<size_t>(each.group)]);
  }
  return shape;
}

}  // namespace weft::train
