// Declares a run on pictures, and pictures for it.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/support/program.h"
#include "weft/io/npy.h"
#include "weft/ops/ops.h"
#include "weft/pictures/image.h"

namespace weft::test {

inline constexpr int64_t picture_side = 6;
inline constexpr std::array<double, 3> mean{0.5, 0.25, 0}, deviation{0.5, 0.125, 1};

// Returns the pixels [H, W, C] of a picture, of which those of a class are alike.
inline pictures::Image picture(int seed) {
  pictures::Image image{.height = picture_side, .width = picture_side, .channels = 3};
  for (int64_t i = 0; i < picture_side * picture_side * 3; ++i)
    image.pixels.push_back(static_cast<uint8_t>((i * 37 + seed * 101) % 256));
  return image;
}

// Returns what a row of the model's input is, by the formula: (x / 255 - mean) / deviation.
inline void append_row(std::vector<float>& rows, const pictures::Image& image) {
  for (size_t c = 0; c < 3; ++c)
    for (size_t i = 0; i < static_cast<size_t>(picture_side * picture_side); ++i)
      rows.push_back(
          static_cast<float>((image.pixels[i * 3 + c] / 255.0 - mean[c]) / deviation[c]));
}

inline constexpr const char* transforms =
    "[{normalize: {mean: [0.5, 0.25, 0], std: [0.5, 0.125, 1]}}, random_horizontal_flip]";

struct TrainedPets : Workplace {
  TrainedPets() {
    for (int i = 0; i < 8; ++i) {
      const std::string folder = path(i % 2 == 0 ? "pets/cat" : "pets/dog");
      std::filesystem::create_directories(folder);
      pictures::write_image(fmt::format("{}/{}.png", folder, i), picture(i));
    }
    write("pets.yaml",
          fmt::format("name: pets\nmodel: {{name: mlp, config: {{hidden_sizes: [8]}}}}\n"
                      "data: {{format: image_folder, path: pets, val_split: 0.5, "
                      "transforms: {}}}\n"
                      "train: {{steps: 2, global_batch_size: 2}}\n",
                      transforms));
    const Outcome outcome = weft({"train", "pets.yaml", "--json"});
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
    std::filesystem::remove_all(path("pets"));
    std::filesystem::create_directory(path("photos"));
    std::vector<float> rows;
    for (int i = 0; i < count; ++i) {
      pictures::write_image(path(fmt::format("photos/{:02}.png", i)), picture(i + 20));
      append_row(rows, picture(i + 20));
    }
    io::write_npy(path("rows.npy"), tensor(rows, {count, 3, picture_side, picture_side}));
  }

  static constexpr int count = 40;  // more than are in memory at once
};

// Pets is a run of two steps on pictures of cats and dogs, without its data: a copy of one that is
// trained once for all tests.
struct Pets : Workplace {
  Pets() {
    static const TrainedPets trained;
    std::filesystem::copy(
        trained.folder(), folder(),
        std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks);
  }
  Tensor array(const std::string& name) const { return io::read_npy(path(name)); }
  double difference(const std::string& a, const std::string& b) const {
    return max(abs(array(a) - array(b))).item();
  }

  static constexpr int count = TrainedPets::count;
};
}  // namespace weft::test
