// Calibration finds the range of each activation that int8 covers, from samples: the largest
// magnitude, a percentile of the magnitudes, or the range by which the distribution loses least
// information (Migacz 2017, "8-bit inference with TensorRT").
//
// Percentiles and information need histograms, which take a second pass over the samples: the first
// finds where they end. What is kept between batches is the counts alone.
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
// Samples calls `visit` with the inputs of each batch, the same ones in each pass. A step is
// compiled for each shape of them.
using Samples = std::function<void(const std::function<void(std::span<const Tensor>)>& visit)>;

enum class Method : uint8_t { minmax, percentile, entropy };

struct CalibrationOptions {
  Method method = Method::minmax;
  double percentile = 99.99;  // of the magnitudes, zeros included
  std::string device = "auto";
};

// Returns the range of each activation: the magnitude that is quantized to its largest number. It
// is 0 for an activation that is always zero, and not finite where a magnitude was not. Throws
// Error(usage) where the shape of a batch gives the net other layers.
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
// Returns the magnitude that `percentile` percent are at most, which is linear within a bin.
double percentile_range(const Histogram& histogram, double percentile);
// Returns the end of the bins, of those from the first on, which `levels` numbers represent with
// the least Kullback-Leibler divergence: magnitudes beyond count as the last bin's.
double entropy_range(const Histogram& histogram, size_t levels);

}  // namespace weft::quantization
