#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <utility>

#include <jpeglib.h>

#include "weft/io/image_parts.h"

namespace weft::io {
namespace {

constexpr int most_scans = 100;           // progressive files have about ten
constexpr int64_t pixels_per_byte = 512;  // a block of 8 x 8 takes a bit, at least
constexpr int exif_marker = JPEG_APP0 + 1;
static_assert(most_jpeg_side == JPEG_MAX_DIMENSION);

// Errors is libjpeg's table of functions, with what they leave behind.
struct Errors : jpeg_error_mgr {
  LibraryError error;
};

[[noreturn]] void fail(j_common_ptr info) {
  auto& errors = static_cast<Errors&>(*info->err);
  char text[JMSG_LENGTH_MAX];
  info->err->format_message(info, text);
  std::snprintf(errors.error.message, sizeof errors.error.message, "%s", text);
  std::longjmp(errors.error.back, 1);  // NOLINT(cert-err52-cpp)
}
void fail_at_warning(j_common_ptr info, int level) {
  if (level < 0) fail(info);
}
// Many scans of a small file would each visit all of its pixels.
void check_scans(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= most_scans) return;
  auto& errors = static_cast<Errors&>(*info->err);
  std::snprintf(errors.error.message, sizeof errors.error.message, "over the limit of %d scans",
                most_scans);
  std::longjmp(errors.error.back, 1);  // NOLINT(cert-err52-cpp)
}

void set_errors(Errors& errors) {
  jpeg_std_error(&errors);
  errors.error_exit = fail;
  errors.emit_message = fail_at_warning;
}

struct Decompressor {
  Decompressor() {
    set_errors(errors);
    info.err = &errors;
    progress.progress_monitor = check_scans;
  }
  ~Decompressor() { jpeg_destroy_decompress(&info); }
  Decompressor(const Decompressor&) = delete;
  Decompressor& operator=(const Decompressor&) = delete;

  Errors errors{};
  jpeg_progress_mgr progress{};
  jpeg_decompress_struct info{};
};

// Returns EXIF's orientation, 1 to 8, of the directory of a TIFF header in an APP1 segment; 1 where
// there is none. Source: CIPA DC-008 (Exif 2.32), 4.6.4 and 4.7.2.
int orientation_of(std::span<const uint8_t> segment) {
  constexpr std::string_view magic("Exif\0\0", 6);
  constexpr size_t entry_bytes = 12;
  constexpr uint32_t orientation_tag = 0x0112, short_type = 3;
  if (segment.size() < magic.size() + 8 || !std::equal(magic.begin(), magic.end(), segment.begin()))
    return 1;
  const std::span<const uint8_t> tiff = segment.subspan(magic.size());
  const bool big = tiff[0] == 'M';
  const auto number = [&](size_t offset, size_t bytes) {
    uint32_t value = 0;
    for (size_t i = 0; i < bytes; ++i)
      value = value << 8 | tiff[big ? offset + i : offset + bytes - 1 - i];
    return value;
  };
  const size_t directory = number(4, 4);
  if (directory > tiff.size() - 2) return 1;
  const size_t entries = number(directory, 2);
  for (size_t i = 0; i < entries; ++i) {
    const size_t entry = directory + 2 + i * entry_bytes;
    if (entry + entry_bytes > tiff.size()) return 1;
    if (number(entry, 2) != orientation_tag || number(entry + 2, 2) != short_type) continue;
    const uint32_t value = number(entry + 8, 2);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

int orientation_of(const jpeg_decompress_struct& info) {
  for (jpeg_saved_marker_ptr marker = info.marker_list; marker != nullptr; marker = marker->next)
    if (marker->marker == exif_marker)
      return orientation_of(std::span<const uint8_t>(marker->data, marker->data_length));
  return 1;
}

// Orientations 5 to 8 swap the axes; of the two bits below, one mirrors rows, one columns.
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

// Replaces CMYK by RGB, as Pillow does. Adobe's files have it inverted: 255 is no ink.
void from_cmyk(Image& image, bool inverted) {
  const size_t count = image.pixels.size() / 4;
  for (size_t i = 0; i < count; ++i) {
    const auto ink = [&, pixel = image.pixels.data() + i * 4](size_t c) {
      return inverted ? 255 - pixel[c] : int{pixel[c]};
    };
    const int left = 255 - ink(3);
    int rgb[3];
    for (size_t c = 0; c < 3; ++c) {
      const int product = ink(c) * left + 128;
      rgb[c] = left - (((product >> 8) + product) >> 8);
    }
    std::copy_n(rgb, 3, image.pixels.data() + i * 3);
  }
  image.channels = 3;
  image.pixels.resize(count * 3);
}

struct Compressor {
  Compressor() {
    set_errors(errors);
    info.err = &errors;
  }
  ~Compressor() {
    jpeg_destroy_compress(&info);
    std::free(bytes);  // NOLINT(cppcoreguidelines-no-malloc): libjpeg allocated them
  }
  Compressor(const Compressor&) = delete;
  Compressor& operator=(const Compressor&) = delete;

  Errors errors{};
  jpeg_compress_struct info{};
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
};

}  // namespace

Image parse_jpeg(std::span<const std::byte> bytes, std::string_view name) {
  Decompressor decompressor;
  jpeg_decompress_struct& info = decompressor.info;
  LibraryError& error = decompressor.errors.error;
  const auto read_header = [&] {
    jpeg_create_decompress(&info);
    info.progress = &decompressor.progress;
    jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
    jpeg_save_markers(&info, exif_marker, 0xffff);
    jpeg_read_header(&info, TRUE);
    info.out_color_space = info.num_components == 1   ? JCS_GRAYSCALE
                           : info.num_components == 4 ? JCS_CMYK
                                                      : JCS_RGB;
    jpeg_calc_output_dimensions(&info);
  };
  if (!guarded(error, read_header)) throw image_error(name, error);
  Image image{.height = info.image_height,
              .width = info.image_width,
              .channels = info.out_color_components};
  check_image_size(name, image.width, image.height,
                   image.height * image.width / pixels_per_byte <= std::ssize(bytes), bytes.size());
  const int orientation = orientation_of(info);
  const auto stride = static_cast<size_t>(image.width * image.channels);
  image.pixels.resize(stride * static_cast<size_t>(image.height));
  const auto read_pixels = [&] {
    jpeg_start_decompress(&info);
    while (info.output_scanline < info.output_height) {
      JSAMPROW row = image.pixels.data() + info.output_scanline * stride;
      jpeg_read_scanlines(&info, &row, 1);
    }
    jpeg_finish_decompress(&info);
  };
  if (!guarded(error, read_pixels)) throw image_error(name, error);
  if (image.channels == 4) from_cmyk(image, info.saw_Adobe_marker != 0);
  return upright(std::move(image), orientation);
}

std::string jpeg_of(const Image& image, int quality) {
  WEFT_CHECK(image.channels == 1 || image.channels == 3,
             "[image] pictures have 1 or 3 channels. Got {}.", image.channels);
  WEFT_CHECK(quality >= 1 && quality <= 100, "[image] quality is from 1 to 100. Got {}.", quality);
  WEFT_CHECK(image.height >= 1 && image.width >= 1 && image.height <= most_jpeg_side &&
                 image.width <= most_jpeg_side,
             "[image] a JPEG has 1 to {} rows and columns. Got {} x {}.", most_jpeg_side,
             image.width, image.height);
  Compressor compressor;
  jpeg_compress_struct& info = compressor.info;
  const auto write = [&] {
    jpeg_create_compress(&info);
    jpeg_mem_dest(&info, &compressor.bytes, &compressor.size);
    info.image_height = static_cast<JDIMENSION>(image.height);
    info.image_width = static_cast<JDIMENSION>(image.width);
    info.input_components = static_cast<int>(image.channels);
    info.in_color_space = image.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&info);
    jpeg_set_quality(&info, quality, TRUE);
    jpeg_start_compress(&info, TRUE);
    while (info.next_scanline < info.image_height) {
      auto* row = const_cast<JSAMPROW>(image.pixels.data()) +
                  static_cast<size_t>(info.next_scanline) *
                      static_cast<size_t>(image.width * image.channels);
      jpeg_write_scanlines(&info, &row, 1);
    }
    jpeg_finish_compress(&info);
  };
  if (!guarded(compressor.errors.error, write))
    throw Error(ErrorKind::failed, "[image] cannot write a JPEG: {}.",
                std::string_view(compressor.errors.error.message));
  return {reinterpret_cast<const char*>(compressor.bytes), compressor.size};
}

}  // namespace weft::io
