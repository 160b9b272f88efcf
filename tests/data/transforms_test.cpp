#include "weft/data/transforms.h"

#include <numeric>
#include <set>
#include <vector>

#include <doctest/doctest.h>

#include "tests/io/helpers.h"
#include "tests/support/near.h"

using namespace weft;
using namespace weft::test;
using data::ImageTransform;
using weft::testing::near;

namespace {

std::vector<uint8_t> ramp(size_t count) {
  std::vector<uint8_t> pixels(count);
  for (size_t i = 0; i < count; ++i) pixels[i] = static_cast<uint8_t>(i + 1);
  return pixels;
}

// Returns the expected image of a shift and a mirror by definition: pad, crop, flip.
std::vector<float> padded_cut(const std::vector<uint8_t>& pixels, size_t c, size_t h, size_t w,
                              size_t padding, size_t top, size_t left, bool mirrored) {
  std::vector<float> out;
  for (size_t channel = 0; channel < c; ++channel) {
    std::vector<std::vector<int>> padded(h + 2 * padding, std::vector<int>(w + 2 * padding, 0));
    for (size_t y = 0; y < h; ++y)
      for (size_t x = 0; x < w; ++x)
        padded[y + padding][x + padding] = pixels[(channel * h + y) * w + x];
    for (size_t y = 0; y < h; ++y)
      for (size_t x = 0; x < w; ++x) {
        size_t from = mirrored ? w - 1 - x : x;
        out.push_back(static_cast<float>(padded[y + top][from + left] / 255.0));
      }
  }
  return out;
}

}  // namespace

TEST_CASE("bytes are scaled and normalised per channel") {
  std::vector<uint8_t> pixels{0, 255, 51, 102};
  std::vector<float> out(4);
  ImageTransform({2, 1, 2}, {}, {{0.5, 0.2}, {0.25, 0.1}}).apply({}, pixels.data(), out.data());
  CHECK(out[0] == near(-2));
  CHECK(out[1] == near(2));
  CHECK(out[2] == near(0));
  CHECK(out[3] == near(2));
  ImageTransform({1, 2, 2}, {}, {}).apply({}, pixels.data(), out.data());
  CHECK(out == std::vector<float>{0, 1, 0.2f, 0.4f});
}

TEST_CASE("random crops and flips are exactly those of padding, cutting and mirroring") {
  auto pixels = ramp(2 * 3 * 4);
  std::set<std::vector<float>> expected, seen;
  for (size_t top = 0; top <= 4; ++top)
    for (size_t left = 0; left <= 4; ++left)
      for (bool mirrored : {false, true})
        expected.insert(padded_cut(pixels, 2, 3, 4, 2, top, left, mirrored));
  REQUIRE(expected.size() == 50);
  ImageTransform transform({2, 3, 4}, {.random_crop = 2, .random_horizontal_flip = 0.5}, {});
  std::vector<float> out(pixels.size());
  for (int64_t index = 0; index < 1000; ++index) {
    transform.apply({.seed = 1, .epoch = 2, .index = index}, pixels.data(), out.data());
    seen.insert(out);
  }
  CHECK(seen == expected);
}

TEST_CASE("the padding is black before it is normalised, as in torchvision") {
  std::vector<uint8_t> pixels(16, 255);
  ImageTransform transform({1, 4, 4}, {.random_crop = 4}, {{0.5}, {0.5}});
  std::vector<float> out(16);
  std::set<float> values;
  for (int64_t index = 0; index < 100; ++index) {
    transform.apply({.index = index}, pixels.data(), out.data());
    values.insert(out.begin(), out.end());
  }
  CHECK(values == std::set<float>{-1, 1});
}

TEST_CASE("flips follow their probability") {
  std::vector<uint8_t> pixels{0, 255};
  std::vector<float> out(2);
  for (double probability : {0.0, 0.3, 1.0}) {
    ImageTransform transform({1, 1, 2}, {.random_horizontal_flip = probability}, {});
    int flips = 0;
    for (int64_t index = 0; index < 10'000; ++index) {
      transform.apply({.index = index}, pixels.data(), out.data());
      flips += out[0] == 1;
    }
    CHECK(flips / 10'000.0 == near(probability, 0.05));
  }
}

TEST_CASE("the augmentation of a sample depends on seed, epoch and index alone") {
  auto pixels = ramp(3 * 32 * 32);
  std::vector<float> a(pixels.size()), b(pixels.size());
  ImageTransform transform({3, 32, 32}, {.random_crop = 4, .random_horizontal_flip = 0.5}, {});
  transform.apply({1, 2, 3}, pixels.data(), a.data());
  transform.apply({1, 2, 3}, pixels.data(), b.data());
  CHECK(a == b);
  std::set<std::vector<float>> others;
  for (data::SampleKey key : {data::SampleKey{1, 2, 3}, {2, 2, 3}, {1, 3, 3}, {1, 2, 4}}) {
    transform.apply(key, pixels.data(), b.data());
    others.insert(b);
  }
  CHECK(others.size() == 4);
}

TEST_CASE("impossible transforms are refused") {
  auto error_with = [](const data::Transforms& t, const data::Normalization& n) {
    return error_of([&] { ImageTransform({1, 4, 5}, t, n); });
  };
  CHECK(error_with({.random_crop = 5}, {}) ==
        "usage: [random_crop] padding must be from 0 to 4, the image's size. Got 5.");
  CHECK(error_with({.random_horizontal_flip = 1.5}, {}) ==
        "usage: [random_horizontal_flip] the probability must be between 0 and 1. Got 1.5.");
  CHECK(error_with({}, {{0.5, 0.5}, {1, 1}}) ==
        "usage: [normalize] images have 1 channels. Got 2 means and 2 deviations.");
  CHECK(error_with({}, {{0.5}, {0}}) == "usage: [normalize] deviations must be positive. Got 0.");
}
