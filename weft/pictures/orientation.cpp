#include "weft/pictures/orientation.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <zlib.h>

namespace weft::pictures {
namespace {

// A Tiff reads the numbers of a TIFF header's byte order.
class Tiff {
 public:
  explicit Tiff(std::string_view bytes) : bytes_(bytes), big_(bytes.starts_with('M')) {}

  // Returns the integer of 2 or 4 bytes (of several, the first) under a tag of the first directory;
  // nullopt without the tag, 0 for another type of value.
  std::optional<uint32_t> integer(uint32_t tag) const {
    constexpr size_t header_bytes = 8, entry_bytes = 12;
    if (bytes_.size() < header_bytes) return std::nullopt;
    const size_t directory = number(4, 4);
    if (directory + 2 > bytes_.size()) return std::nullopt;
    const size_t entries = number(directory, 2);
    for (size_t i = 0; i < entries; ++i) {
      const size_t entry = directory + 2 + i * entry_bytes;
      if (entry + entry_bytes > bytes_.size()) break;
      if (number(entry, 2) != tag) continue;
      const uint32_t type = number(entry + 2, 2), count = number(entry + 4, 4);
      const size_t size = type == 3 || type == 8 ? 2 : type == 4 || type == 9 ? 4 : 0;
      return count > 0 && count * size <= 4 && size > 0 ? number(entry + 8, size) : 0;
    }
    return std::nullopt;
  }

 private:
  uint32_t number(size_t offset, size_t bytes) const {
    uint32_t value = 0;
    for (size_t i = 0; i < bytes; ++i)
      value = value << 8 | static_cast<uint8_t>(bytes_[big_ ? offset + i : offset + bytes - 1 - i]);
    return value;
  }

  std::string_view bytes_;
  bool big_;
};

// Returns the digit of tiff:Orientation, as an attribute or an element of XMP; 1 without one.
uint32_t orientation_of_xmp(std::string_view xml) {
  constexpr std::string_view name = "tiff:Orientation";
  for (size_t at = xml.find(name); at != std::string_view::npos; at = xml.find(name, at + 1)) {
    std::string_view rest = xml.substr(at + name.size());
    const size_t mark = rest.starts_with("=\"") ? 2 : rest.starts_with('>') ? 1 : 0;
    if (mark > 0 && rest.size() > mark && rest[mark] >= '0' && rest[mark] <= '9')
      return static_cast<uint32_t>(rest[mark] - '0');
  }
  return 1;
}

// Returns the inflated contents of a zlib stream: at most 1 MiB, and of a damaged stream the part
// before the damage.
std::string inflated(std::string_view packed) {
  std::string text(size_t{1} << 20, '\0');
  z_stream stream{};
  if (inflateInit(&stream) != Z_OK) return "";
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));  // zlib only reads
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<Bytef*>(text.data());
  stream.avail_out = static_cast<uInt>(text.size());
  inflate(&stream, Z_FINISH);
  text.resize(text.size() - stream.avail_out);
  inflateEnd(&stream);
  return text;
}

// Removes the part of `text` before its first NUL, and that NUL; returns the part.
std::string_view take_until_nul(std::string_view& text) {
  const size_t end = std::min(text.find('\0'), text.size());
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return part;
}

// Returns the text of a chunk tEXt, zTXt or iTXt whose keyword was taken; "" for no chunk.
std::string text_of(std::string_view type, std::string_view data) {
  if (type == "tEXt" || data.empty()) return std::string(data);
  const bool packed = type == "zTXt" || data.starts_with('\1');
  data.remove_prefix(std::min<size_t>(type == "zTXt" ? 1 : 2, data.size()));
  if (type == "iTXt") {
    take_until_nul(data);  // language
    take_until_nul(data);  // translated keyword
  }
  return packed ? inflated(data) : std::string(data);
}

// Decodes ImageMagick's "\nexif\n  1234\n45786966...": a name, a count, and hexadecimal bytes.
std::string raw_profile(std::string_view text) {
  for (int line = 0; line < 3; ++line) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) return "";
    text.remove_prefix(end + 1);
  }
  std::string bytes;
  int half = -1;
  for (const char c : text) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) continue;
    if (half >= 0) bytes += static_cast<char>(half << 4 | digit);
    half = half >= 0 ? -1 : digit;
  }
  return bytes;
}

}  // namespace

int orientation_of(const OrientationSources& sources) {
  constexpr uint32_t orientation_tag = 0x0112;
  std::string_view exif = sources.exif;
  while (exif.starts_with(exif_magic)) exif.remove_prefix(exif_magic.size());
  const std::optional<uint32_t> of_exif = Tiff(exif).integer(orientation_tag);
  const uint32_t value = of_exif ? *of_exif : orientation_of_xmp(sources.xmp);
  return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
}

OrientationSources orientation_sources_of_png(std::span<const std::byte> file) {
  OrientationSources sources;
  struct Text {
    std::string_view type, data;
  } profile, xmp;  // the last of each
  std::string_view left(reinterpret_cast<const char*>(file.data()), file.size());
  constexpr size_t signature_bytes = 8, head_bytes = 8, checksum_bytes = 4;
  left.remove_prefix(std::min(signature_bytes, left.size()));
  while (left.size() >= head_bytes) {
    size_t length = 0;
    for (size_t i = 0; i < 4; ++i) length = length << 8 | static_cast<uint8_t>(left[i]);
    if (length + checksum_bytes > left.size() - head_bytes) break;
    const std::string_view type = left.substr(4, 4);
    std::string_view data = left.substr(head_bytes, length);
    left.remove_prefix(head_bytes + length + checksum_bytes);
    if (type == "IEND") break;
    if (type == "eXIf") sources.exif = data;
    if (type != "tEXt" && type != "zTXt" && type != "iTXt") continue;
    const std::string_view keyword = take_until_nul(data);
    if (keyword == "Raw profile type exif") profile = {type, data};
    if (keyword == "XML:com.adobe.xmp") xmp = {type, data};
  }
  if (sources.exif.empty()) sources.exif = raw_profile(text_of(profile.type, profile.data));
  sources.xmp = text_of(xmp.type, xmp.data);
  return sources;
}

// Orientations 5 to 8 swap the axes. `mirrored` reverses columns, `flipped` reverses rows.
Image upright(Image image, int orientation) {
  if (orientation == 1) return image;
  const bool swapped = orientation >= 5;
  const bool mirrored =
      orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool flipped = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  Image turned{.height = swapped ? image.width : image.height,
               .width = swapped ? image.height : image.width,
               .channels = image.channels,
               .pixels = std::vector<uint8_t>(image.pixels.size())};
  auto* to = turned.pixels.data();
  for (int64_t y = 0; y < turned.height; ++y)
    for (int64_t x = 0; x < turned.width; ++x, to += image.channels) {
      const int64_t row = swapped ? x : y, column = swapped ? y : x;
      const int64_t from_row = flipped ? image.height - 1 - row : row;
      const int64_t from_column = mirrored ? image.width - 1 - column : column;
      std::copy_n(image.pixels.data() + (from_row * image.width + from_column) * image.channels,
                  image.channels, to);
    }
  return turned;
}

}  // namespace weft::pictures
