// Finds the layers of a net that int8 quantization replaces, and replaces their operands. A layer
// is a convolution, or a product whose second operand is a weight: a float32 parameter, seen
// through views. Layers are found in the graph, so that nets of weft's modules and of ONNX files
// are quantized alike. A product of two activations (attention) is no layer.
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

// An Activation is the input of one or several layers: one value, or several if a layer runs more
// than once. It has one range and one dtype for all of its layers.
struct Activation {
  std::string name;  // name of the first layer that reads it
  bool is_unsigned;  // never negative, as behind a ReLU: u8; else i8

  DType dtype() const { return is_unsigned ? DType::u8 : DType::i8; }
  // Returns the largest quantized number, to which the end of the range maps.
  double levels() const { return is_unsigned ? 255 : 127; }
};

struct Layer {
  std::string name;                       // name of the weight without ".weight"
  std::shared_ptr<VariableState> weight;  // f32
  int channel_axis;                       // axis of `weight`: the output channels
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

// Marks the layers whose name, or whose weight's name, matches a pattern ('*' matches any
// characters). Throws Error(usage) for a pattern without a match; its message begins with `what`.
std::vector<bool> layers_like(const Layers& layers, std::span<const std::string> patterns,
                              std::string_view what);

// Replacement returns the new weight and the new input of a layer; its argument `weight` is the
// leaf, a variable. If the new weight is an empty Value, the layer stays as it is.
struct Replacement {
  std::function<Value(const Layer& layer, const Value& weight)> weight;
  std::function<Value(const Layer& layer, const Value& x)> input;
};
// Replaces the operands of layers in a graph. It may be another graph than the layers were found
// in: they are known by their weights. Calls `by` once for each weight, and once for each input of
// each layer.
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
