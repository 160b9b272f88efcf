// Finds the layers of a net that int8 quantization replaces, and replaces what they read. A layer
// is a convolution, or a product whose second operand is a weight: a float32 parameter, seen
// through views. Both are found in the graph, so that a net of weft's modules and one of an ONNX
// file are quantized alike. Products of two activations (attention) are none.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/ir/graph.h"
#include "weft/tensor/tensor.h"

namespace weft::quantization {

// An Activation is what layers read: one value, or several where a layer runs more than once. It
// has one range, and is quantized once for all of its layers.
struct Activation {
  std::string name;  // that of the first layer that reads it
  bool is_unsigned;  // never negative, as behind a ReLU: u8; else i8

  DType dtype() const { return is_unsigned ? DType::u8 : DType::i8; }
  // Returns the number that the end of the range is quantized to.
  double levels() const { return is_unsigned ? 255 : 127; }
};

struct Layer {
  std::string name;                       // that of the weight without ".weight"
  std::shared_ptr<VariableState> weight;  // f32
  int channel_axis;                       // of the weight as it lies: its output channels
  bool is_convolution;
  size_t activation;  // index in Layers
};

struct Layers {
  std::vector<Layer> layers;
  std::vector<Activation> activations;
};

// Returns the layers of a forward pass, in the order of the graph. `values` receives the values of
// each activation in it.
Layers layers_of(const Graph& graph, std::vector<std::vector<Value>>* values = nullptr);

// Marks the layers whose name, or whose weight's, is like one of the patterns ('*' matches any
// characters). Throws Error(usage), after `what`, for a pattern that no layer's name is like.
std::vector<bool> layers_like(const Layers& layers, std::span<const std::string> patterns,
                              std::string_view what);

// Replacement returns what a layer reads instead of its weight (a leaf) and of its input. A layer
// whose weight it leaves, by an empty Value, stays as it is.
struct Replacement {
  std::function<Value(const Layer& layer, const Value& weight)> weight;
  std::function<Value(const Layer& layer, const Value& x)> input;
};
// Replaces what the layers read in a graph, which need not be the one that they were found in: it
// has the same weights. Each input, and each weight, is replaced once for each layer.
Graph replaced(const Graph& graph, const Layers& layers, const Replacement& by);

// ---- arithmetic of ranges

// Returns the f32 scales of a weight by output channel, 1 along its other axes: the largest
// magnitude of a channel over `levels`, or 1 where a channel has zeros alone.
Tensor weight_scales(const Tensor& weight, int channel_axis, double levels);
inline double weight_levels(int64_t bits) { return bits == 7 ? 63 : 127; }
// Returns x rounded to numbers of the activation's type times a scale, an f32 scalar.
Tensor rounded(const Tensor& x, const Tensor& scale, DType dtype);
// Returns the scale of a whole tensor, f32 []: its largest magnitude over 127, or 1 for zeros.
Tensor dynamic_scale(const Tensor& x);

}  // namespace weft::quantization
