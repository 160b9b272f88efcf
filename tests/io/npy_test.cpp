// The files here were written by NumPy 2.4.6, as the comments beside them say.
#include "weft/io/npy.h"

#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/io/helpers.h"
#include "weft/io/zip.h"

using namespace weft;
using namespace weft::test;

namespace {

std::string unhex(std::string_view digits) {
  std::string bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes += static_cast<char>(std::stoi(std::string(digits.substr(i, 2)), nullptr, 16));
  return bytes;
}

// Returns the header that numpy.save writes before the elements: `text`, padded to 128 bytes.
std::string header(std::string text, char version = 1) {
  std::string start = "\x93NUMPY";
  start += {version, 0};
  const size_t counted = version == 1 ? 2 : 4;
  text.resize(128 - start.size() - counted - 1, ' ');
  text += '\n';
  start += static_cast<char>(text.size());
  start.append(counted - 1, '\0');
  return start + text;
}

std::string array(std::string_view descr, bool fortran, std::string_view shape,
                  std::string_view hex, char version = 1) {
  return header(fmt::format("{{'descr': '{}', 'fortran_order': {}, 'shape': {}, }}", descr,
                            fortran ? "True" : "False", shape),
                version) +
         unhex(hex);
}

Tensor parsed_npy(const std::string& bytes) { return io::parse_npy(buffer_of(bytes), "f"); }
std::string npy_error(const std::string& bytes) {
  return error_of([&] { parsed_npy(bytes); });
}
std::string npz_error(const std::string& bytes) {
  return error_of([&] { io::parse_npz(buffer_of(bytes), "f"); });
}
std::string read_all(const std::string& path) { return io::read_file(path, size_t{1} << 20); }

// numpy.savez_compressed(f, a=numpy.arange(3, dtype='<i4'), b=numpy.ones((2, 1), '<f4'))
const std::string compressed = unhex(
    "504b03042d00000008000000210002ecbda9ffffffffffffffff05001400612e6e7079010010008c0000000000"
    "00004c000000000000009bec17ea1b10c9c850c650ad9e925a9c5ca46ea5a06e9369a2aea3a09e965f54529498"
    "179f5f94920a12774bcc294e058a17672416a402f91ac63a9a3a0ab50a14002e062060046226200600504b0304"
    "2d0000000800000021004c0e82e7ffffffffffffffff05001400622e6e70790100100088000000000000004c00"
    "0000000000009bec17ea1b10c9c850c650ad9e925a9c5ca46ea5a06e9366a2aea3a09e965f54529498179f5f94"
    "920a12774bcc294e058a17672416a402f91a463a0a869a3a0ab50a64032e0686067b100600504b01022d032d00"
    "000008000000210002ecbda94c0000008c000000050000000000000000000000800100000000612e6e7079504b"
    "01022d032d0000000800000021004c0e82e74c0000008800000005000000000000000000000080018300000062"
    "2e6e7079504b0506000000000200020066000000060100000000");

}  // namespace

TEST_CASE("arrays of both byte orders and both orders of axes are read") {
  // numpy.arange(6, dtype='<f4').reshape(2, 3), and the same with '>i2' in Fortran order
  const Tensor floats =
      parsed_npy(array("<f4", false, "(2, 3)", "000000000000803f0000004000004040000080400000a040"));
  CHECK(floats.type() == Type{DType::f32, {2, 3}});
  CHECK(floats.to_vector<float>() == std::vector<float>{0, 1, 2, 3, 4, 5});
  const Tensor whole = parsed_npy(array("<u4", false, "(2,)", "ffffffff00000080"));
  CHECK(whole.to_vector<uint32_t>() == std::vector<uint32_t>{0xffffffff, 0x80000000});
  const Tensor shorts = parsed_npy(array(">i2", true, "(2, 3)", "000000030001000400020005"));
  CHECK(shorts.type() == Type{DType::i16, {2, 3}});
  CHECK(shorts.to_vector<int16_t>() == std::vector<int16_t>{0, 1, 2, 3, 4, 5});
  // numpy.asfortranarray(numpy.arange(24, dtype='>i4').reshape(2, 3, 4))
  const Tensor cube = parsed_npy(
      array(">i4", true, "(2, 3, 4)",
            "000000000000000c00000004000000100000000800000014000000010000000d0000000500000011"
            "0000000900000015000000020000000e00000006000000120000000a00000016000000030000000f"
            "00000007000000130000000b00000017"));
  for (int i = 0; i < 24; ++i) CHECK(cube.to_vector<int32_t>()[static_cast<size_t>(i)] == i);
}

TEST_CASE("versions 1 to 3, scalars and empty arrays are read") {
  const Tensor whole = parsed_npy(
      array("<i8", false, "(3,)", "000000000000000001000000000000000200000000000000", 2));
  CHECK(whole.to_vector<int64_t>() == std::vector<int64_t>{0, 1, 2});
  const Tensor halves = parsed_npy(array("<f2", false, "(3,)", "0000003c0040", 3));
  CHECK(halves.dtype() == DType::f16);
  CHECK(halves.to_doubles() == std::vector<double>{0, 1, 2});
  CHECK(parsed_npy(array("|b1", false, "()", "01")).type() == Type{DType::boolean, {}});
  CHECK(parsed_npy(array("<f8", false, "(0,)", "")).elements() == 0);
  CHECK(parsed_npy(array("|u1", true, "(0, 4)", "")).shape() == Shape{0, 4});
}

TEST_CASE("dtypes that weft lacks are refused by name, and objects are never unpickled") {
  for (const char* dtype : {"<u8", "<c8", "<U5", "|S3", "<M8[s]", "|V2", "", "<"})
    CHECK(npy_error(array(dtype, false, "(1,)", "0000")) ==
          fmt::format("data: [npy] f: dtype '{}' is not read. Known: b1, u1, i1, u2, i2, u4, i4, "
                      "i8, f2, f4, f8.",
                      dtype));
  CHECK(npy_error(array("|O", false, "(1,)", "80049502")) ==
        "data: [npy] f: an array of objects holds pickled Python, which is not read.");
  CHECK(npy_error(header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }")) ==
        "data: [npy] f: arrays of records are not read.");
}

TEST_CASE("damaged headers are refused with the place") {
  CHECK(npy_error("") == "data: [npy] f: no array of NumPy, which begins with \\x93NUMPY.");
  CHECK(npy_error("\x93NUMPY\x01") ==
        "data: [npy] f: truncated: the header takes 10 bytes. Got 7.");
  CHECK(npy_error(header("", 4)) ==
        "data: [npy] f: version 4.0 is not known. Known: 1.0, 2.0, 3.0.");
  CHECK(npy_error(array("<f4", false, "(1,)", "").substr(0, 40)) ==
        "data: [npy] f: truncated: the header counts 118 bytes, 30 are left.");
  CHECK(npy_error(header("{'descr': '<f4', 'shape': (1,)}")) ==
        "data: [npy] f: the header lacks 'fortran_order'. At its byte 118.");
  CHECK(npy_error(header("{'shape': (1,), 'shape': (1,)}"))
            .starts_with("data: [npy] f: the header has 'shape' twice."));
  CHECK(npy_error(array("<f4", false, "(-1,)", ""))
            .starts_with("data: [npy] f: the header has an extent that is no count."));
  CHECK(npy_error(array("<f4", false, "(1,1,1,1,1,1,1,1,1)", ""))
            .starts_with("data: [npy] f: the header has more than 8 axes."));
  CHECK(npy_error(array("|b1", false, "(2,)", "0107")) ==
        "data: [npy] f: element 1 is 7, but dtype b1 has 0 and 1 only.");
}

TEST_CASE("shapes that the file does not hold are refused before anything is allocated") {
  CHECK(npy_error(array("<f4", false, "(3,)", "00000000")) ==
        "data: [npy] f: the header counts f32[3], which take 12 bytes. Got 4.");
  CHECK(npy_error(array("|u1", false, "(1,)", "0000")) ==
        "data: [npy] f: the header counts u8[1], which take 1 bytes. Got 2.");
  CHECK(npy_error(array("<f8", true, "(9223372036854775807, 0, 7)", "")) ==
        "data: [npy] f: the header counts f64[9223372036854775807, 0, 7], more than any file "
        "holds.");
}

TEST_CASE("an archive of compressed arrays is read, and refused when cut at any byte") {
  const std::vector<io::NamedTensor> arrays = io::parse_npz(buffer_of(compressed), "f");
  REQUIRE(arrays.size() == 2);
  CHECK(arrays[0].name == "a");
  CHECK(arrays[0].tensor.to_vector<int32_t>() == std::vector<int32_t>{0, 1, 2});
  CHECK(arrays[1].name == "b");
  CHECK(arrays[1].tensor.type() == Type{DType::f32, {2, 1}});
  CHECK(arrays[1].tensor.to_vector<float>() == std::vector<float>{1, 1});
  for (size_t bytes = 0; bytes < compressed.size(); ++bytes)
    CHECK(npz_error(compressed.substr(0, bytes)).starts_with("data: [zip] f: "));
}

TEST_CASE("archives whose directory and members disagree are refused") {
  const auto damaged = [](size_t offset, std::string_view bytes) {
    std::string changed = compressed;
    changed.replace(offset, bytes.size(), bytes);
    return npz_error(changed);
  };
  const size_t directory = compressed.find("PK\x01\x02"), second = directory + 51;
  CHECK(damaged(directory + 16, "\x01") ==
        "data: [zip] f: member 'a.npy' is damaged: its checksum is a9bdec02, not a9bdec01.");
  CHECK(damaged(directory + 24, "\x8d") ==
        "data: [zip] f: member 'a.npy' inflates to less than its size.");
  CHECK(damaged(directory + 24, "\x8b") ==
        "data: [npy] f: a.npy: the header counts i32[3], which take 12 bytes. Got 11.");
  CHECK(damaged(directory + 24, {"\0\0\0\x7f", 4}) ==
        "data: [zip] f: member 'a.npy' counts 2130706432 bytes, more than its 76 can inflate to.");
  const auto extra = static_cast<unsigned char>(compressed[28]);  // bytes behind the name
  CHECK(damaged(compressed.find("a.npy") + 5 + extra, "\x07") ==  // no kind of block
        "data: [zip] f: member 'a.npy' is no deflate stream.");
  CHECK(damaged(directory + 10, "\x0c") ==
        "data: [zip] f: member 'a.npy' is packed by method 12. Known: 0 (stored), 8 (deflated).");
  CHECK(damaged(directory + 8, "\x01") == "data: [zip] f: member 'a.npy' is encrypted.");
  CHECK(damaged(second + 42, {"\0", 1}) ==
        "data: [zip] f: member 'b.npy' overlaps another member.");
  CHECK(damaged(second + 46, "a") == "data: [zip] f: two members are called 'a.npy'.");
  CHECK(damaged(second + 48, "x") ==
        "data: [npz] f: member 'b.xpy' is no array: its name lacks .npy.");
  CHECK(damaged(compressed.size() - 12, "\xff").starts_with("data: [zip] f: the directory "));
}

TEST_CASE("an archive tells names and types before it inflates any array") {
  std::string changed = compressed;
  const size_t directory = changed.find("PK\x01\x02");
  changed[directory + 16] ^= 1;  // the checksum, which only the whole contents can fail
  const io::Npz archive(buffer_of(changed), "f");
  REQUIRE(archive.entries().size() == 2);
  CHECK(archive.entries()[0].name == "a");
  CHECK(archive.entries()[0].type == Type{DType::i32, {3}});
  CHECK(archive.entries()[1].type == Type{DType::f32, {2, 1}});
  CHECK(archive.read(1).to_vector<float>() == std::vector<float>{1, 1});
  CHECK(error_of([&] {
          archive.read(0);
        }).starts_with("data: [zip] f: member 'a.npy' is damaged: its checksum is "));
  const io::ZipArchive zip(buffer_of(compressed), "f");
  CHECK(zip.head(zip.members()[0], 6) == "\x93NUMPY");
  CHECK(zip.head(zip.members()[0], 1000).size() == 140);
  for (const char version : {2, 3})
    CHECK(npy_error("\x93NUMPY" + std::string{version, 0, 0, 0, 1, 0} + std::string(65536, ' ')) ==
          "data: [npy] f: the header counts 65536 bytes. At most 65535 are read.");
}

TEST_CASE("what is written is what numpy.load reads") {
  const TemporaryFolder folder;
  io::write_npy(folder.file("a.npy"), tensor({1, 2, 3}, {3, 1}).cast(DType::i32));
  // numpy.load("a.npy") gave [[1], [2], [3]] of int32 from these bytes.
  CHECK(read_all(folder.file("a.npy")) ==
        array("<i4", false, "(3, 1)", "010000000200000003000000"));
  io::write_npy(folder.file("b.npy"), tensor({1.5}, {1}).cast(DType::bf16));
  CHECK(read_all(folder.file("b.npy")) == array("<f4", false, "(1,)", "0000c03f"));
  io::write_npy(folder.file("c.npy"), tensor({1.0}, {}) > 0);
  CHECK(read_all(folder.file("c.npy")) == array("|b1", false, "()", "01"));
}

TEST_CASE("archives that are written are read again, whatever the dtype") {
  const TemporaryFolder folder;
  std::vector<io::NamedTensor> arrays;
  for (const DType dtype : {DType::boolean, DType::u8, DType::i8, DType::u16, DType::i16,
                            DType::u32, DType::i32, DType::i64, DType::f16, DType::f32, DType::f64})
    arrays.push_back({std::string(name(dtype)), tensor({0, 1, 1, 0, 1, 0}, {2, 3}).cast(dtype)});
  io::write_npz(folder.file("all.npz"), arrays);
  const std::vector<io::NamedTensor> again = io::read_npz(folder.file("all.npz"));
  REQUIRE(again.size() == arrays.size());
  for (size_t i = 0; i < again.size(); ++i) {
    CHECK(again[i].name == arrays[i].name);
    CHECK(again[i].tensor.type() == arrays[i].tensor.type());
    CHECK(again[i].tensor.to_doubles() == std::vector<double>{0, 1, 1, 0, 1, 0});
  }
  io::write_npz(folder.file("none.npz"), {});
  CHECK(io::read_npz(folder.file("none.npz")).empty());
  const io::NamedTensor twice[] = {arrays[0], arrays[0]};
  CHECK(error_of([&] { io::write_npz(folder.file("none.npz"), twice); }) ==
        "usage: [npz] two arrays are called 'bool'.");
}
