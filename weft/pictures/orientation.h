// Reads from a picture's metadata how its pixels are to be turned, and turns them, as Pillow's
// ImageOps.exif_transpose does.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "weft/pictures/image.h"

namespace weft::pictures {

// The segments of a file that may say its orientation; each is "" where the file has none.
struct OrientationSources {
  std::string exif;  // a TIFF header with its directories, behind "Exif\0\0" or not
  std::string xmp;   // XML
};

inline constexpr std::string_view exif_magic("Exif\0\0", 6);

// Returns EXIF's orientation, 1 to 8. XMP's tiff:Orientation counts where EXIF has none. Without a
// readable orientation it is 1, upright. Source: CIPA DC-008 (Exif 2.32), 4.6.4 and 4.7.2.
int orientation_of(const OrientationSources& sources);

// Returns the sources that a PNG has: the chunk eXIf, or else the text "Raw profile type exif" that
// ImageMagick writes, and the text "XML:com.adobe.xmp". Chunks that are damaged are passed over.
// Source: PNG (third edition), 11.3.3 and 11.3.4.5.
OrientationSources orientation_sources_of_png(std::span<const std::byte> file);

// Returns the picture turned upright; `orientation` as orientation_of() returns it.
Image upright(Image image, int orientation);

}  // namespace weft::pictures
