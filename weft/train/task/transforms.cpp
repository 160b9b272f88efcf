#include "weft/train/task/transforms.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/data/images.h"
#include "weft/pictures/image.h"

namespace weft::train {
namespace {

constexpr int64_t most_side = 1 << 14;  // pixels

std::vector<TransformEntry> entries() {
  using nn::OptionReader;
  return {
      {.name = "resize",
       .doc = "size: pixels of the shorter side, or height and width; interpolation: bilinear "
              "(antialiased) or nearest",
       .read =
           [](OptionReader& reader, Preparation& to) {
             constexpr std::string_view kinds[] = {"bilinear", "nearest"};
             const bool nearest = reader.choice("interpolation", kinds[0], kinds) == kinds[1];
             if (reader.has("size")) {
               const int64_t size = reader.integer("size", {}, 1, most_side);
               to.transforms.windows.push_back(data::resize(size, 0, nearest));
             } else {
               const int64_t height = reader.integer("height", {}, 1, most_side);
               const int64_t width = reader.integer("width", {}, 1, most_side);
               to.transforms.windows.push_back(data::resize(height, width, nearest));
             }
           }},
      {.name = "center_crop",
       .doc = "size: height and width of the middle that stays",
       .read =
           [](OptionReader& reader, Preparation& to) {
             const int64_t size = reader.integer("size", {}, 1, most_side);
             to.transforms.windows.push_back(data::center_crop(size, size));
           }},
      {.name = "normalize",
       .doc = "mean, std: of each channel, with bytes scaled to 0..1",
       .read =
           [](OptionReader& reader, Preparation& to) {
             to.normalization = {reader.numbers("mean", 0, 1), reader.numbers("std", 1e-9, 1)};
           }},
      {.name = "random_resized_crop",
       .doc = "size: height and width that a random part gets; scale: the least share of the area",
       .random = true,
       .read =
           [](OptionReader& reader, Preparation& to) {
             const int64_t size = reader.integer("size", {}, 1, most_side);
             const double scale = reader.number("scale", 0.08, 1e-4, 1);
             to.transforms.windows.push_back(data::random_resized_crop(size, scale));
           }},
      {.name = "random_crop",
       .doc = "padding: black pixels on each side before a window of the image's size is cut out",
       .random = true,
       .read =
           [](OptionReader& reader, Preparation& to) {
             to.transforms.random_crop = reader.integer("padding", 4, 0, 1024);
           }},
      {.name = "random_horizontal_flip",
       .doc = "p: probability of a mirrored image",
       .random = true,
       .read =
           [](OptionReader& reader, Preparation& to) {
             to.transforms.random_horizontal_flip = reader.number("p", 0.5, 0, 1);
           }},
  };
}

void check_channels(const Recipe& recipe, std::string_view key, std::string_view name, size_t got,
                    int64_t channels) {
  if (got != static_cast<size_t>(channels))
    recipe.refuse(key, fmt::format("{} needs a number for each channel of the images, {}. Got {}.",
                                   name, channels, got));
}

// Calls `function`, whose errors get the name of the file.
template <class F>
auto as_of(const std::string& path, F function) {
  try {
    return function();
  } catch (const Error& error) {
    throw Error(error.kind(), "{}: {}", path, error.what());
  }
}

// A Decoded is a picture with the transform of an evaluation for its size.
struct Decoded {
  Decoded(const std::string& path, int64_t channels, const Preparation& how)
      : image(pictures::read_image(path, static_cast<int>(channels))), transform(as_of(path, [&] {
          return data::ImageTransform({channels, image.height, image.width}, how.transforms,
                                      how.normalization.value_or(data::Normalization{}));
        })) {}

  pictures::Image image;
  data::ImageTransform transform;
};

}  // namespace

Preparation preparation_of(const Recipe& recipe, int64_t channels, bool training) {
  Preparation all;
  for (const TransformSpec& spec : recipe->data.transforms) {
    const TransformEntry* entry = registry::transforms().find(spec.name);
    if (entry == nullptr)
      recipe.refuse(keys::data::transforms,
                    fmt::format("data.transforms knows {}. Got '{}'.",
                                fmt::join(registry::transforms().names(), ", "), spec.name));
    if (entry->random && !training) continue;
    const size_t windows = all.transforms.windows.size();
    const bool last = all.transforms.random_crop > 0 || all.transforms.random_horizontal_flip > 0;
    nn::OptionReader reader(spec.options, "data.transforms: " + spec.name);
    entry->read(reader, all);
    reader.finish();
    if (last && all.transforms.windows.size() > windows)
      recipe.refuse(keys::data::transforms,
                    fmt::format("data.transforms: {} stands before random_crop and "
                                "random_horizontal_flip.",
                                spec.name));
  }
  if (all.normalization) {
    if (recipe->data.mean)
      recipe.refuse(keys::data::mean,
                    "data.mean is also in data.transforms: normalize. Hint: one of "
                    "them.");
    check_channels(recipe, keys::data::transforms, "normalize: mean",
                   all.normalization->mean.size(), channels);
    check_channels(recipe, keys::data::transforms, "normalize: std",
                   all.normalization->deviation.size(), channels);
  } else if (recipe->data.mean) {
    // Published weights expect the normalization that they were trained with.
    const std::vector<double>&mean = *recipe->data.mean, &std = *recipe->data.std;
    check_channels(recipe, keys::data::mean, keys::data::mean, mean.size(), channels);
    check_channels(recipe, keys::data::std, keys::data::std, std.size(), channels);
    if (std::ranges::min(std) == 0) recipe.refuse(keys::data::std, "data.std must be above 0.");
    all.normalization = {mean, std};
  }
  return all;
}

Shape picture_shape(const Recipe& recipe, int64_t channels, const std::string& path) {
  return Decoded(path, channels, preparation_of(recipe, channels, false)).transform.shape();
}

Tensor picture_rows(const Recipe& recipe, const Shape& row, std::span<const std::string> paths) {
  WEFT_CHECK(row.size() == 3 && (row[0] == 1 || row[0] == 3),
             "[picture] the model takes no images of 1 or 3 channels, but {}.", to_string(row));
  Preparation how = preparation_of(recipe, row[0], false);
  if (!how.normalization)
    for (const data::KnownImages& known : data::known_images())
      if (recipe->data.dataset && known.name == *recipe->data.dataset)
        how.normalization = known.normalization;
  const Type type{DType::f32, {std::ssize(paths), row[0], row[1], row[2]}};
  const auto rows = Buffer::allocate(type.bytes());
  auto* out = reinterpret_cast<float*>(rows->data);
  for (const std::string& path : paths) {
    const Decoded picture(path, row[0], how);
    as_of(path, [&] {
      const Shape& shape = picture.transform.shape();
      if (shape != row)
        throw Error(ErrorKind::data, "the picture is {} after data.transforms, the model takes {}.",
                    to_string(shape), to_string(row));
      picture.transform.apply({}, pictures::planes_of(picture.image), out);
    });
    out += element_count(row);
  }
  return tensor_over(rows, rows->data, type);
}

}  // namespace weft::train

namespace weft {
Registry<train::TransformEntry>& registry::transforms() {
  static Registry<train::TransformEntry> transforms("data", "transform", train::entries());
  return transforms;
}
}  // namespace weft
