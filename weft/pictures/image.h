// Reads and writes pictures: JPEG by libjpeg-turbo, PNG by libpng. The first bytes of a file, not
// its name, say which it is.
//
// Pixels equal Pillow's Image.open(path).convert("RGB") or convert("L"): alpha is dropped, a
// palette is looked up, of 16 bits the upper 8 count, CMYK and colours become RGB and gray by the
// same formulas. Unlike in Pillow's convert(), the orientation that EXIF or XMP gives is applied,
// as by ImageOps.exif_transpose. Profiles and gamma are ignored.
//
// Errors and warnings of the libraries become an Error(data) of one line that names the file;
// truncated files are refused. Before memory is taken for pixels, their number is checked: at most
// 2^28, and no more than the file can hold, which is 512 for each byte of a JPEG (one bit for a
// block of 8 x 8) and 1032 bytes of rows for each byte of a PNG. A JPEG has at most 100 scans.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/data/resample.h"

namespace weft::pictures {

struct Image {
  int64_t height = 0, width = 0, channels = 0;
  std::vector<uint8_t> pixels = {};  // [H, W, C]
};

data::Planes planes_of(const Image& image);  // the same pixels, [C, H, W]

// Returns a picture of 3 channels (RGB) or 1 (gray).
Image read_image(const std::string& path, int channels = 3);
// Does the same from memory; messages say `name`.
Image parse_image(std::span<const std::byte> bytes, std::string_view name, int channels = 3);

// The most lines of a picture that is written, and the most pixels of a line: limits of the
// libraries.
inline constexpr int64_t most_jpeg_side = 65500, most_png_side = 1'000'000;

// Return the bytes of a file with an image of 1 or 3 channels, or of 4 (RGBA) in a PNG. `quality`
// is from 1 to 100.
std::string png_of(const Image& image);
std::string jpeg_of(const Image& image, int quality = 90);
// Returns the format by the ending of a path, in any case: .png, .jpg or .jpeg.
enum class ImageFormat { none, png, jpeg };
ImageFormat image_format(const std::string& path);
// Writes an image atomically, in the format of the path's ending. Throws Error(usage) for an ending
// that image_format() does not know.
void write_image(const std::string& path, const Image& image, int quality = 90);

}  // namespace weft::pictures
