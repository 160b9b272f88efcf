#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include <jpeglib.h>

#include "weft/pictures/orientation.h"
#include "weft/pictures/parts.h"

namespace weft::pictures {
namespace {

constexpr int most_scans = 100;           // progressive files have about ten
constexpr int64_t pixels_per_byte = 512;  // a block of 8 x 8 takes a bit, at least
constexpr int exif_marker = JPEG_APP0 + 1;
static_assert(most_jpeg_side == JPEG_MAX_DIMENSION);

// Errors is libjpeg's table of error functions, with the message and the jump that they use.
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
// Bounds the scans, because each scan of a file, however small, visits all pixels.
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

// Returns the EXIF and XMP segments. Later EXIF segments continue the first, as in Pillow.
OrientationSources orientation_sources_of(const jpeg_decompress_struct& info) {
  constexpr std::string_view xmp_magic("http://ns.adobe.com/xap/1.0/\0", 29);
  OrientationSources sources;
  for (jpeg_saved_marker_ptr marker = info.marker_list; marker != nullptr; marker = marker->next) {
    const std::string_view segment(reinterpret_cast<const char*>(marker->data),
                                   marker->data_length);
    if (segment.starts_with(exif_magic)) sources.exif += segment.substr(exif_magic.size());
    if (segment.starts_with(xmp_magic)) sources.xmp = segment.substr(xmp_magic.size());
  }
  return sources;
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
  const int orientation = orientation_of(orientation_sources_of(info));
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

}  // namespace weft::pictures
