#include "weft/data/synthetic.h"

#include <array>
#include <vector>

#include "weft/base/error.h"
#include "weft/data/random.h"

namespace weft::data {
namespace {

class Synthetic : public Source {
 public:
  Synthetic(std::string_view split, const SyntheticOptions& options) : options_(options) {
    if (split != "train" && split != "test")
      throw Error(ErrorKind::usage, "[data] unknown split '{}'. Known: train, test.", split);
    WEFT_CHECK(options.classes > 0 && options.size > 0,
               "[data] random samples need classes and a size above 0. Got {} and {}.",
               options.classes, options.size);
    epoch_ = split == "train" ? 0 : 1;
  }
  int64_t size() const override { return options_.size; }

 protected:
  // The split stands for the epoch: every pass sees the same samples.
  std::array<uint32_t, 4> words(int64_t index, uint32_t draw) const {
    return random_words(Choice::synthetic, options_.seed, epoch_, index, draw);
  }
  std::array<uint32_t, 4> words_of_class(int64_t label, uint32_t draw) const {
    return random_words(Choice::pattern, options_.seed, 0, label, draw);
  }
  int64_t some_class(uint32_t high, uint32_t low) const {
    return below(options_.classes, high, low);
  }

  SyntheticOptions options_;

 private:
  int64_t epoch_;
};

class RandomImages : public Synthetic {
 public:
  RandomImages(std::string_view split, const Shape& image, const SyntheticOptions& options)
      : Synthetic(split, options), image_(image) {
    WEFT_CHECK(image.size() == 3 && element_count(image) > 0,
               "[data] images are [C, H, W]. Got {}.", to_string(image));
  }
  Type input_type() const override { return {DType::f32, image_}; }
  Shape label_shape() const override { return {}; }
  void write(const SampleKey& key, std::byte* input, int64_t* labels) const override {
    auto first = words(key.index, 0);
    *labels = some_class(first[0], first[1]);
    write_noise(key.index, reinterpret_cast<float*>(input));
    add_pattern(*labels, reinterpret_cast<float*>(input));
  }

 private:
  // Writes noise in [-0.5, 0.5), from one random byte per pixel.
  void write_noise(int64_t index, float* pixels) const {
    int64_t count = element_count(image_);
    std::array<uint32_t, 4> bits{};
    for (int64_t i = 0; i < count; ++i) {
      if (i % 16 == 0) bits = words(index, static_cast<uint32_t>(1 + i / 16));
      uint32_t byte = bits[static_cast<size_t>(i % 16 / 4)] >> (8 * (i % 4)) & 255;
      pixels[i] = static_cast<float>(byte) * 0x1p-8f - 0.5f;
    }
  }
  // Adds plus or minus 0.5 in each cell of an 8 x 8 grid, by a bit of the class's words.
  void add_pattern(int64_t label, float* pixels) const {
    constexpr int64_t cells = 8;
    for (int64_t c = 0; c < image_[0]; ++c) {
      auto bits = words_of_class(label, static_cast<uint32_t>(c));
      for (int64_t y = 0; y < image_[1]; ++y)
        for (int64_t x = 0; x < image_[2]; ++x) {
          int64_t cell = y * cells / image_[1] * cells + x * cells / image_[2];
          bool up = (bits[static_cast<size_t>(cell / 32)] >> (cell % 32) & 1) != 0;
          *pixels++ += up ? 0.5f : -0.5f;
        }
    }
  }

  Shape image_;
};

class RandomTokens : public Synthetic {
 public:
  RandomTokens(std::string_view split, int64_t seq_len, const SyntheticOptions& options)
      : Synthetic(split, options), seq_len_(seq_len) {
    WEFT_CHECK(seq_len > 0, "[data] seq_len must be positive. Got {}.", seq_len);
  }
  Type input_type() const override { return {DType::i64, {seq_len_}}; }
  Shape label_shape() const override { return options_.labels > 0 ? Shape{} : Shape{seq_len_}; }
  void write(const SampleKey& key, std::byte* input, int64_t* labels) const override {
    constexpr int64_t steps = 4, in_a_draw = 64;  // steps of two bits each
    auto* inputs = reinterpret_cast<int64_t*>(input);
    auto first = words(key.index, 0), bits = first;
    int64_t token = some_class(first[0], first[1]);
    const int64_t label = below(options_.labels, first[2]), factor = 5 + label;
    if (options_.labels > 0) *labels = label;
    for (int64_t i = 0; i < seq_len_; ++i) {
      int64_t at = i % in_a_draw;
      if (at == 0) bits = words(key.index, static_cast<uint32_t>(1 + i / in_a_draw));
      inputs[i] = token;
      uint32_t step = bits[static_cast<size_t>(at / 16)] >> (2 * (at % 16)) & (steps - 1);
      token = (factor * token + step) % options_.classes;
      if (options_.labels == 0) labels[i] = token;
    }
  }

 private:
  int64_t seq_len_;
};

}  // namespace

std::shared_ptr<const Source> random_images(std::string_view split, const Shape& image,
                                            const SyntheticOptions& options) {
  return std::make_shared<RandomImages>(split, image, options);
}
std::shared_ptr<const Source> random_tokens(std::string_view split, int64_t seq_len,
                                            const SyntheticOptions& options) {
  return std::make_shared<RandomTokens>(split, seq_len, options);
}

}  // namespace weft::data
