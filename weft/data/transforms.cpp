#include "weft/data/transforms.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "weft/base/error.h"
#include "weft/data/random.h"

namespace weft::data {
namespace {

double uniform(uint32_t word) { return word * 0x1p-32; }  // in [0, 1)

// Returns half of a difference, ties to even, as Python's round().
int64_t half(int64_t difference) {
  return static_cast<int64_t>(std::nearbyint(static_cast<double>(difference) / 2));
}

}  // namespace

WindowOf resize(int64_t height, int64_t width, bool nearest) {
  return [=](int64_t from_height, int64_t from_width, const Draw&) {
    Window window{.height = from_height,
                  .width = from_width,
                  .out_height = height,
                  .out_width = width,
                  .nearest = nearest};
    if (width == 0) {
      const auto& [less, more] = std::minmax(from_height, from_width);
      const int64_t longer = height * more / less;
      window.out_height = from_height <= from_width ? height : longer;
      window.out_width = from_height <= from_width ? longer : height;
    }
    constexpr int64_t most = int64_t{1} << 28;
    if (window.out_height > most / window.out_width)
      throw Error(ErrorKind::data, "[resize] {} x {} pixels would become {} x {}, over {}.",
                  from_width, from_height, window.out_width, window.out_height, most);
    return window;
  };
}

WindowOf center_crop(int64_t height, int64_t width) {
  return [=](int64_t from_height, int64_t from_width, const Draw&) {
    if (from_height < height || from_width < width)
      throw Error(ErrorKind::data,
                  "[center_crop] {} x {} pixels have no window of {} x {}. Hint: resize before it.",
                  from_width, from_height, width, height);
    return Window{
        half(from_height - height), half(from_width - width), height, width, height, width};
  };
}

WindowOf random_resized_crop(int64_t size, double least_share) {
  return [=](int64_t height, int64_t width, const Draw& draw) {
    const double area = static_cast<double>(height) * static_cast<double>(width);
    const double least = std::log(3.0 / 4), most = std::log(4.0 / 3);
    for (uint32_t attempt = 1; attempt <= 10; ++attempt) {
      const auto words = draw(attempt);
      const double target = area * (least_share + (1 - least_share) * uniform(words[0]));
      const double ratio = std::exp(least + (most - least) * uniform(words[1]));
      const auto w = static_cast<int64_t>(std::nearbyint(std::sqrt(target * ratio)));
      const auto h = static_cast<int64_t>(std::nearbyint(std::sqrt(target / ratio)));
      if (w < 1 || h < 1 || w > width || h > height) continue;
      return Window{
          below(height - h + 1, words[2]), below(width - w + 1, words[3]), h, w, size, size};
    }
    // No attempt fits: the middle, of the nearest ratio.
    const auto rounded = [](int64_t side, double ratio) {
      return static_cast<int64_t>(std::nearbyint(static_cast<double>(side) * ratio));
    };
    const int64_t w = std::clamp<int64_t>(rounded(height, 4.0 / 3), 1, width);
    const int64_t h = std::clamp<int64_t>(rounded(width, 4.0 / 3), 1, height);
    return Window{(height - h) / 2, (width - w) / 2, h, w, size, size};
  };
}

ImageTransform::ImageTransform(const Shape& shape, const Transforms& transforms,
                               const Normalization& normalization)
    : transforms_(transforms) {
  WEFT_CHECK(shape.size() == 3, "[transform] images are [C, H, W]. Got {}.", to_string(shape));
  from_ = shape_ = shape;
  const Draw nothing = [](uint32_t) { return std::array<uint32_t, 4>{}; };
  for (const WindowOf& window_of : transforms.windows) {
    const Window window = window_of(shape_[1], shape_[2], nothing);
    shape_ = {shape_[0], window.out_height, window.out_width};
  }
  channels_ = shape_[0], height_ = shape_[1], width_ = shape_[2];
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

Planes ImageTransform::through_windows(const SampleKey& key, Planes image) const {
  for (size_t i = 0; i < transforms_.windows.size(); ++i) {
    // write() uses draw 0; window i has the draws from 1000 i on, and calls begin at 1.
    const Draw draw = [&](uint32_t call) {
      return random_words(Choice::augmentation, key.seed, key.epoch, key.index,
                          static_cast<uint32_t>(i) * 1000 + call);
    };
    image = resample(image, transforms_.windows[i](image.height, image.width, draw));
  }
  return image;
}

void ImageTransform::apply(const SampleKey& key, Planes image, float* out) const {
  image = through_windows(key, std::move(image));
  if (image.height != height_ || image.width != width_)
    throw Error(ErrorKind::data,
                "[transform] the image has {} x {} pixels where others have {} x {}. Hint: "
                "data.transforms: [{{resize: {}}}, {{center_crop: {}}}].",
                image.width, image.height, width_, height_, std::min(width_, height_),
                std::min(width_, height_));
  write(key, image.pixels.data(), out);
}

void ImageTransform::apply(const SampleKey& key, const uint8_t* pixels, float* out) const {
  if (transforms_.windows.empty()) return write(key, pixels, out);
  Planes image{.channels = from_[0],
               .height = from_[1],
               .width = from_[2],
               .pixels = {pixels, pixels + element_count(from_)}};
  apply(key, std::move(image), out);
}

void ImageTransform::write(const SampleKey& key, const uint8_t* pixels, float* out) const {
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
