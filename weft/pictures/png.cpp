#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include <png.h>

#include "weft/io/zip.h"
#include "weft/pictures/orientation.h"
#include "weft/pictures/parts.h"

namespace weft::pictures {
namespace {

static_assert(most_png_side <= PNG_USER_WIDTH_MAX);
static_assert(most_png_side <= PNG_USER_HEIGHT_MAX);

[[noreturn]] void fail(png_structp png, png_const_charp message) {
  auto& error = *static_cast<LibraryError*>(png_get_error_ptr(png));
  std::snprintf(error.message, sizeof error.message, "%s", message);
  std::longjmp(error.back, 1);  // NOLINT(cert-err52-cpp)
}

struct Input {
  std::span<const std::byte> left;
};
void read_bytes(png_structp png, png_bytep to, size_t count) {
  auto& input = *static_cast<Input*>(png_get_io_ptr(png));
  if (count > input.left.size()) fail(png, "the file is truncated");
  std::memcpy(to, input.left.data(), count);
  input.left = input.left.subspan(count);
}

// A Png holds the structures of libpng that read a file, or write one.
class Png {
 public:
  static Png reader() { return Png(png_create_read_struct); }
  static Png writer() { return Png(png_create_write_struct); }
  ~Png() {
    if (reads_)
      png_destroy_read_struct(&png, &info, nullptr);
    else
      png_destroy_write_struct(&png, &info);
  }
  Png(const Png&) = delete;
  Png& operator=(const Png&) = delete;

  LibraryError error;
  png_structp png = nullptr;
  png_infop info = nullptr;

 private:
  explicit Png(decltype(&png_create_read_struct) create)
      : reads_(create == png_create_read_struct) {
    png = create(PNG_LIBPNG_VER_STRING, &error, fail, fail);
    if (png != nullptr) info = png_create_info_struct(png);
    if (info == nullptr) throw Error(ErrorKind::failed, "[image] out of memory for a PNG.");
  }

  bool reads_;
};

// Output is written by a function that libpng calls, which must not throw.
struct Output {
  std::string bytes;
  bool out_of_memory = false;
};
void write_bytes(png_structp png, png_bytep from, size_t count) {
  auto& output = *static_cast<Output*>(png_get_io_ptr(png));
  try {
    output.bytes.append(reinterpret_cast<const char*>(from), count);
  } catch (const std::bad_alloc&) {
    output.out_of_memory = true;
  }
  if (output.out_of_memory) fail(png, "out of memory");
}

}  // namespace

Image parse_png(std::span<const std::byte> bytes, std::string_view name) {
  Png reader = Png::reader();
  Input input{bytes};
  png_structp png = reader.png;
  png_infop info = reader.info;
  const auto read_header = [&] {
    png_set_read_fn(png, &input, read_bytes);
    png_set_user_limits(png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // check_image_size() is below
    // libpng passes over chunks that say nothing about the values of pixels as they are read here,
    // as many files have faulty ones.
    static constexpr png_byte ignored[] =
        "bKGD\0cHRM\0eXIf\0gAMA\0hIST\0iCCP\0iTXt\0oFFs\0pCAL\0"
        "pHYs\0sBIT\0sCAL\0sPLT\0sRGB\0tEXt\0tIME\0tRNS\0zTXt";
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, ignored,
                                static_cast<int>(sizeof ignored / 5));
    png_read_info(png, info);
  };
  if (!guarded(reader.error, read_header)) throw image_error(name, reader.error);
  Image image{.height = png_get_image_height(png, info), .width = png_get_image_width(png, info)};
  const auto height = static_cast<size_t>(image.height);
  check_image_size(name, image.width, image.height,
                   png_get_rowbytes(png, info) <= io::deflate_largest_ratio * bytes.size() / height,
                   bytes.size());
  const auto set_form = [&] {
    const int type = png_get_color_type(png, info), bits = png_get_bit_depth(png, info);
    if (bits == 16) png_set_strip_16(png);
    if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
    if (type == PNG_COLOR_TYPE_GRAY && bits < 8) png_set_expand_gray_1_2_4_to_8(png);
    if ((type & PNG_COLOR_MASK_ALPHA) != 0) png_set_strip_alpha(png);
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
  };
  if (!guarded(reader.error, set_form)) throw image_error(name, reader.error);
  image.channels = png_get_channels(png, info);
  const auto stride = static_cast<size_t>(image.width * image.channels);
  WEFT_ASSERT(png_get_rowbytes(png, info) == stride, "a row of a PNG has other bytes");
  image.pixels.resize(stride * height);
  std::vector<png_bytep> rows(height);
  for (size_t y = 0; y < height; ++y) rows[y] = image.pixels.data() + y * stride;
  const auto read_pixels = [&] {
    png_read_image(png, rows.data());
    png_read_end(png, nullptr);
  };
  if (!guarded(reader.error, read_pixels)) throw image_error(name, reader.error);
  return upright(std::move(image), orientation_of(orientation_sources_of_png(bytes)));
}

std::string png_of(const Image& image) {
  WEFT_CHECK(image.channels == 1 || image.channels == 3 || image.channels == 4,
             "[image] pictures have 1, 3 or 4 channels. Got {}.", image.channels);
  Png writer = Png::writer();
  Output output;
  const auto stride = static_cast<size_t>(image.width * image.channels);
  const auto write = [&] {
    png_set_write_fn(writer.png, &output, write_bytes, nullptr);
    png_set_IHDR(writer.png, writer.info, static_cast<png_uint_32>(image.width),
                 static_cast<png_uint_32>(image.height), 8,
                 image.channels == 1   ? PNG_COLOR_TYPE_GRAY
                 : image.channels == 3 ? PNG_COLOR_TYPE_RGB
                                       : PNG_COLOR_TYPE_RGB_ALPHA,
                 PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(writer.png, writer.info);
    for (size_t y = 0; y < static_cast<size_t>(image.height); ++y)
      png_write_row(writer.png, image.pixels.data() + y * stride);
    png_write_end(writer.png, nullptr);
  };
  if (!guarded(writer.error, write))
    throw Error(ErrorKind::failed, "[image] cannot write a PNG: {}.",
                std::string_view(writer.error.message));
  return output.bytes;
}

}  // namespace weft::pictures
