#include "weft/nn/rope.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "weft/base/error.h"

namespace weft::nn {
namespace {
// Frequencies below the original context's slowest wave are divided by the factor, and those
// between two wavelengths are mixed (Llama 3.1).
void scale_llama3(const RopeOptions& options, std::vector<double>& inverse) {
  const auto original = static_cast<double>(options.original_positions);
  const double low = options.low_freq_factor, high = options.high_freq_factor;
  for (double& frequency : inverse) {
    const double waves = original * frequency / (2 * std::numbers::pi);
    const double slow = frequency / options.factor;
    if (waves < low)
      frequency = slow;
    else if (waves <= high)
      frequency = std::lerp(slow, frequency, (waves - low) / (high - low));
  }
}

// YaRN divides slow frequencies by the factor, keeps fast ones, and blends linearly between.
void scale_yarn(const RopeOptions& options, int64_t dimension, RopeFrequencies& frequencies) {
  const auto original = static_cast<double>(options.original_positions);
  // Returns the (fractional) index of the frequency that turns `turns` times in the context.
  auto index_of = [&](double turns) {
    return static_cast<double>(dimension) * std::log(original / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(options.theta));
  };
  double low = index_of(options.beta_fast), high = index_of(options.beta_slow);
  if (options.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, static_cast<double>(dimension - 1));
  if (low == high) high += 0.001;
  for (size_t i = 0; i < frequencies.inverse.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    double& frequency = frequencies.inverse[i];
    frequency = std::lerp(frequency, frequency / options.factor, ramp);
  }
  auto mscale = [&](double of) {
    return options.factor <= 1 ? 1 : 0.1 * of * std::log(options.factor) + 1;
  };
  if (options.attention_factor > 0)
    frequencies.scale = options.attention_factor;
  else if (options.mscale > 0 && options.mscale_all_dim > 0)
    frequencies.scale = mscale(options.mscale) / mscale(options.mscale_all_dim);
  else
    frequencies.scale = mscale(1);
}

void scale_longrope(const RopeOptions& options, int64_t length, RopeFrequencies& frequencies) {
  const std::vector<double>& factors =
      length > options.original_positions ? options.long_factor : options.short_factor;
  std::vector<double>& inverse = frequencies.inverse;
  WEFT_CHECK(factors.size() == inverse.size(),
             "[rotary] longrope needs a factor for each of {} frequencies. Got {}.", inverse.size(),
             factors.size());
  for (size_t i = 0; i < inverse.size(); ++i) inverse[i] /= factors[i];
  const auto original = static_cast<double>(options.original_positions);
  const double factor =
      options.factor > 1 ? options.factor : static_cast<double>(options.positions) / original;
  if (options.attention_factor > 0)
    frequencies.scale = options.attention_factor;
  else if (factor > 1)
    frequencies.scale = std::sqrt(1 + std::log(factor) / std::log(original));
}
}  // namespace

RopeFrequencies rope_frequencies(const RopeOptions& options, int64_t dimension, int64_t length) {
  WEFT_CHECK(dimension % 2 == 0, "[rotary] the width of a head must be even. Got {}.", dimension);
  constexpr std::array<std::string_view, 6> known = {"default", "linear",   "dynamic",
                                                     "yarn",    "longrope", "llama3"};
  WEFT_CHECK(std::ranges::find(known, options.type) != known.end(),
             "[rotary] unknown scaling \"{}\". Known: default, linear, dynamic, yarn, longrope, "
             "llama3.",
             options.type);
  const bool has_original = options.original_positions > 0;
  WEFT_CHECK(has_original || options.type == "default" || options.type == "linear",
             "[rotary] scaling \"{}\" needs the longest context of training.", options.type);
  double theta = options.theta;
  if (options.type == "dynamic") {
    // The base grows with the length beyond the original context (NTK-aware scaling).
    const auto original = static_cast<double>(options.original_positions);
    const double reached = std::max(static_cast<double>(length), original);
    const double width = static_cast<double>(dimension);
    theta *=
        std::pow(options.factor * reached / original - (options.factor - 1), width / (width - 2));
  }
  RopeFrequencies frequencies;
  const int64_t half = dimension / 2;
  frequencies.inverse.reserve(static_cast<size_t>(half));
  for (int64_t i = 0; i < half; ++i)
    frequencies.inverse.push_back(
        std::pow(theta, -(static_cast<double>(i) / static_cast<double>(half))));
  if (options.type == "linear")
    for (double& frequency : frequencies.inverse) frequency /= options.factor;
  if (options.type == "llama3") scale_llama3(options, frequencies.inverse);
  if (options.type == "yarn") scale_yarn(options, dimension, frequencies);
  if (options.type == "longrope") scale_longrope(options, length, frequencies);
  return frequencies;
}

Rotary rotary(int64_t length, const RopeFrequencies& frequencies, DType dtype) {
  const auto half = static_cast<int64_t>(frequencies.inverse.size());
  const auto count = static_cast<size_t>(length * half);
  std::vector<double> cosines(count), sines(2 * count);
  for (int64_t position = 0; position < length; ++position)
    for (int64_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(position) * frequencies.inverse[static_cast<size_t>(i)];
      const double sine = frequencies.scale * std::sin(angle);
      cosines[static_cast<size_t>(position * half + i)] = frequencies.scale * std::cos(angle);
      sines[static_cast<size_t>(2 * position * half + i)] = -sine;
      sines[static_cast<size_t>((2 * position + 1) * half + i)] = sine;
    }
  return {constant(cosines, {length, 1, half}, dtype), constant(sines, {length, 2, half}, dtype)};
}
Rotary rotary(int64_t length, int64_t dimension, double theta, DType dtype) {
  return rotary(length, rope_frequencies({.theta = theta}, dimension, length), dtype);
}

Tensor rotate(const Tensor& x, const Rotary& by) {
  const int64_t length = by.cos.dim(-3), half = by.cos.dim(-1);
  WEFT_CHECK(x.rank() == 4 && x.dim(2) == length && x.dim(3) >= 2 * half,
             "[rotary] takes [batch, heads, {}, {}]. Got {}.", length, 2 * half,
             to_string(x.type()));
  if (x.dim(3) > 2 * half)
    return concat({rotate(slice(x, 3, 0, 2 * half), by), slice(x, 3, 2 * half, x.dim(3))}, 3);
  // A flip of the axis of halves, not a concat, fuses to one kernel, which reads the other half in
  // place.
  Tensor halves = reshape(x, {x.dim(0), x.dim(1), length, 2, half});
  return reshape(halves * by.cos + flip(halves, {3}) * by.sin, x.shape());
}

}  // namespace weft::nn
