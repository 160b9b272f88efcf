#include "weft/train/datasets/kept_images.h"

#include <filesystem>

#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/io/files.h"
#include "weft/io/json.h"

namespace weft::train {
namespace {

constexpr size_t kept_limit = size_t{64} << 20;  // bytes

std::string to_json(const KeptImages& kept) {
  nlohmann::ordered_json json;
  json["classes"] = kept.classes;
  json["image"] = std::vector<int64_t>(kept.image.begin(), kept.image.end());
  return io::json_text(json, 1) + "\n";
}

}  // namespace

std::optional<KeptImages> kept_images(const std::string& checkpoint) {
  if (checkpoint.empty()) return std::nullopt;
  const std::string path = (std::filesystem::path(checkpoint) / kept_images_file).string();
  if (!io::exists(path, ErrorKind::checkpoint)) return std::nullopt;
  const nlohmann::json json = io::read_json_file(path, kept_limit, ErrorKind::checkpoint);
  try {
    KeptImages kept{.classes = io::texts_at(json, "classes")};
    if (kept.classes.empty()) throw io::JsonError("classes must be one or more");
    const nlohmann::json& image = io::value_at(json, "image");
    if (!image.is_array() || image.size() != 3) throw io::JsonError("image must be three extents");
    for (const auto& extent : image) {
      if (!extent.is_number_integer() || extent.get<int64_t>() < 1 ||
          extent.get<int64_t>() > 1 << 20)
        throw io::JsonError("image must be three extents from 1 to 1048576");
      kept.image.push_back(extent.get<int64_t>());
    }
    return kept;
  } catch (const io::JsonError& error) {
    throw Error(ErrorKind::checkpoint, "{}: {}.", path, error.what());
  }
}

TaskData task_of(const KeptImages& kept) {
  TaskData parts{.task = Task::classification,
                 .shape = {InputKind::images, kept.image, std::ssize(kept.classes)},
                 .class_names = kept.classes};
  parts.files.push_back({std::string(kept_images_file), to_json(kept)});
  return parts;
}

}  // namespace weft::train
