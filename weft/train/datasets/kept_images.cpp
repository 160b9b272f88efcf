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
  const auto wrong = [&](std::string_view rule) {
    throw Error(ErrorKind::checkpoint, "{}: {}.", path, rule);
  };
  KeptImages kept;
  if (!json.is_object() || !json.contains("classes") || !json["classes"].is_array() ||
      json["classes"].empty())
    wrong("classes must be a list of names");
  for (const auto& name : json["classes"]) {
    if (!name.is_string()) wrong("classes must be a list of names");
    kept.classes.push_back(name.get<std::string>());
  }
  if (!json.contains("image") || !json["image"].is_array() || json["image"].size() != 3)
    wrong("image must be three extents");
  for (const auto& extent : json["image"]) {
    if (!extent.is_number_integer() || extent.get<int64_t>() < 1 || extent.get<int64_t>() > 1 << 20)
      wrong("image must be three extents from 1 to 1048576");
    kept.image.push_back(extent.get<int64_t>());
  }
  return kept;
}

TaskData task_of(const KeptImages& kept) {
  TaskData parts{.task = Task::classification,
                 .shape = {InputKind::images, kept.image, std::ssize(kept.classes)},
                 .class_names = kept.classes};
  parts.files.push_back({std::string(kept_images_file), to_json(kept)});
  return parts;
}

}  // namespace weft::train
