// Finds the channels of a net that can be removed, in the graph of its forward pass, so that a net
// of weft's modules and one of an ONNX file are pruned alike.
//
// The output channels of a weight are followed through the graph by the axis maps of its
// operations (ir/axis_map.h), to the parameters and statistics beside them and to the weights that
// sum over them. They can be removed where each is zero wherever it is read, once its weights and
// the parameters beside it are zeros. They stay where an addition joins them with channels of
// another weight, where an output of the graph has them, or where an operation mixes them. A
// depthwise convolution is passed: its weight is beside the channels that it reads.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "weft/ir/graph.h"
#include "weft/models/model.h"
#include "weft/optim/pruning.h"

namespace weft::train {
using optim::ChannelSlices;

// A ChannelGroup is the output channels of a weight, and where they are in other variables.
struct ChannelGroup {
  ChannelSlices weight;
  std::vector<ChannelSlices> follows;  // a bias, a norm, the weight of a depthwise layer
  std::vector<ChannelSlices> readers;  // the weights that sum over the channels

  int64_t channels() const { return weight.variable.dim(weight.axis); }
};

class Channels {
 public:
  // Finds channels in the graph of a model's forward pass: the output channels of its inner weights
  // (Model::inner_weights), or with `any` of all its weights.
  Channels(const Model& model, const Graph& graph, bool any);

  // Returns the groups in the order of the graph.
  const std::vector<ChannelGroup>& groups() const { return groups_; }
  // Returns the name of a variable that the channels of several weights share, so that these
  // channels cannot be removed; "" if no variable is shared. Exporters merge initializers of equal
  // elements.
  const std::string& shared() const { return shared_; }
  // Returns the shape of a value of the graph once each group i has channels[i] channels.
  Shape narrowed(const Value& value, std::span<const int64_t> channels) const;

 private:
  friend class ChannelSearch;

  // A Segment of an axis is a group's channels, or `count` elements of no group (-1).
  struct Segment {
    int group = -1;
    int64_t count = 0, each = 1;
    friend bool operator==(const Segment&, const Segment&) = default;
  };
  using Segments = std::vector<Segment>;
  // A Place is an axis of a variable, or of the result of a node.
  using Place = std::pair<const void*, int>;

  std::vector<ChannelGroup> groups_;
  std::string shared_;
  std::map<Place, Segments> segments_;
  std::map<const Node*, const void*> results_;  // composite to its last operation's holder
  std::vector<Value> expanded_;                 // keeps the addresses above
};

}  // namespace weft::train
