// Reads labelled images, of well-known data sets and of files in their formats.
#include "weft/data/images.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "weft/base/env.h"
#include "weft/base/error.h"
#include "weft/nn/options.h"
#include "weft/train/datasets/datasets.h"

namespace weft::train {
namespace {
// Loads one split; `classes` is 0 where the labels determine their number.
using Load = std::function<data::ImageDataset(std::string_view split, int64_t classes)>;

data::Transforms read_transforms(const Recipe& recipe) {
  data::Transforms transforms;
  for (const TransformSpec& spec : recipe.transforms()) {
    nn::OptionReader reader(spec.options, "data.transforms: " + spec.name);
    if (spec.name == "random_crop")
      transforms.random_crop = reader.integer("padding", 4, 0, 1024);
    else if (spec.name == "random_horizontal_flip")
      transforms.random_horizontal_flip = reader.number("p", 0.5, 0, 1);
    else
      recipe.refuse("data.transforms",
                    fmt::format("data.transforms knows random_crop, random_horizontal_flip. Got "
                                "'{}'.",
                                spec.name));
    reader.finish();
  }
  return transforms;
}

// A recipe may replace the data set's normalization: published weights expect the one that they
// were trained with.
std::optional<data::Normalization> read_normalization(const Recipe& recipe, int64_t channels) {
  if (!recipe.has("data.mean")) return std::nullopt;
  const std::vector<double>&mean = recipe.numbers("data.mean"), &std = recipe.numbers("data.std");
  for (std::string_view key : {"data.mean", "data.std"})
    if (const size_t got = recipe.numbers(key).size(); got != static_cast<size_t>(channels))
      recipe.refuse(
          key, fmt::format("{} needs a number for each channel of the images, {}. Got {}.", key,
                           channels, got));
  if (std::ranges::min(std) == 0) recipe.refuse("data.std", "data.std must be above 0.");
  return data::Normalization{mean, std};
}

TaskData read_images(const Recipe& recipe, const Load& load) {
  data::ImageDataset train = load("train", 0).transform(read_transforms(recipe));
  data::ImageDataset test = load("test", train.classes());
  if (train.image_shape() != test.image_shape())
    throw Error(ErrorKind::data, "[data] training images are {}, those for evaluation {}.",
                to_string(train.image_shape()), to_string(test.image_shape()));
  if (const auto normalization = read_normalization(recipe, train.image_shape()[0])) {
    train = train.normalize(*normalization);
    test = test.normalize(*normalization);
  }
  return {.task = Task::classification,
          .shape = {InputKind::images, train.image_shape(), train.classes()},
          .train = train.source(),
          .validation = test.source()};
}

constexpr std::string_view image_keys[] = {"data.path", "data.transforms", "data.mean", "data.std"};

DataEntry image_format(const std::string& name, const std::string& doc) {
  auto read = [name](const Recipe& recipe, const DataOptions&) {
    return read_images(recipe, [&](std::string_view split, int64_t classes) {
      return data::images_from_folder(name, split, find_data(recipe.text("data.path")), classes);
    });
  };
  return {name, doc, read, {std::begin(image_keys), std::end(image_keys)}};
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
    auto read = [name](const Recipe& recipe, const DataOptions&) {
      return read_images(recipe, [&](std::string_view split, int64_t) {
        return data::image_dataset(
            name, split,
            recipe.has("data.path") ? find_data(recipe.text("data.path")) : data_folder(name));
      });
    };
    all.push_back({.name = name,
                   .doc = std::string(known.doc),
                   .read = read,
                   .reads = {std::begin(image_keys), std::end(image_keys)},
                   .where = [folder = known.folder] { return where(folder); }});
  }
  return all;
}

std::vector<DataEntry> image_formats() {
  return {image_format("idx", "a folder with the file names of MNIST"),
          image_format("cifar", "a folder with the file names of CIFAR-10")};
}

}  // namespace weft::train
