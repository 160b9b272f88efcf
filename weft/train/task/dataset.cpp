#include "weft/train/task/dataset.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "weft/base/error.h"
#include "weft/base/host/env.h"
#include "weft/io/files.h"
#include "weft/train/datasets/datasets.h"

namespace weft {
namespace train {

bool DataEntry::does_read(std::string_view key) const {
  return std::ranges::find(reads, key) != reads.end();
}

const DataEntry& data_entry(const Recipe& recipe) {
  return recipe->data.format ? registry::formats().get(*recipe->data.format)
                             : registry::datasets().get(*recipe->data.dataset);
}

std::string data_folder(const std::string& wanted) {
  std::string folder = data_directory();
  if (folder.empty())
    throw Error(ErrorKind::data,
                "no folder to look for {} in: neither WEFT_DATA_DIR nor HOME names one. Hint: "
                "data.path.",
                wanted);
  return folder;
}

std::string find_data(const std::string& path) {
  namespace fs = std::filesystem;
  if (io::exists(path) || fs::path(path).is_absolute()) return path;
  const std::string folder = data_folder(path), below = (fs::path(folder) / path).string();
  if (!io::exists(below))
    throw Error(ErrorKind::data,
                "{} exists neither in the current folder nor in WEFT_DATA_DIR ({}).", path, folder);
  return below;
}

}  // namespace train

Registry<train::DataEntry>& registry::datasets() {
  static Registry<train::DataEntry> datasets("data", "data set", [] {
    std::vector<train::DataEntry> all = train::known_image_datasets();
    all.push_back(train::addition());
    all.push_back(train::random_images());
    all.push_back(train::random_tokens());
    return all;
  }());
  return datasets;
}

Registry<train::DataEntry>& registry::formats() {
  static Registry<train::DataEntry> formats("data", "format", [] {
    std::vector<train::DataEntry> all = train::image_formats();
    all.push_back(train::text_format());
    all.push_back(train::jsonl_format());
    all.push_back(train::csv_format());
    all.push_back(train::image_folder_format());
    return all;
  }());
  return formats;
}

}  // namespace weft
