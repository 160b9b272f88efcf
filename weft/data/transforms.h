// Transforms images between their bytes and a batch.
//
// The order is: windows, each cut and resized in turn; random crop (the bytes padded with 0, that
// is black, on every side), random horizontal flip, then scaling to [0, 1] and normalization. Each
// gives the result of torchvision's transform of the same name on a Pillow image. The choices for a
// sample are a function of (seed, epoch, index).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "weft/base/numbers/shape.h"
#include "weft/data/loader.h"
#include "weft/data/resample.h"

namespace weft::data {

// Normalization is (x / 255 - mean) / deviation per channel; empty means x / 255.
struct Normalization {
  std::vector<double> mean = {}, deviation = {};
};

// A WindowOf chooses the window of an image of any size; the same call of `draw` gives the same
// four random words. Throws Error(data) for an image that is too small for the window.
using Draw = std::function<std::array<uint32_t, 4>(uint32_t call)>;
using WindowOf = std::function<Window(int64_t height, int64_t width, const Draw& draw)>;
// Returns the whole image. `width` 0: the shorter side becomes `height`, the other keeps the ratio.
WindowOf resize(int64_t height, int64_t width = 0, bool nearest = false);
WindowOf center_crop(int64_t height, int64_t width);
// Returns a window of a random share of the image's area, in [least_share, 1], and a random ratio
// of width to height, in [3/4, 4/3], resized to size x size pixels.
WindowOf random_resized_crop(int64_t size, double least_share = 0.08);

struct Transforms {
  int64_t random_crop = 0;             // pixels of padding; a window of the image's size is cut out
  double random_horizontal_flip = 0;   // probability
  std::vector<WindowOf> windows = {};  // cut in this order, before the other transforms
};

class ImageTransform {
 public:
  // `shape` is the shape [C, H, W] of an image before all transforms.
  ImageTransform(const Shape& shape, const Transforms& transforms,
                 const Normalization& normalization);

  const Shape& shape() const { return shape_; }  // [C, H, W] after all transforms
  // Maps pixels u8 [C, H, W] to out f32 of shape().
  void apply(const SampleKey& key, const uint8_t* pixels, float* out) const;
  // Does the same for an image of any size. Throws Error(data) if its windows have another size
  // than shape().
  void apply(const SampleKey& key, Planes image, float* out) const;

 private:
  Planes through_windows(const SampleKey& key, Planes image) const;
  void write(const SampleKey& key, const uint8_t* pixels, float* out) const;
  void write_row(const uint8_t* row, const float* table, int64_t shift, bool mirrored,
                 float* out) const;

  Shape from_, shape_;
  int64_t channels_, height_, width_;  // of shape_
  Transforms transforms_;
  std::vector<float> tables_;  // [C, 256]: the result of each byte
};

}  // namespace weft::data
