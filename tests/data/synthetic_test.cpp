#include "weft/data/synthetic.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

using namespace weft;

namespace {
struct ImageSample {
  std::vector<float> pixels;
  int64_t label = -1;
};
ImageSample image(const data::Source& source, const data::SampleKey& key) {
  ImageSample sample{std::vector<float>(static_cast<size_t>(source.input_type().elements()))};
  source.write(key, reinterpret_cast<std::byte*>(sample.pixels.data()), &sample.label);
  return sample;
}
struct TokenSample {
  std::vector<int64_t> inputs, labels;
};
TokenSample tokens(const data::Source& source, const data::SampleKey& key) {
  auto length = static_cast<size_t>(source.input_type().elements());
  TokenSample sample{std::vector<int64_t>(length), std::vector<int64_t>(length)};
  source.write(key, reinterpret_cast<std::byte*>(sample.inputs.data()), sample.labels.data());
  return sample;
}
}  // namespace

TEST_CASE("a random sample is a function of seed, split and index and not of the epoch") {
  auto source = data::random_images("train", {3, 17, 20}, {.classes = 7, .size = 50, .seed = 3});
  CHECK(source->size() == 50);
  CHECK(source->input_type() == Type{DType::f32, {3, 17, 20}});
  ImageSample first = image(*source, {.index = 4});
  CHECK(image(*source, {.seed = 9, .epoch = 2, .index = 4}).pixels == first.pixels);
  CHECK(image(*source, {.index = 5}).pixels != first.pixels);
  auto other_seed = data::random_images("train", {3, 17, 20}, {.classes = 7, .seed = 4});
  auto test = data::random_images("test", {3, 17, 20}, {.classes = 7, .seed = 3});
  CHECK(image(*other_seed, {.index = 4}).pixels != first.pixels);
  CHECK(image(*test, {.index = 4}).pixels != first.pixels);
}

TEST_CASE("random images are noisy patterns of their classes, in training and test alike") {
  data::SyntheticOptions options{.classes = 3, .size = 400};
  std::vector<std::vector<double>> means(6, std::vector<double>(3 * 16 * 16));
  std::vector<int> counts(6);
  for (size_t split = 0; split < 2; ++split) {
    auto source = data::random_images(split == 0 ? "train" : "test", {3, 16, 16}, options);
    for (int64_t i = 0; i < source->size(); ++i) {
      ImageSample sample = image(*source, {.index = i});
      REQUIRE((sample.label >= 0 && sample.label < 3));
      size_t group = 3 * split + static_cast<size_t>(sample.label);
      ++counts[group];
      for (size_t p = 0; p < sample.pixels.size(); ++p) {
        REQUIRE((sample.pixels[p] >= -1 && sample.pixels[p] < 1));
        means[group][p] += static_cast<double>(sample.pixels[p]);
      }
    }
  }
  int differing = 0;
  for (size_t group = 0; group < 6; ++group) {
    CHECK(counts[group] > 90);
    for (size_t p = 0; p < means[group].size(); ++p) {
      double mean = means[group][p] / counts[group];
      CHECK(std::abs(std::abs(mean) - 0.5) < 0.15);  // the noise has mean zero
      CHECK(mean * means[group % 3][p] > 0);         // the same class as in training
      if (group < 3) differing += mean * means[(group + 1) % 3][p] < 0;  // another class
    }
  }
  CHECK(differing > 3 * 768 / 4);
}

TEST_CASE("the noise of random images is uniform in [-0.5, 0.5) and independent between pixels") {
  auto source = data::random_images("train", {1, 16, 16}, {.classes = 1, .size = 100});
  double squares = 0, products = 0, count = 0;
  for (int64_t i = 0; i < source->size(); ++i) {
    const std::vector<float> pixels = image(*source, {.index = i}).pixels;
    auto noise = [&](size_t p) { return pixels[p] > 0 ? pixels[p] - 0.5 : pixels[p] + 0.5; };
    for (size_t p = 1; p < pixels.size(); ++p, ++count) {
      squares += noise(p) * noise(p);
      products += noise(p) * noise(p - 1);
    }
  }
  CHECK(std::abs(squares / count - 1.0 / 12) < 0.004);
  CHECK(std::abs(products / count) < 0.004);
}

TEST_CASE("the class label of random tokens sets the step of their walk") {
  for (const int64_t labels : {1, 3}) {
    auto source = data::random_tokens("test", 30, {.classes = 101, .labels = labels, .size = 60});
    CHECK(source->label_shape() == Shape{});
    std::vector<int> counts(static_cast<size_t>(labels));
    for (int64_t i = 0; i < source->size(); ++i) {
      std::vector<int64_t> inputs(30);
      int64_t label = -1;
      source->write({.index = i}, reinterpret_cast<std::byte*>(inputs.data()), &label);
      REQUIRE((label >= 0 && label < labels));
      ++counts[static_cast<size_t>(label)];
      for (size_t j = 0; j + 1 < inputs.size(); ++j)
        CHECK((inputs[j + 1] + 101 - (5 + label) * inputs[j] % 101) % 101 < 4);
    }
    for (int count : counts) CHECK(count > 10);
  }
}

TEST_CASE("random tokens without a class are labelled with the next tokens") {
  auto source = data::random_tokens("train", 200, {.classes = 1009, .size = 20});
  CHECK(source->label_shape() == Shape{200});
  std::vector<int> steps(4);
  for (int64_t i = 0; i < source->size(); ++i) {
    auto [inputs, labels] = tokens(*source, {.index = i});
    for (size_t j = 0; j < inputs.size(); ++j) {
      REQUIRE((inputs[j] >= 0 && inputs[j] < 1009));
      if (j + 1 < inputs.size()) REQUIRE(labels[j] == inputs[j + 1]);
      int64_t step = (labels[j] - 5 * inputs[j] % 1009 + 1009) % 1009;
      REQUIRE(step < 4);
      ++steps[static_cast<size_t>(step)];
    }
  }
  for (int count : steps) CHECK(std::abs(count - 1000) < 150);
}
