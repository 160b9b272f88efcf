// Calibration finds the range of each activation that int8 covers, from samples: the largest
// magnitude, a percentile of the magnitudes, or the range by which the distribution loses least
// information (Migacz 2017, "8-bit inference with TensorRT").
//
// Percentiles and information need histograms: a first pass over the samples finds their limits, a
// second one fills them. Only the counts are kept between batches.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "weft/quantization/layers.h"

namespace weft::quantization {

// Net is a forward pass in evaluation mode.
using Net = std::function<std::vector<Tensor>(std::span<const Tensor> inputs)>;
// Samples calls `visit` with the inputs of each batch, the same inputs in each pass. A step is
// compiled for each distinct shape of the inputs.
using Samples = std::function<void(const std::function<void(std::span<const Tensor>)>& visit)>;

enum class Method : uint8_t { minmax, percentile, entropy };

struct CalibrationOptions {
  Method method = Method::minmax;
  double percentile = 99.99;  // of the magnitudes, zeros included
  std::string device = "auto";
};

// Returns the range of each activation: the magnitude that maps to the largest quantized number. It
// is 0 for an activation that is always zero, and not finite if a magnitude was not. Throws
// Error(usage) if the net has other layers for the shape of a batch.
std::vector<double> calibrate(const Net& net, const Layers& layers, const Samples& samples,
                              const CalibrationOptions& options);

// A Histogram counts magnitudes in equal bins from 0 to `limit`.
struct Histogram {
  static constexpr size_t bins = 2048;

  explicit Histogram(double limit) : limit(limit), counts(bins, 0) {}
  void add(std::span<const float> values);

  double limit;
  std::vector<double> counts;
};
// Returns the magnitude that `percentile` percent of the counts do not exceed, interpolated
// linearly within a bin.
double percentile_range(const Histogram& histogram, double percentile);
// Returns the range [0, end] of bins that `levels` numbers represent with the least
// Kullback-Leibler divergence, as its end. Counts beyond it are added to the last bin.
double entropy_range(const Histogram& histogram, size_t levels);

}  // namespace weft::quantization
