// ChannelValues finds the number that all elements of a removed channel have in the values of a
// graph, once the channel's weights are zeros: 0 after a ReLU, 0.5 after a sigmoid, unknown after
// an operation without a rule. Internal to channels.cpp.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "weft/ir/value.h"

namespace weft::train {

class ChannelValues {
 public:
  // `holder` returns the key of a value's facts: the address of the variable or node that computes
  // it.
  using Holder = std::function<const void*(const Value& value)>;
  explicit ChannelValues(Holder holder) : holder_(std::move(holder)) {}

  // Says that a holder has a group's channels.
  void add(const void* holder, int group) { groups_[holder].insert(group); }
  // Finds the number of each of a node's groups. The node is no composite, and compute() has been
  // called for its inputs.
  void compute(const Node& node);
  // Returns the number that all elements in the group's channels have; for a value without
  // channels, the number that all its elements have. nullopt: the elements may differ, or are not
  // known.
  std::optional<double> of(const Value& value, int group) const;

 private:
  static constexpr int none = -1;  // stands for all elements of a value without channels

  std::optional<double> computed(const Node& node, int group) const;
  std::optional<double> elementwise(const Node& node, int group) const;

  Holder holder_;
  std::map<const void*, std::set<int>> groups_;
  std::map<std::pair<const void*, int>, double> known_;
};

}  // namespace weft::train
