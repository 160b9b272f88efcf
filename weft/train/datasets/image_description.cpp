#include "weft/train/datasets/image_description.h"

#include <filesystem>

#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/io/files.h"
#include "weft/io/json.h"

namespace weft::train {
namespace {

constexpr size_t most_bytes = size_t{64} << 20;  // bytes

std::string to_json(const ImageDescription& description) {
  nlohmann::ordered_json json;
  json["classes"] = description.classes;
  json["image"] = std::vector<int64_t>(description.image.begin(), description.image.end());
  return io::json_text(json, 1) + "\n";
}

}  // namespace

std::optional<ImageDescription> image_description(const std::string& checkpoint) {
  if (checkpoint.empty()) return std::nullopt;
  const std::string path = (std::filesystem::path(checkpoint) / image_description_file).string();
  if (!io::exists(path, ErrorKind::checkpoint)) return std::nullopt;
  const nlohmann::json json = io::read_json_file(path, most_bytes, ErrorKind::checkpoint);
  try {
    ImageDescription description{.classes = io::texts_at(json, "classes")};
    if (description.classes.empty()) throw io::JsonError("classes must be one or more");
    const nlohmann::json& image = io::value_at(json, "image");
    if (!image.is_array() || image.size() != 3) throw io::JsonError("image must be three extents");
    for (const auto& extent : image) {
      if (!extent.is_number_integer() || extent.get<int64_t>() < 1 ||
          extent.get<int64_t>() > 1 << 20)
        throw io::JsonError("image must be three extents from 1 to 1048576");
      description.image.push_back(extent.get<int64_t>());
    }
    return description;
  } catch (const io::JsonError& error) {
    throw Error(ErrorKind::checkpoint, "{}: {}.", path, error.what());
  }
}

TaskData task_of(const ImageDescription& description) {
  TaskData parts{.task = Task::classification,
                 .shape = {InputKind::images, description.image, std::ssize(description.classes)},
                 .class_names = description.classes};
  parts.files.push_back({std::string(image_description_file), to_json(description)});
  return parts;
}

}  // namespace weft::train
