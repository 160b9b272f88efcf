// ChannelValues knows what the elements of a removed channel are in a graph whose weights are zeros
// there: behind a ReLU 0, behind a sigmoid 0.5, behind what it does not know nothing. Internal to
// channels.cpp.
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
  // `holder` returns what a value's facts are kept under: the variable or node that computes it.
  using Holder = std::function<const void*(const Value& value)>;
  explicit ChannelValues(Holder holder) : holder_(std::move(holder)) {}

  // Says that a holder has a group's channels.
  void add(const void* holder, int group) { groups_[holder].insert(group); }
  // Computes what a node, which is no composite, has in the channels of its groups; after its
  // inputs.
  void compute(const Node& node);
  // Returns what a value has in the channels of a group that it has; for any other value, what all
  // of its elements are. nullopt: they may differ, or are not known.
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
