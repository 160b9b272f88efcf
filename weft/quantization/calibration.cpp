#include "weft/quantization/calibration.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "weft/base/error.h"
#include "weft/tensor/compile.h"

namespace weft::quantization {
namespace {

using Values = std::vector<Value>;

// Throws if the layers are not `wanted`, as in a net that branches by the shapes of its inputs.
void check_same(const Layers& layers, const Layers& wanted) {
  const auto weight = [](const Layer& layer) { return layer.weight; };
  if (!std::ranges::equal(layers.layers, wanted.layers, {}, weight, weight))
    throw Error(ErrorKind::usage,
                "the net has other layers for some of the samples: {} instead of {}. Hint: samples "
                "of one shape.",
                layers.layers.size(), wanted.layers.size());
}

// Compiles a step that returns a result for the values of each activation.
CompiledStep observing(const Net& net, const Layers& layers, const std::string& device,
                       Tensor (*result)(const Values& values)) {
  return {[&net, &layers, result](std::span<const Tensor> inputs) {
            Graph graph;
            graph.inputs.assign(inputs.begin(), inputs.end());
            graph.outputs = net(inputs);
            std::vector<Values> values;
            check_same(layers_of(graph, &values), layers);
            std::vector<Tensor> results;
            results.reserve(values.size());
            for (const Values& each : values) results.push_back(result(each));
            return results;
          },
          {.mode = Mode::eval, .device = device}};
}

Tensor largest_magnitude(const Values& values) {
  Tensor largest;
  for (const Value& value : values) {
    const Tensor here = max(abs(value));
    largest = largest.defined() ? maximum(largest, here) : here;
  }
  return largest;
}
Tensor in_a_row(const Values& values) {
  std::vector<Tensor> rows;
  rows.reserve(values.size());
  for (const Value& value : values) rows.push_back(reshape(value, {-1}));
  return rows.size() == 1 ? rows.front() : concat(rows, 0);
}

std::vector<double> largest_magnitudes(const Net& net, const Layers& layers, const Samples& samples,
                                       const std::string& device) {
  CompiledStep step = observing(net, layers, device, largest_magnitude);
  std::vector<double> ranges(layers.activations.size(), 0);
  samples([&](std::span<const Tensor> inputs) {
    const std::span<const Tensor> largest = step.run(inputs);
    for (size_t i = 0; i < ranges.size(); ++i)
      if (const double here = largest[i].item(); !std::isnan(ranges[i]) && !(here <= ranges[i]))
        ranges[i] = here;  // a NaN stays
  });
  return ranges;
}

std::vector<Histogram> histograms_of(const Net& net, const Layers& layers, const Samples& samples,
                                     const std::vector<double>& limits, const std::string& device) {
  CompiledStep step = observing(net, layers, device, in_a_row);
  std::vector<Histogram> histograms(limits.begin(), limits.end());
  samples([&](std::span<const Tensor> inputs) {
    const std::span<const Tensor> values = step.run(inputs);
    for (size_t i = 0; i < histograms.size(); ++i) histograms[i].add(values[i].to_vector<float>());
  });
  return histograms;
}
}  // namespace

void Histogram::add(std::span<const float> values) {
  const double per_bin = static_cast<double>(bins) / limit;
  for (const float value : values) {
    const double at = std::abs(static_cast<double>(value)) * per_bin;
    ++counts[at < static_cast<double>(bins) ? static_cast<size_t>(at) : bins - 1];
  }
}

double percentile_range(const Histogram& histogram, double percentile) {
  double total = 0, below = 0;
  for (const double count : histogram.counts) total += count;
  const double wanted = total * percentile / 100;
  const double width = histogram.limit / static_cast<double>(Histogram::bins);
  for (size_t i = 0; i < Histogram::bins; ++i) {
    const double count = histogram.counts[i];
    if (count > 0 && below + count >= wanted)
      return width * (static_cast<double>(i) + (wanted - below) / count);
    below += count;
  }
  return histogram.limit;
}

// A bin with more counts than both neighbours, and than the mean count of a level, has one frequent
// value, such as the zeros behind a ReLU or the background of pictures. Any range represents such a
// value by one level, but its count would outweigh all others; so within the range it gets the
// count of its fuller neighbour. Beyond the range all counts stay.
double entropy_range(const Histogram& histogram, size_t levels) {
  const std::vector<double>& counts = histogram.counts;
  const double share =
      std::accumulate(counts.begin(), counts.end(), 0.0) / static_cast<double>(levels);
  std::vector<double> bins = counts;
  for (size_t i = 0; i < bins.size(); ++i) {
    const double before = i == 0 ? 0 : counts[i - 1];
    const double after = i + 1 == bins.size() ? 0 : counts[i + 1];
    if (counts[i] > share) bins[i] = std::min(counts[i], std::max(before, after));
  }
  double within = std::accumulate(bins.begin(), bins.end(), 0.0), beyond = 0;
  double least = std::numeric_limits<double>::infinity();
  size_t best = bins.size();
  std::vector<double> sums(levels);
  std::vector<size_t> members(levels);
  for (size_t end = bins.size(); end >= levels && within > 0;
       --end, within -= bins[end], beyond += counts[end]) {
    std::ranges::fill(sums, 0);
    std::ranges::fill(members, size_t{0});
    for (size_t i = 0; i < end; ++i) {
      if (bins[i] == 0) continue;
      sums[i * levels / end] += bins[i];
      ++members[i * levels / end];
    }
    double divergence = 0;
    for (size_t i = 0; i < end; ++i) {
      const double p = (bins[i] + (i + 1 == end ? beyond : 0)) / (within + beyond);
      if (p == 0) continue;
      const size_t level = i * levels / end;
      const double q =
          bins[i] == 0 ? 0 : sums[level] / static_cast<double>(members[level]) / within;
      divergence += p * std::log(p / q);  // infinite where q is 0
    }
    if (divergence < least) {
      least = divergence;
      best = end;
    }
  }
  return histogram.limit * static_cast<double>(best) / static_cast<double>(bins.size());
}

std::vector<double> calibrate(const Net& net, const Layers& layers, const Samples& samples,
                              const CalibrationOptions& options) {
  std::vector<double> ranges = largest_magnitudes(net, layers, samples, options.device);
  const auto is_range = [](double range) { return range > 0 && std::isfinite(range); };
  if (options.method == Method::minmax || std::ranges::none_of(ranges, is_range)) return ranges;
  std::vector<double> limits = ranges;
  for (double& limit : limits)
    if (!is_range(limit)) limit = 1;
  const std::vector<Histogram> histograms =
      histograms_of(net, layers, samples, limits, options.device);
  for (size_t i = 0; i < ranges.size(); ++i) {
    if (!is_range(ranges[i])) continue;
    const auto levels = static_cast<size_t>(layers.activations[i].levels()) + 1;
    ranges[i] = options.method == Method::percentile
                    ? percentile_range(histograms[i], options.percentile)
                    : entropy_range(histograms[i], levels);
  }
  return ranges;
}

}  // namespace weft::quantization
