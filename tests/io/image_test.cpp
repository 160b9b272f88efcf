// The pictures in tests/io/pictures, and the pixels that Pillow reads from them, were written by
// tests/io/pictures/write.py.
#include "weft/pictures/image.h"

#include <cstdlib>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <zlib.h>

#include "tests/io/helpers.h"
#include "weft/io/files.h"
#include "weft/io/npy.h"

using namespace weft;
using namespace weft::test;

namespace {

std::string picture(const std::string& name) { return "tests/io/pictures/" + name; }
std::string contents(const std::string& name) {
  return io::read_file(picture(name), size_t{1} << 20);
}
pictures::Image parsed_image(std::string_view bytes, int channels = 3) {
  return pictures::parse_image(std::as_bytes(std::span(bytes)), "f", channels);
}
std::string image_error(std::string_view bytes) {
  return error_of([&] { parsed_image(bytes); });
}

void check_equal(const pictures::Image& image, const std::string& array) {
  const Tensor expected = io::read_npy(picture(array));
  CHECK(Shape{image.height, image.width, image.channels} == expected.shape());
  CHECK(image.pixels == expected.to_vector<uint8_t>());
}

void append(std::string& bytes, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
}
std::string chunk(const std::string& type, const std::string& data) {
  std::string bytes;
  append(bytes, static_cast<uint32_t>(data.size()));
  const std::string checked = type + data;
  bytes += checked;
  append(bytes, static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(checked.data()),
                                            static_cast<uInt>(checked.size()))));
  return bytes;
}
// Returns a PNG of these rows, each with its filter byte.
std::string png(uint32_t width, uint32_t height, char bits, char type, const std::string& rows,
                char interlaced = 0) {
  std::string header;
  append(header, width), append(header, height);
  header += {bits, type, 0, 0, interlaced};
  uLongf size = compressBound(static_cast<uLong>(rows.size()));
  std::string packed(size, '\0');
  compress(reinterpret_cast<Bytef*>(packed.data()), &size,
           reinterpret_cast<const Bytef*>(rows.data()), static_cast<uLong>(rows.size()));
  packed.resize(size);
  return "\x89PNG\r\n\x1a\n" + chunk("IHDR", header) + chunk("IDAT", packed) + chunk("IEND", "");
}

}  // namespace

TEST_CASE("PNGs of every kind have the pixels that Pillow reads") {
  for (const char* name : {"rgb", "rgba", "gray", "bits", "palette"}) {
    INFO(name);
    check_equal(pictures::read_image(picture(fmt::format("{}.png", name))),
                fmt::format("{}.npy", name));
  }
  check_equal(pictures::read_image(picture("rgb.png"), 1), "rgb.gray.npy");
}

TEST_CASE("JPEGs, progressive, gray and CMYK, have the pixels that Pillow reads") {
  for (const char* name : {"colours", "progressive", "gray_jpeg", "cmyk"}) {
    INFO(name);
    check_equal(pictures::read_image(picture(fmt::format("{}.jpg", name))),
                fmt::format("{}.npy", name));
  }
  check_equal(pictures::read_image(picture("colours.jpg"), 1), "colours.gray.npy");
}

TEST_CASE("the orientation of EXIF is applied as by Pillow's exif_transpose") {
  for (int orientation = 2; orientation <= 8; ++orientation) {
    INFO(orientation);
    check_equal(pictures::read_image(picture(fmt::format("turned{}.jpg", orientation))),
                fmt::format("turned{}.npy", orientation));
  }
}

TEST_CASE("PNGs are turned as their eXIf chunk, their raw profile or their XMP says") {
  // Pillow 13.0 gives these pixels of [[a, b, c], [d, e, f]].
  const auto turned = [&](const std::string& before, const std::string& behind = "",
                          const std::string& outside = "") {
    std::string file = png(3, 2, 8, 0, {"\0abc\0def", 8}) + outside;
    constexpr size_t header = 8 + 25, end = 12;  // bytes
    file.insert(file.size() - outside.size() - end, behind);
    file.insert(header, before);
    const pictures::Image image = parsed_image(file, 1);
    return fmt::format("{}x{} {}", image.width, image.height,
                       std::string(image.pixels.begin(), image.pixels.end()));
  };
  const auto exif = [](char orientation, char type = 3) {
    std::string tiff("MM\0*\0\0\0\x08\0\x01\x01\x12\0", 13);
    tiff += type;
    append(tiff, 1);
    append(tiff, type == 3 ? uint32_t(orientation) << 16 : uint32_t(orientation));
    append(tiff, 0);
    return tiff;
  };
  const auto text = [](const std::string& keyword, const std::string& text) {
    return chunk("tEXt", keyword + std::string(1, '\0') + text);
  };
  std::string profile = "\nexif\n      32\n457869660000";  // "Exif\0\0"
  for (const char byte : exif(8))
    profile += fmt::format("{:02x}{}", static_cast<unsigned char>(byte), byte == '*' ? "\n" : "");
  const std::string profile_name = "Raw profile type exif", xmp_name = "XML:com.adobe.xmp";
  CHECK(turned("") == "3x2 abcdef");
  CHECK(turned(chunk("eXIf", exif(2))) == "3x2 cbafed");
  CHECK(turned(chunk("eXIf", exif(6))) == "2x3 daebfc");
  CHECK(turned("", chunk("eXIf", exif(8))) == "2x3 cfbead");
  CHECK(turned("", "", chunk("eXIf", exif(8))) == "3x2 abcdef");  // behind the end
  CHECK(turned(chunk("eXIf", exif(6, 4))) == "2x3 daebfc");       // a LONG
  CHECK(turned(chunk("eXIf", exif(9))) == "3x2 abcdef");
  CHECK(turned(text(profile_name, profile)) == "2x3 cfbead");
  CHECK(turned(text(profile_name, profile) + chunk("eXIf", exif(2))) == "3x2 cbafed");
  CHECK(turned(text(xmp_name, "<x tiff:Orientation=\"6\"/>")) == "2x3 daebfc");
  CHECK(turned(text(xmp_name, "<tiff:Orientation>8<") + chunk("eXIf", exif(2))) == "3x2 cbafed");
  const std::string no_entries("MM\0*\0\0\0\x08\0\0\0\0\0\0", 14);
  CHECK(turned(text(xmp_name, "<tiff:Orientation>8<") + chunk("eXIf", no_entries)) == "2x3 cfbead");
}

TEST_CASE("EXIF counts behind another segment of its marker") {
  std::string file = contents("turned6.jpg");
  const std::string xmp = std::string("http://ns.adobe.com/xap/1.0/\0", 29) + "<x/>";
  file.insert(2, std::string("\xff\xe1\0", 3) + static_cast<char>(xmp.size() + 2) + xmp);
  CHECK(parsed_image(file).pixels == pictures::read_image(picture("turned6.jpg")).pixels);
}

TEST_CASE("of 16 bits the upper 8 count, and interlaced rows are put in order") {
  const std::string wide("\0\x12\x34\xff\x01", 5);  // filter 0, then the pixels 1234 and ff01
  CHECK(parsed_image(png(2, 1, 16, 0, wide), 1).pixels == std::vector<uint8_t>{0x12, 0xff});
  // Adam7 of 2 x 2: the first pass has pixel (0, 0), the sixth (0, 1), the seventh row 1.
  const std::string passes("\0a\0b\0cd", 7);
  CHECK(parsed_image(png(2, 2, 8, 0, passes, 1), 1).pixels ==
        std::vector<uint8_t>{'a', 'b', 'c', 'd'});
}

TEST_CASE("a picture cut at any byte is refused in one line") {
  for (const char* name :
       {"rgb.png", "palette.png", "colours.jpg", "progressive.jpg", "turned6.jpg"}) {
    const std::string whole = contents(name);
    for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
      INFO(name, " ", bytes);
      CHECK(image_error(whole.substr(0, bytes)).starts_with("data: [image] f"));
    }
  }
  CHECK(image_error("GIF89a") == "data: [image] f is neither a JPEG nor a PNG.");
  CHECK(image_error(contents("rgb.png").substr(0, 60)) ==
        "data: [image] f: the file is truncated.");
  CHECK(image_error(contents("colours.jpg").substr(0, 640)) ==
        "data: [image] f: Premature end of JPEG file.");
}

TEST_CASE("sizes that the file cannot hold are refused before memory is taken") {
  CHECK(image_error(png(16384, 16384, 8, 2, "abc")) ==
        "data: [image] f: 16384 x 16384 pixels are more than its 68 bytes can hold.");
  CHECK(image_error(png(2147483647, 2147483647, 1, 0, "abc")) ==
        "data: [image] f: 2147483647 x 2147483647 pixels are over the limit of 268435456.");
  std::string huge = contents("colours.jpg");
  const size_t frame = huge.find("\xff\xc0");
  REQUIRE(frame != std::string::npos);
  huge.replace(frame + 5, 4, "\x3f\xff\x3f\xff");
  CHECK(image_error(huge) ==
        fmt::format("data: [image] f: 16383 x 16383 pixels are more than its {} "
                    "bytes can hold.",
                    huge.size()));
  huge.replace(frame + 5, 4, "\xff\xdc\xff\xdc");
  CHECK(image_error(huge) ==
        "data: [image] f: 65500 x 65500 pixels are over the limit of 268435456.");
}

TEST_CASE("damaged pictures are refused with the library's words") {
  std::string damaged = contents("rgb.png");
  damaged[damaged.size() - 14] ^= 1;
  CHECK(image_error(damaged) == "data: [image] f: IDAT: CRC error.");
  damaged = contents("colours.jpg");
  damaged[damaged.find("\xff\xc0") + 4] = 12;  // bits of a sample
  CHECK(image_error(damaged) == "data: [image] f: Unsupported JPEG data precision 12.");
}

TEST_CASE("pictures are written as PNG without loss, and as JPEG near to their pixels") {
  const TemporaryFolder folder;
  for (const int channels : {1, 3}) {
    const pictures::Image image = pictures::read_image(picture("rgb.png"), channels);
    pictures::write_image(folder.file("a.png"), image);
    const pictures::Image again = pictures::read_image(folder.file("a.png"), channels);
    CHECK(again.pixels == image.pixels);
    CHECK(again.width == image.width);
  }
  const pictures::Image translucent{
      .height = 1, .width = 2, .channels = 4, .pixels = {1, 2, 3, 4, 5, 6, 7, 8}};
  pictures::write_image(folder.file("a.PNG"), translucent);
  CHECK(pictures::read_image(folder.file("a.PNG")).pixels ==
        std::vector<uint8_t>{1, 2, 3, 5, 6, 7});
  CHECK(error_of([&] { pictures::write_image(folder.file("a.jpg"), translucent); }) ==
        "usage: [image] pictures have 1 or 3 channels. Got 4.");
  const pictures::Image photograph = pictures::read_image(picture("progressive.jpg"));
  pictures::write_image(folder.file("a.jpg"), photograph, 95);
  const pictures::Image again = pictures::read_image(folder.file("a.jpg"));
  REQUIRE(again.pixels.size() == photograph.pixels.size());
  int largest = 0;
  for (size_t i = 0; i < again.pixels.size(); ++i)
    largest = std::max(largest, std::abs(again.pixels[i] - photograph.pixels[i]));
  CHECK(largest <= 16);  // chroma of 2 x 2 pixels is averaged
  CHECK(error_of([&] {
          pictures::write_image(folder.file("a.gif"), again);
        }).ends_with("a.gif: names of pictures end in .png, .jpg or .jpeg."));
  CHECK(error_of([&] { pictures::jpeg_of(again, 0); }) ==
        "usage: [image] quality is from 1 to 100. Got 0.");
}
