#include "weft/pictures/image_folder.h"

#include <algorithm>
#include <filesystem>
#include <tuple>
#include <utility>

#include "weft/base/error.h"
#include "weft/base/logging.h"
#include "weft/base/numbers/hash.h"
#include "weft/io/files.h"
#include "weft/pictures/image.h"

namespace weft::pictures {
namespace {

namespace fs = std::filesystem;
constexpr int most_levels = 32;

// Calls `function` for each entry of a folder; errors of the system name the folder.
template <class F>
void for_each_entry(const fs::path& folder, F function) {
  try {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) function(entry);
  } catch (const fs::filesystem_error& error) {
    throw Error(ErrorKind::data, "[image_folder] cannot read {}: {}.", folder.string(),
                error.code().message());
  }
}

struct Others {
  int64_t count = 0;
  std::string first;
};

// Adds the pictures of a folder, then those of its subfolders, each in the order of names.
void add_pictures(const fs::path& folder, int64_t label, int level, ImageFolder& all,
                  Others& others) {
  if (level > most_levels)
    throw Error(ErrorKind::data, "[image_folder] {} is nested deeper than {} levels.",
                folder.string(), most_levels);
  std::vector<fs::path> folders;
  std::vector<Picture> pictures;
  for_each_entry(folder, [&](const fs::directory_entry& entry) {
    if (entry.is_directory())
      folders.push_back(entry.path());
    else if (is_picture(entry.path().string()))
      pictures.push_back({entry.path().string(), label, entry.file_size()});
    else if (others.count++ == 0)
      others.first = entry.path().string();
  });
  std::ranges::sort(pictures, {}, &Picture::path);
  std::ranges::move(pictures, std::back_inserter(all.pictures));
  std::ranges::sort(folders);
  for (const fs::path& each : folders) add_pictures(each, label, level + 1, all, others);
}

class ImageFolderSource : public data::Source {
 public:
  ImageFolderSource(std::shared_ptr<const ImageFolder> folder, std::vector<int64_t> indices,
                    data::ImageTransform transform)
      : folder_(std::move(folder)),
        indices_(std::move(indices)),
        transform_(std::move(transform)) {}

  int64_t size() const override { return std::ssize(indices_); }
  Type input_type() const override { return {DType::f32, transform_.shape()}; }
  Shape label_shape() const override { return {}; }
  size_t bytes() const override {
    size_t total = indices_.size() * sizeof(int64_t);
    for (const int64_t index : indices_) total += sizeof(Picture) + picture(index).path.capacity();
    return total;
  }
  uint64_t fingerprint() const override {
    uint64_t all = 0;
    for (const int64_t index : indices_) {
      const Picture& each = picture(index);
      const std::string name = each.path.substr(folder_->path.size());
      all = hash_combine(all, hash_bytes(name.data(), name.size()));
      all = hash_combine(all, hash_combine(each.bytes, static_cast<uint64_t>(each.label)));
    }
    return all;
  }
  void write(const data::SampleKey& key, std::byte* input, int64_t* labels) const override {
    const Picture& each = picture(indices_[static_cast<size_t>(key.index)]);
    const int channels = static_cast<int>(transform_.shape()[0]);
    const Image image = read_image(each.path, channels);
    try {
      transform_.apply(key, planes_of(image), reinterpret_cast<float*>(input));
    } catch (const Error& error) {  // of the image's size
      throw Error(error.kind(), "{}: {}", each.path, error.what());
    }
    *labels = each.label;
  }

 private:
  const Picture& picture(int64_t index) const {
    return folder_->pictures[static_cast<size_t>(index)];
  }

  std::shared_ptr<const ImageFolder> folder_;
  std::vector<int64_t> indices_;
  data::ImageTransform transform_;
};

void warn_of(const Others& others, const std::string& path) {
  if (others.count > 0)
    logging::warn("[image_folder] {}: {} files are no pictures and are left out, {} first.", path,
                  others.count, io::printable(others.first));
}

}  // namespace

bool is_picture(const std::string& path) { return image_format(path) != ImageFormat::none; }

std::vector<std::string> pictures_below(const std::string& folder) {
  ImageFolder all{.path = folder, .classes = {}, .pictures = {}};
  Others others;
  add_pictures(folder, 0, 1, all, others);
  if (all.pictures.empty())
    throw Error(ErrorKind::data, "[image_folder] {} has no pictures (.jpg, .jpeg or .png).",
                folder);
  warn_of(others, folder);
  std::vector<std::string> paths;
  paths.reserve(all.pictures.size());
  for (Picture& each : all.pictures) paths.push_back(std::move(each.path));
  return paths;
}

ImageFolder read_image_folder(const std::string& path,
                              const std::optional<std::vector<std::string>>& known) {
  if (!io::is_folder(path))
    throw Error(ErrorKind::data, "[image_folder] {} is no folder with a folder for each class.",
                path);
  ImageFolder all{.path = path, .classes = {}, .pictures = {}};
  std::vector<std::string> names;
  for_each_entry(path, [&](const fs::directory_entry& entry) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  });
  std::ranges::sort(names);
  if (names.empty())
    throw Error(ErrorKind::data, "[image_folder] {} has no folders, which are the classes.", path);
  if (names.size() > 1 && std::ranges::all_of(names, [](const std::string& name) {
        return name == "train" || name == "val" || name == "validation" || name == "test";
      }))
    throw Error(ErrorKind::data,
                "[image_folder] {} has no classes, but {} and {}. Hint: data.path is the folder "
                "of training pictures, data.val_path that of others.",
                path, names.front(), names.back());
  all.classes = known.value_or(names);
  Others others;
  for (const std::string& name : names) {
    const auto found = std::ranges::find(all.classes, name);
    if (found == all.classes.end())
      throw Error(ErrorKind::data, "[image_folder] {} has a class '{}', which training lacks.",
                  path, io::printable(name));
    const size_t before = all.pictures.size();
    add_pictures(fs::path(path) / name, found - all.classes.begin(), 1, all, others);
    if (all.pictures.size() == before)
      throw Error(ErrorKind::data, "[image_folder] {} has no pictures (.jpg, .jpeg or .png).",
                  (fs::path(path) / name).string());
  }
  warn_of(others, path);
  return all;
}

Shape first_shape(const ImageFolder& folder, int channels) {
  const Image first = read_image(folder.pictures.front().path, channels);
  return {first.channels, first.height, first.width};
}

std::shared_ptr<const data::Source> image_folder_source(std::shared_ptr<const ImageFolder> folder,
                                                        std::vector<int64_t> indices,
                                                        data::ImageTransform transform) {
  return std::make_shared<ImageFolderSource>(std::move(folder), std::move(indices),
                                             std::move(transform));
}

}  // namespace weft::pictures
