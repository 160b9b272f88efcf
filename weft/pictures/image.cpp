#include "weft/pictures/image.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "weft/base/error.h"
#include "weft/io/files.h"
#include "weft/pictures/parts.h"

namespace weft::pictures {
namespace {

// Gray is ITU-R BT.601's luma, in the 16-bit arithmetic of Pillow's convert("L").
Image with_channels(Image image, int64_t channels) {
  if (image.channels == channels) return image;
  Image other{.height = image.height, .width = image.width, .channels = channels};
  const size_t count = static_cast<size_t>(image.height * image.width);
  other.pixels.resize(count * static_cast<size_t>(channels));
  const uint8_t* from = image.pixels.data();
  uint8_t* to = other.pixels.data();
  for (size_t i = 0; i < count; ++i) {
    if (channels == 1)
      to[i] = static_cast<uint8_t>(
          (from[i * 3] * 19595 + from[i * 3 + 1] * 38470 + from[i * 3 + 2] * 7471 + 0x8000) >> 16);
    else
      std::fill_n(to + i * 3, 3, from[i]);
  }
  return other;
}

bool starts_with(std::span<const std::byte> bytes, std::string_view magic) {
  return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size())
      .starts_with(magic);
}

}  // namespace

Image parse_image(std::span<const std::byte> bytes, std::string_view name, int channels) {
  WEFT_CHECK(channels == 1 || channels == 3, "[image] pictures have 1 or 3 channels. Got {}.",
             channels);
  if (starts_with(bytes, "\xff\xd8\xff")) return with_channels(parse_jpeg(bytes, name), channels);
  if (starts_with(bytes, "\x89PNG\r\n\x1a\n"))
    return with_channels(parse_png(bytes, name), channels);
  throw Error(ErrorKind::data, "[image] {} is neither a JPEG nor a PNG.", name);
}

Image read_image(const std::string& path, int channels) {
  const std::shared_ptr<Buffer> file = io::map_file(path);
  return parse_image({file->data, file->bytes}, path, channels);
}

data::Planes planes_of(const Image& image) {
  data::Planes planes{.channels = image.channels,
                      .height = image.height,
                      .width = image.width,
                      .pixels = std::vector<uint8_t>(image.pixels.size())};
  const int64_t count = image.height * image.width;
  for (int64_t c = 0; c < image.channels; ++c)
    for (int64_t i = 0; i < count; ++i)
      planes.pixels[static_cast<size_t>(c * count + i)] =
          image.pixels[static_cast<size_t>(i * image.channels + c)];
  return planes;
}

ImageFormat image_format(const std::string& path) {
  std::string ending = std::filesystem::path(path).extension().string();
  std::ranges::transform(ending, ending.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
  if (ending == ".png") return ImageFormat::png;
  return ending == ".jpg" || ending == ".jpeg" ? ImageFormat::jpeg : ImageFormat::none;
}

void write_image(const std::string& path, const Image& image, int quality) {
  const ImageFormat format = image_format(path);
  if (format == ImageFormat::none)
    throw Error(ErrorKind::usage, "[image] {}: names of pictures end in .png, .jpg or .jpeg.",
                path);
  io::write_file_atomically(path,
                            format == ImageFormat::png ? png_of(image) : jpeg_of(image, quality));
}

}  // namespace weft::pictures
