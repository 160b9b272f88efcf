// Turns a net into one of int8 layers: the graph that is exported and deployed, and what each layer
// costs in accuracy.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "weft/quantization/calibration.h"
#include "weft/quantization/layers.h"

namespace weft::quantization {

struct Scheme {
  // The scale of an activation is computed from each input, and convolutions stay as they are; else
  // it follows from `ranges`.
  bool dynamic = false;
  int64_t weight_bits = 8;          // 7: weights in [-63, 63]
  std::vector<double> ranges = {};  // of each activation
  std::vector<bool> kept = {};      // layers that stay in float32; empty: none

  bool keeps(size_t layer) const { return !kept.empty() && kept[layer]; }
};

// Returns whether a layer is quantized.
bool is_quantized(const Layers& layers, const Scheme& scheme, size_t layer);
// Keeps the layers in float32 whose activation has no range above 0, or one that is not finite, and
// returns their names.
std::vector<std::string> keep_without_range(const Layers& layers, Scheme& scheme);

// An Int8 replaces the layers of a net: an activation by fake_quantize(x, scale), symmetric in i8
// with the scale max|x| / 127, or where it is never negative u8 with max / 255; a weight by
// dequantize(q, scale), where q is i8 in [-127, 127] with a scale for each output channel. There
// are no zeros beside 0. A norm behind a layer stays: with a scale for each channel, folding it
// would change scales but no integer.
class Int8 {
 public:
  // The layers hold their weights now.
  Int8(const Layers& layers, const Scheme& scheme);

  // Returns a forward pass of the net with int8 layers.
  Graph operator()(const Graph& graph) const;
  size_t quantized_layers() const { return quantized_; }
  size_t bytes() const { return bytes_; }                // of the weights' numbers and scales
  size_t bytes_before() const { return bytes_before_; }  // of the same weights

 private:
  struct Quantized {
    Variable numbers, scale;  // i8 as the weight lies; f32 [channels]
  };
  const Layers layers_;
  Scheme scheme_;
  std::vector<Quantized> weights_;      // by layer; undefined: it stays
  std::vector<Variable> input_scales_;  // by activation, f32 []; undefined: it stays, or is dynamic
  size_t quantized_ = 0, bytes_ = 0, bytes_before_ = 0;
};

// Returns for each layer the ratio of signal to quantization noise, in dB, of the net's outputs
// where that layer alone is quantized: 10 log10(1 / mean(sum (y - y')^2 / sum y^2)), the mean over
// the outputs of floats. Infinite where nothing changes, and for layers that `scheme` keeps.
std::vector<double> sensitivities(const Net& net, const Layers& layers, const Scheme& scheme,
                                  std::span<const Tensor> inputs, const std::string& device);

// An OutputError says how far an output of a net with int8 layers is from the net's in float32.
struct OutputError {
  bool is_float;
  // Of floats sqrt(sum (y - y')^2 / sum y^2), over all samples; of other types the share of the
  // elements that differ. Infinite where a number that was finite is not any more.
  double error;
};
// Returns the error of each output. The int8 layers compute as the exported net does.
std::vector<OutputError> output_errors(const Net& net, const Layers& layers, const Scheme& scheme,
                                       const Samples& samples, const std::string& device);

}  // namespace weft::quantization
