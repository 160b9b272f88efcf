// Reads labelled images, of well-known data sets and of files in their formats.
#include "weft/data/images.h"

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/host/env.h"
#include "weft/train/datasets/datasets.h"
#include "weft/train/datasets/image_description.h"
#include "weft/train/task/transforms.h"

namespace weft::train {
namespace {
// Loads one split; `classes` is 0 where the labels determine their number.
using Load = std::function<data::ImageDataset(std::string_view split, int64_t classes)>;

// `names` are the names of the classes; empty: the classes have numbers.
TaskData read_image_files(const Recipe& recipe, const DataOptions& options, const Load& load,
                          const std::vector<std::string>& names = {}) {
  if (!options.with_data)
    if (const auto description = image_description(options.checkpoint))
      return task_of(*description);
  data::ImageDataset train = load("train", 0), test = load("test", train.classes());
  const auto prepare = [&](data::ImageDataset& images, bool training) {
    const Preparation how = preparation_of(recipe, images.image_shape()[0], training);
    images = images.transform(how.transforms);
    if (how.normalization) images = images.normalize(*how.normalization);
    return images.source();
  };
  if (train.image_shape() != test.image_shape())
    throw Error(ErrorKind::data, "[data] training images are {}, those for evaluation {}.",
                to_string(train.image_shape()), to_string(test.image_shape()));
  const auto training = prepare(train, true), validation = prepare(test, false);
  const Shape shape = training->input_type().shape;
  if (shape != validation->input_type().shape)
    recipe.refuse(keys::data::transforms,
                  fmt::format("data.transforms give training images {}, those for evaluation {}. "
                              "Hint: end with center_crop.",
                              to_string(shape), to_string(validation->input_type().shape)));
  ImageDescription description{.classes = names, .image = shape};
  for (int64_t label = std::ssize(names); label < train.classes(); ++label)
    description.classes.push_back(std::to_string(label));
  TaskData parts = task_of(description);
  parts.train = training;
  parts.validation = validation;
  return parts;
}

constexpr std::string_view image_keys[] = {keys::data::path, keys::data::transforms,
                                           keys::data::mean, keys::data::std};

DataEntry image_format(const std::string& name, const std::string& doc) {
  auto read = [name](const Recipe& recipe, const DataOptions& options) {
    return read_image_files(recipe, options, [&](std::string_view split, int64_t classes) {
      return data::images_from_folder(name, split, find_data(*recipe->data.path), classes);
    });
  };
  return {.name = name,
          .doc = doc,
          .read = read,
          .reads = {std::begin(image_keys), std::end(image_keys)},
          .files = {image_description_file}};
}

std::string where(std::string_view folder) {
  namespace fs = std::filesystem;
  const std::string parent = data_directory();
  std::error_code none;
  return !parent.empty() && fs::is_directory(fs::path(parent) / folder, none) ? "here"
                                                                              : "not found";
}
}  // namespace

std::vector<DataEntry> known_image_datasets() {
  std::vector<DataEntry> all;
  for (const data::KnownImages& known : data::known_images()) {
    const std::string name(known.name);
    auto read = [name, classes = known.classes](const Recipe& recipe, const DataOptions& options) {
      const Load load = [&](std::string_view split, int64_t) {
        return data::image_dataset(
            name, split,
            recipe->data.path.has_value() ? find_data(*recipe->data.path) : data_folder(name));
      };
      return read_image_files(recipe, options, load, classes);
    };
    all.push_back({.name = name,
                   .doc = std::string(known.doc),
                   .read = read,
                   .reads = {std::begin(image_keys), std::end(image_keys)},
                   .where = [folder = known.folder] { return where(folder); },
                   .files = {image_description_file}});
  }
  return all;
}

std::vector<DataEntry> image_formats() {
  return {image_format("idx", "a folder with the file names of MNIST"),
          image_format("cifar", "a folder with the file names of CIFAR-10")};
}

}  // namespace weft::train
