// Replaces layers of a net by int8 layers, for export and deployment, and measures how much
// accuracy each layer costs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "weft/quantization/calibration.h"
#include "weft/quantization/layers.h"

namespace weft::quantization {

struct Scheme {
  // True: the scale of an activation is computed from each input, and convolutions stay in float32.
  // False: the scale follows from `ranges`.
  bool dynamic = false;
  int64_t weight_bits = 8;          // 7: weights in [-63, 63]
  std::vector<double> ranges = {};  // of each activation
  std::vector<bool> excluded = {};  // layers that stay in float32; empty: none

  bool excludes(size_t layer) const { return !excluded.empty() && excluded[layer]; }
};

// Returns whether a layer is quantized.
bool is_quantized(const Layers& layers, const Scheme& scheme, size_t layer);
// Keeps in float32 the layers whose activation has a range that is 0 or not finite, and returns
// their names.
std::vector<std::string> exclude_without_range(const Layers& layers, Scheme& scheme);

// An Int8 replaces the operands of a net's layers. An activation becomes fake_quantize(x, scale),
// in i8 with the scale max|x| / 127, or in u8 with max / 255 if it is never negative. A weight
// becomes dequantize(q, scale), where q is i8 in [-127, 127] with a scale for each output channel.
// All zero points are 0. A norm after a layer is not folded into it: with a scale for each channel
// that would change scales but no integer.
class Int8 {
 public:
  // Quantizes the current values of the layers' weights.
  Int8(const Layers& layers, const Scheme& scheme);

  // Returns a forward pass of the net with int8 layers.
  Graph operator()(const Graph& graph) const;
  size_t quantized_layers() const { return quantized_; }
  size_t bytes() const { return bytes_; }                // of the int8 weights and their scales
  size_t bytes_before() const { return bytes_before_; }  // of the same weights in float32

 private:
  struct Quantized {
    Variable numbers, scale;  // i8 as the weight lies; f32 [channels]
  };
  const Layers layers_;
  Scheme scheme_;
  std::vector<Quantized> weights_;      // by layer; undefined: stays in float32
  std::vector<Variable> input_scales_;  // by activation, f32 []; undefined: float32 or dynamic
  size_t quantized_ = 0, bytes_ = 0, bytes_before_ = 0;
};

// Returns for each layer the ratio of signal to quantization noise, in dB, of the net's outputs
// where that layer alone is quantized: 10 log10(1 / mean(sum (y - y')^2 / sum y^2)), the mean over
// the outputs of floats. Infinite if the outputs stay equal, and for layers that `scheme` excludes.
std::vector<double> sensitivities(const Net& net, const Layers& layers, const Scheme& scheme,
                                  std::span<const Tensor> inputs, const std::string& device);

// An OutputError says how far an output of a net with int8 layers is from the net's in float32.
struct OutputError {
  bool is_float;
  // For floats sqrt(sum (y - y')^2 / sum y^2), over all samples; for other types the share of
  // elements that differ. Infinite if a finite number became infinite or NaN.
  double error;
};
// Returns the error of each output. The int8 layers compute as the exported net does.
std::vector<OutputError> output_errors(const Net& net, const Layers& layers, const Scheme& scheme,
                                       const Samples& samples, const std::string& device);

}  // namespace weft::quantization
