#include "weft/data/images.h"

#include <cmath>
#include <set>

#include <doctest/doctest.h>

#include "tests/io/helpers.h"
#include "tests/support/near.h"

using namespace weft;
using namespace weft::test;
using data::ImageDataset;
using weft::testing::near;

namespace {

std::vector<int64_t> histogram(const ImageDataset& dataset) {
  std::vector<int64_t> counts(static_cast<size_t>(dataset.classes()));
  for (int64_t i = 0; i < dataset.size(); ++i) ++counts[static_cast<size_t>(dataset.label(i))];
  return counts;
}

// Returns the mean and the standard deviation of one channel, in units of 255.
std::pair<double, double> statistics(const ImageDataset& dataset, int64_t channel) {
  int64_t area = dataset.image_shape()[1] * dataset.image_shape()[2];
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < dataset.size(); ++i)
    for (uint8_t byte : dataset.pixels(i).subspan(static_cast<size_t>(channel * area),
                                                  static_cast<size_t>(area))) {
      sum += byte;
      squares += byte * byte;
    }
  double count = static_cast<double>(dataset.size() * area), mean = sum / count / 255;
  return {mean, std::sqrt(squares / count / 255 / 255 - mean * mean)};
}

void check_normalization(const ImageDataset& dataset) {
  for (int64_t c = 0; c < dataset.image_shape()[0]; ++c) {
    auto [mean, deviation] = statistics(dataset, c);
    CHECK(std::fabs(mean - dataset.normalization().mean[static_cast<size_t>(c)]) < 6e-5);
    CHECK(std::fabs(deviation - dataset.normalization().deviation[static_cast<size_t>(c)]) < 6e-5);
  }
}

// Returns a data set whose image i is filled with byte i and labelled i mod 3.
ImageDataset small(int64_t count) {
  auto pixels = Buffer::allocate(static_cast<size_t>(count) * 4);
  std::vector<uint8_t> labels;
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t p = 0; p < 4; ++p) pixels->data[i * 4 + p] = static_cast<std::byte>(i);
    labels.push_back(static_cast<uint8_t>(i % 3));
  }
  return ImageDataset(
      {.name = "small", .pixels = pixels, .image = {1, 2, 2}, .labels = labels, .classes = 3});
}

std::string idx(std::initializer_list<int> shape, std::string_view elements, int code = 8) {
  std::string bytes = {0, 0, static_cast<char>(code), static_cast<char>(shape.size())};
  for (int extent : shape) bytes += {0, 0, 0, static_cast<char>(extent)};
  return bytes.append(elements);
}

}  // namespace

TEST_CASE("MNIST has its known counts, labels and statistics") {
  if (!has_data("mnist")) return;
  ImageDataset train = data::mnist("train"), test = data::mnist("test");
  CHECK(train.size() == 60'000);
  CHECK(test.size() == 10'000);
  CHECK(train.image_shape() == Shape{1, 28, 28});
  CHECK(histogram(train) ==
        std::vector<int64_t>{5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949});
  CHECK(histogram(test) ==
        std::vector<int64_t>{980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009});
  CHECK(std::vector{train.label(0), train.label(1), train.label(59'999)} ==
        std::vector<int64_t>{5, 0, 8});
  check_normalization(train);
}

TEST_CASE("Fashion-MNIST has its known counts, labels and statistics") {
  if (!has_data("fashion-mnist")) return;
  ImageDataset train = data::fashion_mnist("train");
  CHECK(histogram(train) == std::vector<int64_t>(10, 6000));
  CHECK(histogram(data::fashion_mnist("test")) == std::vector<int64_t>(10, 1000));
  check_normalization(train);
}

TEST_CASE("CIFAR-10 has its known counts, labels and statistics") {
  if (!has_data("cifar-10-binary")) return;
  ImageDataset train = data::cifar10("train"), test = data::cifar10("test");
  CHECK(train.image_shape() == Shape{3, 32, 32});
  CHECK(histogram(train) == std::vector<int64_t>(10, 5000));
  CHECK((test.size() == 10'000 || test.size() == 1000));
  CHECK(std::vector{train.label(0), train.label(1), test.label(0)} ==
        std::vector<int64_t>{6, 9, 3});
  check_normalization(train);
}

TEST_CASE("batches of MNIST are normalised and cover an epoch") {
  if (!has_data("mnist")) return;
  int64_t rows = 0, batches = 0, label_sum = 0;
  double sum = 0;
  for (auto [images, labels] : data::mnist("train").batches(512, {.drop_last = false})) {
    rows += images.dim(0);
    ++batches;
    for (int64_t label : labels.to_vector<int64_t>()) label_sum += label;
    for (float x : images.to_vector<float>()) sum += x;
  }
  CHECK(rows == 60'000);
  CHECK(batches == 118);
  CHECK(label_sum == 267'236);  // 0 * 5923 + 1 * 6742 + ...
  CHECK(std::fabs(sum / (60'000.0 * 784)) < 1e-3);
}

TEST_CASE("a data set is loaded once and shared") {
  if (!has_data("mnist")) return;
  CHECK(data::mnist("test").pixels(0).data() == data::mnist("test").pixels(0).data());
}

TEST_CASE("the order of samples differs by epoch and is the same in every program") {
  auto labels_of = [](data::Batches batches) {
    std::vector<float> seen;
    for (auto [images, labels] : batches)
      for (int64_t row = 0; row < images.dim(0); ++row)
        seen.push_back(images.to_vector<float>()[static_cast<size_t>(row * 4)]);
    return seen;
  };
  ImageDataset first = small(60), again = small(60);
  auto pass0 = labels_of(first.batches(20, {.shuffle = true}));
  auto pass1 = labels_of(first.batches(20, {.shuffle = true}));
  CHECK(pass0 != pass1);
  CHECK(labels_of(again.batches(20, {.shuffle = true})) == pass0);
  CHECK(labels_of(again.batches(20, {.shuffle = true})) == pass1);
  CHECK(labels_of(again.batches(20, {.shuffle = true, .epoch = 0})) == pass0);
  CHECK(labels_of(again.batches(20, {.shuffle = true, .seed = 1, .epoch = 0})) != pass0);
}

TEST_CASE("a partial last batch is dropped when shuffling unless drop_last is off") {
  auto rows = [](const data::BatchOptions& options) {
    int64_t count = 0;
    for (auto [images, labels] : small(10).batches(4, options)) count += images.dim(0);
    return count;
  };
  CHECK(rows({}) == 10);
  CHECK(rows({.shuffle = true}) == 8);
  CHECK(rows({.shuffle = true, .drop_last = false}) == 10);
  CHECK(rows({.drop_last = true}) == 8);
}

TEST_CASE("slices and transforms share the images' memory") {
  ImageDataset all = small(9);
  ImageDataset part = all.slice(3, 7).slice(1, 4);
  CHECK(part.size() == 3);
  CHECK(part.label(0) == 1);
  CHECK(part.pixels(0).data() == all.pixels(4).data());
  for (auto [images, labels] : part.normalize({{0}, {1.0 / 255}}).batches(3)) {
    CHECK(images.to_vector<float>()[0] == near(4));
    CHECK(labels.to_vector<int64_t>() == std::vector<int64_t>{1, 2, 0});
  }
  CHECK(error_of([&] { all.slice(5, 10); }) ==
        "usage: [data] slice [5, 10) is outside the 9 images.");
  CHECK(error_of([&] { all.label(9); }) == "usage: [data] image 9 is outside 0 to 8.");
}

TEST_CASE("any IDX and CIFAR files make a data set") {
  TemporaryFolder folder;
  folder.file("train-images-idx3-ubyte", idx({3, 2, 1}, "abcdef"));
  folder.file("train-labels-idx1-ubyte", idx({3}, {"\0\4\1", 3}));
  ImageDataset read = data::images_from_folder("idx", "train", folder.path());
  CHECK(read.size() == 3);
  CHECK(read.image_shape() == Shape{1, 2, 1});
  CHECK(read.classes() == 5);
  CHECK(read.pixels(2)[1] == 'f');
  ImageDataset colour = data::images_from_idx(folder.file("c", idx({3, 2, 1, 1}, "abcdef")),
                                              folder.file("train-labels-idx1-ubyte"));
  CHECK(colour.image_shape() == Shape{2, 1, 1});
  ImageDataset cifar = data::images_from_cifar({folder.file("1", "\x07" + std::string(3072, 'x')),
                                                folder.file("2", "\x09" + std::string(3072, 'y'))});
  CHECK(cifar.label(1) == 9);
  CHECK(cifar.pixels(1)[3071] == 'y');
}

TEST_CASE("mismatched image and label files are refused") {
  TemporaryFolder folder;
  auto images = folder.file("images", idx({3, 1, 1}, "abc"));
  auto labels = folder.file("labels", idx({2}, "ab"));
  auto words = folder.file("words", idx({1, 1, 1}, "abcd", 0x0c));
  CHECK(error_of([&] { data::images_from_idx(images, labels); }) ==
        "data: [data] " + images + " has 3 images, but " + labels + " has 2 labels.");
  CHECK(error_of([&] { data::images_from_idx(labels, labels); }) ==
        "data: [data] " + labels + ": images are u8 [N, H, W] or u8 [N, C, H, W]. Got u8[2].");
  CHECK(error_of([&] { data::images_from_idx(words, labels); }) ==
        "data: [data] " + words +
            ": images are u8 [N, H, W] or u8 [N, C, H, W]. Got i32[1, 1, 1].");
  CHECK(error_of([&] { data::images_from_idx(images, images); }) ==
        "data: [data] " + images + ": labels are u8 [N]. Got u8[3, 1, 1].");
  CHECK(error_of([] {
          ImageDataset({.name = "x",
                        .pixels = Buffer::allocate(4),
                        .image = {1, 2, 2},
                        .labels = {3},
                        .classes = 3});
        }) == "data: [data] x: label 3 of image 0 is outside 0 to 2.");
  CHECK(error_of([] {
          ImageDataset({.name = "x",
                        .pixels = Buffer::allocate(4),
                        .image = {1, 2, 2},
                        .labels = {1, 2},
                        .classes = 3});
        }) == "data: [data] x: 2 labels, but 1 images of [1, 2, 2].");
}

TEST_CASE("missing files are named with the folders that were searched") {
  TemporaryFolder folder;
  std::string root = folder.path();
  CHECK(error_of([&] { data::mnist("train", root); }) ==
        "data: [data] mnist needs train-images-idx3-ubyte or train-images-idx3-ubyte.gz, which is "
        "neither in " +
            root + "/mnist nor in " + root +
            ". Hint: set data.path or WEFT_DATA_DIR to the folder that holds mnist/.");
  CHECK(error_of([&] { data::images_from_folder("cifar", "train", root); }) ==
        "data: [data] train of format cifar needs data_batch_1.bin, which is not in " + root + ".");
  CHECK(error_of([&] { data::mnist("validation", root); }) ==
        "usage: [data] unknown split 'validation'. Known: train, test.");
  CHECK(error_of([&] { data::image_dataset("imagenet", "train", root); }) ==
        "usage: [data] unknown data set 'imagenet'. Known: mnist, fashion-mnist, cifar10.");
  CHECK(error_of([&] { data::images_from_folder("png", "train", root); }) ==
        "usage: [data] unknown format of images 'png'. Known: idx, cifar.");
}

TEST_CASE("files are also found in the root of the data folder") {
  TemporaryFolder folder;
  folder.file("t10k-images-idx3-ubyte", idx({1, 1, 1}, "a"));
  folder.file("t10k-labels-idx1-ubyte", idx({1}, "\x03"));
  CHECK(data::mnist("test", folder.path()).label(0) == 3);
}
