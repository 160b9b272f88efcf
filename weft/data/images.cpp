#include "weft/data/images.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/logging.h"
#include "weft/base/numbers/hash.h"
#include "weft/io/cifar.h"
#include "weft/io/files.h"
#include "weft/io/idx.h"

namespace weft::data {
namespace {

namespace fs = std::filesystem;
using Contents = ImageDataset::Contents;

class ImageSource : public Source {
 public:
  ImageSource(std::shared_ptr<const Contents> contents, int64_t first, int64_t last,
              const Transforms& transforms, const Normalization& normalization)
      : contents_(std::move(contents)),
        first_(first),
        last_(last),
        image_bytes_(element_count(contents_->image)),
        transform_(contents_->image, transforms, normalization) {}

  int64_t size() const override { return last_ - first_; }
  Type input_type() const override { return {DType::f32, transform_.shape()}; }
  Shape label_shape() const override { return {}; }
  size_t bytes() const override { return static_cast<size_t>(size() * (image_bytes_ + 1)); }
  uint64_t fingerprint() const override {
    const auto count = static_cast<size_t>(size());
    const std::span labels =
        std::span(contents_->labels).subspan(static_cast<size_t>(first_), count);
    return hash_combine(hash_bytes(pixels(0), count * static_cast<size_t>(image_bytes_)),
                        hash_bytes(labels.data(), labels.size_bytes()));
  }
  void write(const SampleKey& key, std::byte* input, int64_t* labels) const override {
    transform_.apply(key, pixels(key.index), reinterpret_cast<float*>(input));
    *labels = contents_->labels[static_cast<size_t>(first_ + key.index)];
  }
  void expect(int64_t index) const override {
    const uint8_t* bytes = pixels(index);
    for (int64_t i = 0; i < image_bytes_; i += buffer_alignment) __builtin_prefetch(bytes + i);
  }

 private:
  const uint8_t* pixels(int64_t index) const {
    const auto* all = reinterpret_cast<const uint8_t*>(contents_->pixels->data);
    return all + (first_ + index) * image_bytes_;
  }

  std::shared_ptr<const Contents> contents_;
  int64_t first_, last_, image_bytes_;
  ImageTransform transform_;
};

// Files holds the paths of the files of one split, or the name of a missing file.
struct Files {
  std::vector<std::string> paths;
  std::string missing;  // empty if no file is missing
};

// Adds the first of `names` that exists in `folder`.
void add_file(Files& files, const std::string& folder, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    std::string path = (fs::path(folder) / name).string();
    if (!io::exists(path)) continue;
    files.paths.push_back(path);
    return;
  }
  if (files.missing.empty()) files.missing = fmt::format("{}", fmt::join(names, " or "));
}

Files find_files(std::string_view format, std::string_view split, const std::string& folder) {
  if (split != "train" && split != "test")
    throw Error(ErrorKind::usage, "[data] unknown split '{}'. Known: train, test.", split);
  Files files;
  if (format == "idx") {
    for (const char* part : {"images-idx3-ubyte", "labels-idx1-ubyte"}) {
      std::string name = fmt::format("{}-{}", split == "train" ? "train" : "t10k", part);
      add_file(files, folder, {name, name + ".gz"});
    }
  } else if (format == "cifar") {
    if (split == "test")
      add_file(files, folder, {"test_batch.bin", "test_batch_first1000.bin"});
    else
      for (int i = 1; i <= 5; ++i) add_file(files, folder, {fmt::format("data_batch_{}.bin", i)});
  } else {
    throw Error(ErrorKind::usage, "[data] unknown format of images '{}'. Known: idx, cifar.",
                format);
  }
  return files;
}

ImageDataset read_files(std::string_view format, const Files& files, int64_t classes) {
  return format == "idx" ? images_from_idx(files.paths[0], files.paths[1], classes)
                         : images_from_cifar(files.paths);
}

const KnownImages& find_known(std::string_view name) {
  std::vector<std::string_view> names;
  for (const KnownImages& known : known_images()) {
    if (known.name == name) return known;
    names.push_back(known.name);
  }
  throw Error(ErrorKind::usage, "[data] unknown data set '{}'. Known: {}.", name,
              fmt::join(names, ", "));
}

ImageDataset load_known(const KnownImages& known, std::string_view split, const std::string& root) {
  std::string own = (fs::path(root) / known.folder).string();
  Files files = find_files(known.format, split, own);
  if (!files.missing.empty()) {
    Files here = find_files(known.format, split, root);
    if (!here.missing.empty())
      throw Error(ErrorKind::data,
                  "[data] {} needs {}, which is neither in {} nor in {}. Hint: set data.path or "
                  "WEFT_DATA_DIR to the folder that holds {}/.",
                  known.name, files.missing, own, root, known.folder);
    files = std::move(here);
  }
  return read_files(known.format, files, std::ssize(known.classes)).normalize(known.normalization);
}

}  // namespace

ImageDataset::ImageDataset(Contents contents)
    : passes_(std::make_shared<std::atomic<int64_t>>(0)), normalization_(contents.normalization) {
  WEFT_CHECK(contents.image.size() == 3, "[data] images are [C, H, W]. Got {}.",
             to_string(contents.image));
  auto pixels = static_cast<size_t>(element_count(contents.image));
  last_ = static_cast<int64_t>(contents.labels.size());
  if (contents.pixels->bytes != pixels * contents.labels.size())
    throw Error(ErrorKind::data, "[data] {}: {} labels, but {} images of {}.", contents.name, last_,
                contents.pixels->bytes / std::max<size_t>(pixels, 1), to_string(contents.image));
  for (size_t i = 0; i < contents.labels.size(); ++i)
    if (contents.labels[i] >= contents.classes)
      throw Error(ErrorKind::data, "[data] {}: label {} of image {} is outside 0 to {}.",
                  contents.name, contents.labels[i], i, contents.classes - 1);
  contents_ = std::make_shared<const Contents>(std::move(contents));
}

int64_t ImageDataset::label(int64_t index) const {
  WEFT_CHECK(index >= 0 && index < size(), "[data] image {} is outside 0 to {}.", index,
             size() - 1);
  return contents_->labels[static_cast<size_t>(first_ + index)];
}

std::span<const uint8_t> ImageDataset::pixels(int64_t index) const {
  WEFT_CHECK(index >= 0 && index < size(), "[data] image {} is outside 0 to {}.", index,
             size() - 1);
  auto count = static_cast<size_t>(element_count(contents_->image));
  const auto* all = reinterpret_cast<const uint8_t*>(contents_->pixels->data);
  return {all + static_cast<size_t>(first_ + index) * count, count};
}

ImageDataset ImageDataset::slice(int64_t first, int64_t last) const {
  WEFT_CHECK(first >= 0 && first <= last && last <= size(),
             "[data] slice [{}, {}) is outside the {} images.", first, last, size());
  ImageDataset part = *this;
  part.passes_ = std::make_shared<std::atomic<int64_t>>(0);
  part.first_ = first_ + first;
  part.last_ = first_ + last;
  return part;
}

ImageDataset ImageDataset::transform(const Transforms& transforms) const {
  ImageDataset other = *this;
  other.transforms_ = transforms;
  return other;
}

ImageDataset ImageDataset::normalize(const Normalization& normalization) const {
  ImageDataset other = *this;
  other.normalization_ = normalization;
  return other;
}

std::shared_ptr<const Source> ImageDataset::source() const {
  return std::make_shared<ImageSource>(contents_, first_, last_, transforms_, normalization_);
}

Batches ImageDataset::batches(int64_t size, const BatchOptions& options) const {
  int64_t epoch = options.epoch ? *options.epoch : passes_->fetch_add(1);
  return Batches(source(),
                 {.batch_size = size,
                  .shuffle = options.shuffle,
                  .drop_last = options.drop_last.value_or(options.shuffle),
                  .seed = options.seed,
                  .prefetch = options.prefetch},
                 epoch);
}

// Normalization is by mean and deviation of all training pixels; tests recompute both.
std::span<const KnownImages> known_images() {
  static const KnownImages known[] = {
      {"mnist",
       "28x28 digits, 10 classes",
       "mnist",
       "idx",
       {{0.1307}, {0.3081}},
       {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}},
      {"fashion-mnist",
       "28x28 clothes, 10 classes",
       "fashion-mnist",
       "idx",
       {{0.2860}, {0.3530}},
       {"T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag",
        "ankle boot"}},
      {"cifar10",
       "32x32 colour photographs, 10 classes",
       "cifar-10-binary",
       "cifar",
       {{0.4914, 0.4822, 0.4465}, {0.2470, 0.2435, 0.2616}},
       {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"}},
  };
  return known;
}

ImageDataset image_dataset(std::string_view name, std::string_view split, const std::string& root) {
  static std::mutex mutex;
  static std::map<std::string, ImageDataset> loaded;
  const KnownImages& known = find_known(name);
  std::error_code none;
  std::string key = fmt::format("{}|{}|{}", name, split, fs::absolute(root, none).string());
  std::lock_guard lock(mutex);
  auto found = loaded.find(key);
  if (found == loaded.end()) found = loaded.emplace(key, load_known(known, split, root)).first;
  return found->second;
}

ImageDataset mnist(std::string_view split, const std::string& root) {
  return image_dataset("mnist", split, root);
}
ImageDataset fashion_mnist(std::string_view split, const std::string& root) {
  return image_dataset("fashion-mnist", split, root);
}
ImageDataset cifar10(std::string_view split, const std::string& root) {
  return image_dataset("cifar10", split, root);
}

ImageDataset images_from_idx(const std::string& images, const std::string& labels,
                             int64_t classes) {
  io::IdxArray pixels = io::read_idx(images), answers = io::read_idx(labels);
  int rank = pixels.shape.size();
  if (pixels.dtype != DType::u8 || (rank != 3 && rank != 4))
    throw Error(ErrorKind::data, "[data] {}: images are u8 [N, H, W] or u8 [N, C, H, W]. Got {}.",
                images, to_string(Type{pixels.dtype, pixels.shape}));
  if (answers.dtype != DType::u8 || answers.shape.size() != 1)
    throw Error(ErrorKind::data, "[data] {}: labels are u8 [N]. Got {}.", labels,
                to_string(Type{answers.dtype, answers.shape}));
  if (pixels.shape[0] == 0) throw Error(ErrorKind::data, "[data] {} has no images.", images);
  if (answers.shape[0] != pixels.shape[0])
    throw Error(ErrorKind::data, "[data] {} has {} images, but {} has {} labels.", images,
                pixels.shape[0], labels, answers.shape[0]);
  const auto* first = reinterpret_cast<const uint8_t*>(answers.elements->data);
  Contents contents;
  contents.name = images;
  contents.pixels = pixels.elements;
  contents.labels.assign(first, first + answers.elements->bytes);
  for (size_t i = 0; i < contents.labels.size(); ++i) {
    int64_t label = contents.labels[i];
    if (classes > 0 && label >= classes)
      throw Error(ErrorKind::data, "[data] {}: label {} of image {} is outside 0 to {}.", labels,
                  label, i, classes - 1);
    contents.classes = std::max(contents.classes, label + 1);
  }
  if (classes > 0) contents.classes = classes;
  const std::set<uint8_t> seen(contents.labels.begin(), contents.labels.end());
  if (const int64_t absent = contents.classes - std::ssize(seen); classes == 0 && absent > 0)
    logging::warn("[data] {}: labels reach {}, but {} of these {} classes have no image.", labels,
                  contents.classes - 1, absent, contents.classes);
  contents.image = rank == 3 ? Shape{1, pixels.shape[1], pixels.shape[2]}
                             : Shape{pixels.shape[1], pixels.shape[2], pixels.shape[3]};
  return ImageDataset(std::move(contents));
}

ImageDataset images_from_cifar(const std::vector<std::string>& paths) {
  // Only one file is mapped at a time: all of them would take as much memory as the pixels.
  std::vector<size_t> counts;
  size_t total = 0;
  for (const std::string& path : paths) {
    std::shared_ptr<Buffer> file = io::map_file(path);
    counts.push_back(io::check_cifar({file->data, file->bytes}, path));
    total += counts.back();
  }
  Contents contents{.name = paths.empty() ? "cifar" : paths.front(),
                    .pixels = Buffer::allocate(total * io::cifar_pixels),
                    .image = {3, 32, 32},
                    .labels = std::vector<uint8_t>(total),
                    .classes = io::cifar_classes};
  std::span<std::byte> pixels(contents.pixels->data, contents.pixels->bytes);
  std::span<uint8_t> labels(contents.labels);
  for (size_t i = 0; i < paths.size(); ++i) {
    std::shared_ptr<Buffer> file = io::map_file(paths[i]);
    size_t bytes = counts[i] * io::cifar_pixels;
    io::split_cifar({file->data, file->bytes}, pixels.first(bytes), labels.first(counts[i]));
    pixels = pixels.subspan(bytes);
    labels = labels.subspan(counts[i]);
  }
  return ImageDataset(std::move(contents));
}

ImageDataset images_from_folder(std::string_view format, std::string_view split,
                                const std::string& folder, int64_t classes) {
  Files files = find_files(format, split, folder);
  if (!files.missing.empty())
    throw Error(ErrorKind::data, "[data] {} of format {} needs {}, which is not in {}.", split,
                format, files.missing, folder);
  return read_files(format, files, classes);
}

}  // namespace weft::data
