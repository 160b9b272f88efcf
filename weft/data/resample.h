// Cuts and resizes images as Pillow does, bit for bit: Image.crop, then Image.resize with BILINEAR,
// which averages over all pixels below an output pixel (antialiasing), or NEAREST. Source: Pillow,
// src/libImaging/Resample.c.
#pragma once

#include <cstdint>
#include <vector>

namespace weft::data {

struct Planes {
  int64_t channels = 0, height = 0, width = 0;
  std::vector<uint8_t> pixels = {};  // [C, H, W]
};

// A Window is a rectangle of an image, within it, and the size that it gets.
struct Window {
  int64_t top = 0, left = 0, height = 0, width = 0;
  int64_t out_height = 0, out_width = 0;
  bool nearest = false;
};
Planes resample(const Planes& image, const Window& window);

}  // namespace weft::data
