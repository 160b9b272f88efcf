#include "weft/quantization/calibration.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "weft/base/error.h"
#include "weft/tensor/compile.h"

namespace weft::quantization {
namespace {

// Compiles a step that returns `results` of each activation.
CompiledStep observing(const Net& net, size_t activations, const std::string& device,
                       std::function<std::vector<Tensor>(const Activation&)> results) {
  return {[&net, activations, results = std::move(results)](std::span<const Tensor> inputs) {
            Graph graph;
            graph.inputs.assign(inputs.begin(), inputs.end());
            graph.outputs = net(inputs);
            const Layers here = layers_of(graph);
            WEFT_ASSERT(here.activations.size() == activations, "a net has other layers now");
            std::vector<Tensor> all;
            for (const Activation& activation : here.activations)
              for (Tensor& result : results(activation)) all.push_back(std::move(result));
            return all;
          },
          {.mode = Mode::eval, .device = device}};
}

std::vector<double> largest_magnitudes(const Net& net, const Layers& layers, const Samples& samples,
                                       const std::string& device) {
  CompiledStep step =
      observing(net, layers.activations.size(), device, [](const Activation& activation) {
        Tensor largest;
        for (const Value& value : activation.values) {
          const Tensor here = max(abs(value));
          largest = largest.defined() ? maximum(largest, here) : here;
        }
        return std::vector<Tensor>{largest};
      });
  std::vector<double> ranges(layers.activations.size(), 0);
  samples([&](std::span<const Tensor> inputs) {
    const std::span<const Tensor> largest = step.run(inputs);
    for (size_t i = 0; i < ranges.size(); ++i) {
      const double here = largest[i].item();
      ranges[i] = std::isfinite(here) ? std::max(ranges[i], here) : here;
    }
  });
  return ranges;
}

std::vector<Histogram> histograms_of(const Net& net, const Layers& layers, const Samples& samples,
                                     const std::vector<double>& limits, const std::string& device) {
  CompiledStep step = observing(net, layers.activations.size(), device,
                                [](const Activation& activation) { return activation.values; });
  std::vector<Histogram> histograms(limits.begin(), limits.end());
  samples([&](std::span<const Tensor> inputs) {
    const std::span<const Tensor> values = step.run(inputs);
    size_t next = 0;
    for (size_t i = 0; i < histograms.size(); ++i)
      for (size_t use = 0; use < layers.activations[i].values.size(); ++use)
        histograms[i].add(values[next++].to_vector<float>());
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

// Most magnitudes of the first bin are zeros, which every range represents: they would hide the
// others, and count as many as the second bin's.
double entropy_range(const Histogram& histogram, size_t levels) {
  std::vector<double> bins = histogram.counts;
  bins[0] = bins[1];
  double beyond = 0, total = 0;
  for (const double count : bins) total += count;
  if (total == 0) return histogram.limit;
  double least = std::numeric_limits<double>::infinity();
  size_t best = bins.size();
  std::vector<double> sums(levels);
  std::vector<size_t> members(levels);
  for (size_t end = bins.size(); end >= levels; beyond += bins[--end]) {
    std::ranges::fill(sums, 0);
    std::ranges::fill(members, size_t{0});
    for (size_t i = 0; i < end; ++i) {
      if (bins[i] == 0) continue;
      sums[i * levels / end] += bins[i];
      ++members[i * levels / end];
    }
    double represented = 0;
    for (const double sum : sums) represented += sum;
    double divergence = 0;
    for (size_t i = 0; i < end; ++i) {
      const double p = (bins[i] + (i + 1 == end ? beyond : 0)) / total;
      if (p == 0) continue;
      const size_t level = i * levels / end;
      const double q =
          bins[i] == 0 ? 0 : sums[level] / static_cast<double>(members[level]) / represented;
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
