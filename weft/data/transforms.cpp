#include "weft/data/transforms.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/data/random.h"

namespace weft::data {

ImageTransform::ImageTransform(const Shape& shape, const Transforms& transforms,
                               const Normalization& normalization)
    : transforms_(transforms) {
  WEFT_CHECK(shape.size() == 3, "[transform] images are [C, H, W]. Got {}.", to_string(shape));
  channels_ = shape[0], height_ = shape[1], width_ = shape[2];
  WEFT_CHECK(transforms.random_crop >= 0 && transforms.random_crop <= std::min(height_, width_),
             "[random_crop] padding must be from 0 to {}, the image's size. Got {}.",
             std::min(height_, width_), transforms.random_crop);
  double flip = transforms.random_horizontal_flip;
  WEFT_CHECK(flip >= 0 && flip <= 1,
             "[random_horizontal_flip] the probability must be between 0 and 1. Got {}.", flip);
  const auto& [mean, deviation] = normalization;
  bool plain = mean.empty() && deviation.empty();
  auto channels = static_cast<size_t>(channels_);
  WEFT_CHECK(plain || (mean.size() == channels && deviation.size() == channels),
             "[normalize] images have {} channels. Got {} means and {} deviations.", channels_,
             mean.size(), deviation.size());
  for (double d : deviation)
    WEFT_CHECK(d > 0, "[normalize] deviations must be positive. Got {}.", d);
  for (size_t c = 0; c < channels; ++c)
    for (int byte = 0; byte < 256; ++byte)
      tables_.push_back(
          static_cast<float>(plain ? byte / 255.0 : (byte / 255.0 - mean[c]) / deviation[c]));
}

void ImageTransform::apply(const SampleKey& key, const uint8_t* pixels, float* out) const {
  int64_t padding = transforms_.random_crop, across = 0, down = 0;
  bool mirrored = false;
  if (padding > 0 || transforms_.random_horizontal_flip > 0) {
    auto words = random_words(Choice::augmentation, key.seed, key.epoch, key.index);
    down = below(2 * padding + 1, words[0]) - padding;
    across = below(2 * padding + 1, words[1]) - padding;
    mirrored = words[2] * 0x1p-32 < transforms_.random_horizontal_flip;
  }
  bool moved = down != 0 || across != 0 || mirrored;
  for (int64_t c = 0; c < channels_; ++c) {
    const float* table = tables_.data() + c * 256;
    if (!moved) {
      const uint8_t* plane = pixels + c * height_ * width_;
      out =
          std::transform(plane, plane + height_ * width_, out, [&](uint8_t x) { return table[x]; });
      continue;
    }
    for (int64_t y = 0; y < height_; ++y, out += width_) {
      int64_t from = y + down;
      if (from < 0 || from >= height_)
        std::fill(out, out + width_, table[0]);
      else
        write_row(pixels + (c * height_ + from) * width_, table, across, mirrored, out);
    }
  }
}

// Writes out[x] = row[x + shift], black beyond the row, then mirrors it if asked.
void ImageTransform::write_row(const uint8_t* row, const float* table, int64_t shift, bool mirrored,
                               float* out) const {
  int64_t first = std::max<int64_t>(0, -shift), last = std::min(width_, width_ - shift);
  std::fill(out, out + first, table[0]);
  for (int64_t x = first; x < last; ++x) out[x] = table[row[x + shift]];
  std::fill(out + last, out + width_, table[0]);
  if (mirrored) std::reverse(out, out + width_);
}

}  // namespace weft::data
