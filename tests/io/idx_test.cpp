#include "weft/io/idx.h"

#include <cstring>

#include <doctest/doctest.h>
#include <zlib.h>

#include "tests/io/helpers.h"

using namespace weft;
using namespace weft::test;

namespace {

// Returns an IDX file: the type code, the extents, then `elements` verbatim.
std::string idx(int code, std::initializer_list<uint32_t> shape, std::string_view elements) {
  std::string bytes = {0, 0, static_cast<char>(code), static_cast<char>(shape.size())};
  for (uint32_t extent : shape)
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(extent >> shift);
  return bytes.append(elements);
}

std::string gzip(std::string_view bytes) {
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, 9, Z_DEFLATED, 16 + 15, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string packed(deflateBound(&stream, bytes.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

std::string idx_error(std::string_view bytes) {
  return error_of([&] { io::parse_idx(buffer_of(bytes), "f"); });
}

std::string elements_of(const io::IdxArray& array) {
  return {reinterpret_cast<const char*>(array.elements->data), array.elements->bytes};
}

}  // namespace

TEST_CASE("bytes are read plain and gzipped, from memory and from files") {
  std::string plain = idx(0x08, {2, 3}, "abcdef");
  TemporaryFolder folder;
  for (const std::string& bytes : {plain, gzip(plain)}) {
    for (const io::IdxArray& array :
         {io::parse_idx(buffer_of(bytes), "f"), io::read_idx(folder.file("f", bytes))}) {
      CHECK(array.dtype == DType::u8);
      CHECK(array.shape == Shape{2, 3});
      CHECK(elements_of(array) == "abcdef");
    }
  }
}

TEST_CASE("plain bytes are shared with the file and not copied") {
  auto bytes = buffer_of(idx(0x08, {3}, "abc"));
  CHECK(io::parse_idx(bytes, "f").elements->data == bytes->data + 8);
}

TEST_CASE("multi-byte elements are read as big-endian") {
  auto shorts = io::parse_idx(buffer_of(idx(0x0b, {2}, {"\x01\x02\xff\xfe", 4})), "f");
  CHECK(load_int(shorts.elements->data, DType::i16, 0) == 258);
  CHECK(load_int(shorts.elements->data, DType::i16, 1) == -2);
  auto ints = io::parse_idx(buffer_of(gzip(idx(0x0c, {1}, {"\x00\x01\x00\x00", 4}))), "f");
  CHECK(load_int(ints.elements->data, DType::i32, 0) == 65536);
  auto floats = io::parse_idx(buffer_of(idx(0x0d, {1}, {"\x3f\xc0\x00\x00", 4})), "f");
  CHECK(load(floats.elements->data, DType::f32, 0) == 1.5);
  auto doubles = io::parse_idx(buffer_of(idx(0x0e, {1}, {"\xc0\x04\0\0\0\0\0\0", 8})), "f");
  CHECK(load(doubles.elements->data, DType::f64, 0) == -2.5);
  auto small = io::parse_idx(buffer_of(idx(0x09, {1}, "\xff")), "f");
  CHECK(load_int(small.elements->data, DType::i8, 0) == -1);
}

TEST_CASE("an array without elements is read") {
  CHECK(io::parse_idx(buffer_of(idx(0x08, {0, 28, 28}, "")), "f").shape == Shape{0, 28, 28});
  CHECK(io::parse_idx(buffer_of(gzip(idx(0x0d, {0}, ""))), "f").elements->bytes == 0);
}

TEST_CASE("a damaged header is refused in one line with the offset") {
  CHECK(idx_error("") == "data: [idx] f: truncated: the header takes 4 bytes, 0 are left of 0.");
  CHECK(idx_error("PK\x03\x04") ==
        "data: [idx] f: wrong magic 504b0304, an IDX file begins with 0000.");
  CHECK(idx_error(idx(0x0a, {1}, "a")) ==
        "data: [idx] f: unknown element type 0x0a; known: 08 u8, 09 i8, 0b i16, 0c i32, 0d f32, 0e "
        "f64.");
  CHECK(idx_error(idx(0x08, {}, "")) == "data: [idx] f: rank 0 is outside 1 to 8.");
  CHECK(idx_error({"\0\0\x08\xff", 4}) == "data: [idx] f: rank 255 is outside 1 to 8.");
  CHECK(idx_error({"\0\0\x08\x02\0\0\0\x01\0", 9}) ==
        "data: [idx] f: truncated: the header takes 4 bytes, 1 are left of 9.");
  CHECK(idx_error(idx(0x08, {0x80000000u}, "a")) ==
        "data: [idx] f: axis 0 has extent 2147483648, over the limit of 2147483647.");
}

TEST_CASE("counts that the file cannot hold are refused before anything is allocated") {
  CHECK(idx_error(idx(0x08, {7}, "abc")) ==
        "data: [idx] f: the header counts u8[7], which take 7 bytes. Got 3.");
  CHECK(idx_error(idx(0x0b, {7}, "abc")) ==
        "data: [idx] f: the header counts i16[7], which take 14 bytes. Got 3.");
  uint32_t most = 0x7fffffff;
  CHECK(idx_error(idx(0x0e, {most, most, most, 0}, "")) ==
        "data: [idx] f: the header counts f64[2147483647, 2147483647, 2147483647, 0], more than "
        "any file "
        "holds.");
  CHECK(idx_error(gzip(idx(0x08, {60000, 28, 28}, "abc"))) ==
        "data: [idx] f: the header counts u8[60000, 28, 28], but the file cannot inflate to that.");
}

TEST_CASE("trailing bytes are refused, plain and gzipped, inside and after the stream") {
  CHECK(idx_error(idx(0x08, {2}, "abc")) ==
        "data: [idx] f: the header counts u8[2], which take 2 bytes. Got 3.");
  CHECK(idx_error(gzip(idx(0x08, {2}, "abc"))) ==
        "data: [idx] f: more bytes than the header counts.");
  CHECK(idx_error(gzip(idx(0x08, {2}, "ab")) + "xyz") ==
        "data: [idx] f: 3 bytes after the end of the gzip stream.");
}

TEST_CASE("concatenated gzip files are read as one") {
  std::string plain = idx(0x08, {6}, "abcdef");
  for (size_t cut = 0; cut <= plain.size(); ++cut) {
    std::string packed = gzip(plain.substr(0, cut)) + gzip("") + gzip(plain.substr(cut));
    CHECK(elements_of(io::parse_idx(buffer_of(packed), "f")) == "abcdef");
    CHECK(idx_error(packed + gzip("g")) == "data: [idx] f: more bytes than the header counts.");
    CHECK(idx_error(packed + "xyz") == "data: [idx] f: 3 bytes after the end of the gzip stream.");
    CHECK(idx_error(packed.substr(0, packed.size() - 1)).starts_with("data: [idx] f: truncated"));
  }
}

TEST_CASE("truncated and damaged gzip files are refused") {
  std::string packed = gzip(idx(0x08, {16}, "abcdefghijklmnop"));
  CHECK(idx_error(packed.substr(0, 20)) ==
        "data: [idx] f: truncated: the elements takes 16 bytes, the gzip stream has 1.");
  CHECK(idx_error(packed.substr(0, packed.size() - 3)) ==
        "data: [idx] f: truncated: the gzip trailer is missing.");
  std::string damaged = packed;
  damaged[packed.size() - 6] ^= 1;  // corrupts the checksum
  CHECK(idx_error(damaged) == "data: [idx] f: corrupt gzip data near byte " +
                                  std::to_string(packed.size() - 4) + " (incorrect data check).");
  CHECK(idx_error("\x1f\x8b\x07junk") ==
        "data: [idx] f: corrupt gzip data near byte 4 (unknown compression method).");
}

TEST_CASE("a gzip bomb is stopped at the size in the header") {
  std::string zeros(size_t{8} << 20, '\0');
  std::string bomb = gzip(idx(0x08, {10}, zeros));
  CHECK(bomb.size() < 10'000);
  CHECK(idx_error(bomb) == "data: [idx] f: more bytes than the header counts.");
}

TEST_CASE("every prefix of a file is refused without an out-of-bounds read") {
  std::string plain = idx(0x0b, {2, 2}, "abcdefgh"), packed = gzip(plain);
  for (const std::string& whole : {plain, packed})
    for (size_t length = 0; length < whole.size(); ++length)
      CHECK(idx_error(whole.substr(0, length)).starts_with("data: [idx] f: "));
}

TEST_CASE("a missing file and a folder are refused by name") {
  TemporaryFolder folder;
  CHECK(error_of([&] { io::read_idx(folder.file("none")); }) ==
        "data: cannot open " + folder.file("none") + ": No such file or directory.");
  CHECK(error_of([&] { io::read_idx(folder.path()); }) ==
        "data: cannot read " + folder.path() + ": not a regular file.");
}
