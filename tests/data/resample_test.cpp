// The expected pixels were written by Pillow (tests/io/pictures/write.py).
#include "weft/data/resample.h"

#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/io/helpers.h"
#include "weft/data/transforms.h"
#include "weft/io/npy.h"
#include "weft/pictures/image.h"

using namespace weft;
using namespace weft::test;
using data::Planes;

namespace {

Planes planes_of_array(const std::string& name) {
  const Tensor array = io::read_npy(fmt::format("tests/io/pictures/{}.npy", name));
  return pictures::planes_of({.height = array.dim(0),
                              .width = array.dim(1),
                              .channels = array.dim(2),
                              .pixels = array.to_vector<uint8_t>()});
}

data::Window window_of(const data::WindowOf& choose, int64_t height, int64_t width,
                       uint32_t word = 0) {
  return choose(height, width,
                [&](uint32_t) { return std::array<uint32_t, 4>{word, word, word, word}; });
}

std::vector<int64_t> bounds_of(const data::Window& w) {
  return {w.top, w.left, w.height, w.width, w.out_height, w.out_width};
}

}  // namespace

TEST_CASE("resized images have the pixels of Pillow's resize") {
  const Planes image = planes_of_array("rgb");  // 7 x 9
  for (const auto& [height, width] : {std::pair<int64_t, int64_t>{5, 6}, {20, 31}, {2, 3}, {7, 4}})
    for (const bool nearest : {false, true}) {
      INFO(height, " ", width, " ", nearest);
      const Planes resized =
          data::resample(image, window_of(data::resize(height, width, nearest), 7, 9));
      CHECK(
          resized.pixels ==
          planes_of_array(fmt::format("{}_{}x{}", nearest ? "nearest" : "bilinear", height, width))
              .pixels);
    }
}

// torchvision: Resize(5) of 7 x 9 gives int(5 * 9 / 7) = 6 columns; CenterCrop rounds a half to the
// even number.
TEST_CASE("the shorter side is resized, and the middle cut, as torchvision does") {
  using Numbers = std::vector<int64_t>;
  CHECK(bounds_of(window_of(data::resize(5), 7, 9)) == Numbers{0, 0, 7, 9, 5, 6});
  CHECK(bounds_of(window_of(data::resize(5), 9, 7)) == Numbers{0, 0, 9, 7, 6, 5});
  CHECK(bounds_of(window_of(data::center_crop(4, 4), 9, 11)) == Numbers{2, 4, 4, 4, 4, 4});
  CHECK(error_of([] { window_of(data::center_crop(4, 4), 3, 9); }) ==
        "data: [center_crop] 9 x 3 pixels have no window of 4 x 4. Hint: resize before it.");
}

TEST_CASE("random windows keep within the image, the area and the ratio") {
  for (const auto& [height, width] : {std::pair<int64_t, int64_t>{40, 60}, {1, 100}, {3, 2}})
    for (uint64_t word = 0; word < uint64_t{1} << 32; word += 0x03ffffff) {
      const data::Window w =
          window_of(data::random_resized_crop(8, 0.25), height, width, static_cast<uint32_t>(word));
      CHECK(w.top >= 0);
      CHECK(w.left >= 0);
      CHECK(w.top + w.height <= height);
      CHECK(w.left + w.width <= width);
      CHECK(w.out_height == 8);
      if (height == 40) CHECK(w.height * w.width >= 40 * 60 / 4 - 60);
    }
}
