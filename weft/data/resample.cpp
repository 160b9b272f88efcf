#include "weft/data/resample.h"

#include <algorithm>
#include <cmath>

#include "weft/base/error.h"

namespace weft::data {
namespace {

constexpr int precision = 32 - 8 - 2;  // bits of a weight's fraction, as in Pillow

// Taps are the pixels whose weighted sum is one output pixel along an axis.
struct Taps {
  int64_t first = 0;
  std::vector<int32_t> weights = {};
};

std::vector<Taps> bilinear_taps(int64_t in, int64_t out) {
  const double scale = static_cast<double>(in) / static_cast<double>(out);
  const double support = std::max(scale, 1.0), inverse = 1.0 / support;
  std::vector<Taps> all(static_cast<size_t>(out));
  std::vector<double> weights;
  for (size_t i = 0; i < all.size(); ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    const auto first = std::max<int64_t>(static_cast<int64_t>(center - support + 0.5), 0);
    const auto last = std::min<int64_t>(static_cast<int64_t>(center + support + 0.5), in);
    weights.clear();
    double sum = 0;
    for (int64_t x = first; x < last; ++x) {
      const double distance = std::abs((static_cast<double>(x) - center + 0.5) * inverse);
      sum += weights.emplace_back(std::max(1.0 - distance, 0.0));
    }
    all[i].first = first;
    for (double weight : weights)
      all[i].weights.push_back(
          static_cast<int32_t>(0.5 + (sum != 0 ? weight / sum : weight) * (1 << precision)));
  }
  return all;
}

std::vector<Taps> nearest_taps(int64_t in, int64_t out) {
  const double scale = static_cast<double>(in) / static_cast<double>(out);
  std::vector<Taps> all(static_cast<size_t>(out));
  for (size_t i = 0; i < all.size(); ++i)
    all[i] = {std::min(static_cast<int64_t>((static_cast<double>(i) + 0.5) * scale), in - 1),
              {1 << precision}};
  return all;
}

// Returns the weighted sum of pixels `stride` apart.
uint8_t sum_of(const uint8_t* pixels, int64_t stride, const Taps& taps) {
  int32_t sum = 1 << (precision - 1);
  const uint8_t* from = pixels + taps.first * stride;
  for (int32_t weight : taps.weights) {
    sum += *from * weight;
    from += stride;
  }
  return static_cast<uint8_t>(std::clamp(sum >> precision, 0, 255));
}

Planes cut(const Planes& image, const Window& window) {
  Planes part{.channels = image.channels, .height = window.height, .width = window.width};
  part.pixels.reserve(static_cast<size_t>(part.channels * part.height * part.width));
  for (int64_t c = 0; c < image.channels; ++c)
    for (int64_t y = 0; y < window.height; ++y) {
      const uint8_t* row =
          image.pixels.data() + (c * image.height + window.top + y) * image.width + window.left;
      part.pixels.insert(part.pixels.end(), row, row + window.width);
    }
  return part;
}

}  // namespace

Planes resample(const Planes& image, const Window& window) {
  WEFT_ASSERT(window.top >= 0 && window.left >= 0 && window.height > 0 && window.width > 0 &&
                  window.top + window.height <= image.height &&
                  window.left + window.width <= image.width,
              "a window is outside its image");
  Planes part = cut(image, window);
  const auto taps = window.nearest ? nearest_taps : bilinear_taps;
  if (window.out_width != part.width) {  // rows first, as in Pillow: the bytes between are rounded
    const std::vector<Taps> across = taps(part.width, window.out_width);
    Planes wide{.channels = part.channels, .height = part.height, .width = window.out_width};
    wide.pixels.reserve(static_cast<size_t>(wide.channels * wide.height * wide.width));
    for (int64_t row = 0; row < part.channels * part.height; ++row)
      for (const Taps& each : across)
        wide.pixels.push_back(sum_of(part.pixels.data() + row * part.width, 1, each));
    part = std::move(wide);
  }
  if (window.out_height == part.height) return part;
  const std::vector<Taps> down = taps(part.height, window.out_height);
  Planes high{.channels = part.channels, .height = window.out_height, .width = part.width};
  high.pixels.reserve(static_cast<size_t>(high.channels * high.height * high.width));
  for (int64_t c = 0; c < part.channels; ++c)
    for (const Taps& each : down)
      for (int64_t x = 0; x < part.width; ++x)
        high.pixels.push_back(
            sum_of(part.pixels.data() + c * part.height * part.width + x, part.width, each));
  return high;
}

}  // namespace weft::data
