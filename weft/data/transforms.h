// Transforms images between their bytes and a batch.
//
// The order of the transforms is torchvision's: random crop (the bytes padded with 0, that is
// black, on every side), random horizontal flip, then scaling to [0, 1] and normalization. The
// choices for a sample are a function of (seed, epoch, index).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "weft/base/shape.h"
#include "weft/data/loader.h"

namespace weft::data {

// Normalization is (x / 255 - mean) / deviation per channel; empty means x / 255.
struct Normalization {
  std::vector<double> mean = {}, deviation = {};
};

struct Transforms {
  int64_t random_crop = 0;            // pixels of padding; a window of the image's size is cut out
  double random_horizontal_flip = 0;  // probability
};

class ImageTransform {
 public:
  // `shape` is [C, H, W].
  ImageTransform(const Shape& shape, const Transforms& transforms,
                 const Normalization& normalization);

  // Maps pixels u8 [C, H, W] to out f32 [C, H, W].
  void apply(const SampleKey& key, const uint8_t* pixels, float* out) const;

 private:
  void write_row(const uint8_t* row, const float* table, int64_t shift, bool mirrored,
                 float* out) const;

  int64_t channels_, height_, width_;
  Transforms transforms_;
  std::vector<float> tables_;  // [C, 256]: the result of each byte
};

}  // namespace weft::data
