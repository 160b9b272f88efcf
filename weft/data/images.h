// Loads data sets of labelled images, which are held in memory as bytes.
//
//   data::ImageDataset train = data::mnist("train");
//   for (auto [images, labels] : train.batches(128, {.shuffle = true})) ...
//     // images f32 [B, C, H, W], labels i64 [B]
//
// A data set is a handle: copies, slices and transformed ones share the pixels. Loading fails with
// a one-line Error(data) that says where files were searched, or what is wrong with one.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/host/env.h"
#include "weft/base/memory/buffer.h"
#include "weft/data/transforms.h"

namespace weft::data {

struct BatchOptions {
  bool shuffle = false;
  std::optional<bool> drop_last = {};  // a short last batch; default: yes where shuffled
  int64_t seed = 0;
  std::optional<int64_t> epoch = {};  // default: 0, 1, ... by each call that omits it
  int prefetch = 2;
};

class ImageDataset {
 public:
  struct Contents {
    std::string name;                // for messages and tables
    std::shared_ptr<Buffer> pixels;  // u8 [N, C, H, W]
    Shape image;                     // [C, H, W]
    std::vector<uint8_t> labels;     // [N]
    int64_t classes = 0;             // labels are below it
    Normalization normalization = {};
  };
  // Throws Error(data) if counts differ or a label is out of range.
  explicit ImageDataset(Contents contents);

  int64_t size() const { return last_ - first_; }
  const Shape& image_shape() const { return contents_->image; }  // [C, H, W]
  int64_t classes() const { return contents_->classes; }
  const std::string& name() const { return contents_->name; }
  const Normalization& normalization() const { return normalization_; }
  int64_t label(int64_t index) const;
  std::span<const uint8_t> pixels(int64_t index) const;  // [C, H, W]

  // Returns samples [first, last).
  ImageDataset slice(int64_t first, int64_t last) const;
  ImageDataset transform(const Transforms& transforms) const;        // replaces former ones
  ImageDataset normalize(const Normalization& normalization) const;  // replaces the former values

  std::shared_ptr<const Source> source() const;
  Batches batches(int64_t size, const BatchOptions& options = {}) const;

 private:
  std::shared_ptr<const Contents> contents_;
  std::shared_ptr<std::atomic<int64_t>> passes_;  // begun by batches()
  int64_t first_ = 0, last_ = 0;
  Transforms transforms_;
  Normalization normalization_;
};

// These load well-known data sets; `split` is "train" or "test". Files are searched in ROOT/mnist,
// ROOT/fashion-mnist or ROOT/cifar-10-binary, then in ROOT itself. Images are normalized by the
// mean and deviation of the training images. A data set is loaded once per process and folder.
ImageDataset mnist(std::string_view split, const std::string& root = data_directory());
ImageDataset fashion_mnist(std::string_view split, const std::string& root = data_directory());
// If test_batch.bin is absent, test_batch_first1000.bin (its first thousand images) is read.
ImageDataset cifar10(std::string_view split, const std::string& root = data_directory());
// KnownImages describes a well-known data set, by the name that recipes use.
struct KnownImages {
  std::string_view name, doc, folder, format;
  Normalization normalization;
  std::vector<std::string> classes;  // names, by label
};
std::span<const KnownImages> known_images();
ImageDataset image_dataset(std::string_view name, std::string_view split,
                           const std::string& root = data_directory());

// These load any other data set. IDX: u8 images [N, H, W] or [N, C, H, W], u8 labels [N]. Labels
// must be below `classes`; 0: the greatest label + 1.
ImageDataset images_from_idx(const std::string& images, const std::string& labels,
                             int64_t classes = 0);
ImageDataset images_from_cifar(const std::vector<std::string>& paths);
// Reads a folder with the file names of MNIST (format: idx) or of CIFAR-10 (format: cifar).
ImageDataset images_from_folder(std::string_view format, std::string_view split,
                                const std::string& folder, int64_t classes = 0);

}  // namespace weft::data
