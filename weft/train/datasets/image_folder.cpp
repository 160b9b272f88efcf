// Reads folders of pictures with a folder for each class.
#include "weft/pictures/image_folder.h"

#include <numeric>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/train/datasets/datasets.h"
#include "weft/train/datasets/image_description.h"
#include "weft/train/task/transforms.h"

namespace weft::train {
namespace {
constexpr std::string_view channels_key = "data.channels";

TaskData read_image_folder(const Recipe& recipe, const DataOptions& options) {
  std::optional<ImageDescription> description = image_description(options.checkpoint);
  if (description && !options.with_data) return task_of(*description);
  const auto channels = static_cast<int>(recipe.integer(channels_key));
  if (channels == 2) recipe.refuse(channels_key, "data.channels must be 1 (gray) or 3. Got 2.");
  const auto folder_of = [&](std::string_view key) {
    std::optional<std::vector<std::string>> known;
    if (description) known = description->classes;
    return std::make_shared<const pictures::ImageFolder>(
        pictures::read_image_folder(find_data(recipe.text(key)), known));
  };
  const auto folder = folder_of(keys::data::path);
  const Shape first = pictures::first_shape(*folder, channels);
  const auto transform = [&](bool training) {
    const Preparation how = preparation_of(recipe, channels, training);
    try {
      return data::ImageTransform(first, how.transforms,
                                  how.normalization.value_or(data::Normalization{}));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::data) throw;
      throw Error(ErrorKind::data, "{}: {}", folder->pictures.front().path, error.what());
    }
  };
  const data::ImageTransform for_training = transform(true), for_evaluation = transform(false);
  if (for_training.shape() != for_evaluation.shape())
    recipe.refuse(keys::data::transforms,
                  fmt::format("data.transforms give training images {}, those for evaluation {}. "
                              "Hint: end with center_crop.",
                              to_string(for_training.shape()), to_string(for_evaluation.shape())));
  if (!description) description = ImageDescription{folder->classes, for_training.shape()};
  if (description->image != for_training.shape())
    recipe.refuse(
        keys::data::transforms,
        fmt::format("data.transforms give images {}. {} has {}.", to_string(for_training.shape()),
                    options.checkpoint, to_string(description->image)));
  TaskData parts = task_of(*description);
  const auto all_of = [](const pictures::ImageFolder& all) {
    std::vector<int64_t> indices(all.pictures.size());
    std::iota(indices.begin(), indices.end(), 0);
    return indices;
  };
  std::vector<int64_t> indices = all_of(*folder), others;
  auto held = folder;
  const bool evaluated = holds_out(recipe);
  if (recipe->data.val_path) {
    held = folder_of(keys::data::val_path);
    others = all_of(*held);
  } else if (evaluated) {
    others = held_out(recipe, indices, folder->path);
  }
  parts.train = pictures::image_folder_source(folder, std::move(indices), for_training);
  if (evaluated)
    parts.validation = pictures::image_folder_source(held, std::move(others), for_evaluation);
  return parts;
}
}  // namespace

DataEntry image_folder_format() {
  return {.name = "image_folder",
          .doc = "a folder of JPEG and PNG pictures for each class",
          .read = read_image_folder,
          .reads = {keys::data::path, keys::data::val_path, keys::data::val_split,
                    keys::data::transforms, keys::data::mean, keys::data::std},
          .keys = {{channels_key, KeyType::integer, "3", "", 1, 3,
                    "image_folder: 3 for colours (RGB), 1 for gray"}},
          .files = {image_description_file}};
}

}  // namespace weft::train
