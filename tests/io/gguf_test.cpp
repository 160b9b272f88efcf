// Tests GGUF files: what the `gguf` package wrote (tests/reference/make_gguf.py), what weft writes,
// and everything that is refused.
#include "weft/io/gguf.h"

#include <cstring>
#include <filesystem>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/io/helpers.h"
#include "tests/support/gguf_reference.h"
#include "tests/support/values.h"
#include "weft/io/gguf_folder.h"
#include "weft/io/gguf_tokenizer.h"

using namespace weft;
using namespace weft::test;
using namespace weft::testing;
using io::Gguf;
using io::GgufArray;
using io::GgufMetadata;
using io::GgufTensor;
using io::GgufValue;

namespace {
// Builds the bytes of a file field by field.
struct Bytes {
  std::string bytes;

  template <class T>
  Bytes& add(T value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Bytes& u32(uint32_t value) { return add(value); }
  Bytes& u64(uint64_t value) { return add(value); }
  Bytes& text(std::string_view text) {
    u64(text.size());
    bytes += text;
    return *this;
  }
  Bytes& header(uint64_t tensors, uint64_t pairs, uint32_t version = 3) {
    bytes += "GGUF";
    return u32(version).u64(tensors).u64(pairs);
  }
  Bytes& tensor(std::string_view name, const std::vector<uint64_t>& extents, uint32_t type,
                uint64_t offset) {
    text(name).u32(static_cast<uint32_t>(extents.size()));
    for (uint64_t extent : extents) u64(extent);
    return u32(type).u64(offset);
  }
  // Pads to the alignment and adds bytes of data.
  Bytes& data(size_t count, size_t alignment = 32) {
    bytes.resize((bytes.size() + alignment - 1) / alignment * alignment + count, '\1');
    return *this;
  }
};
enum : uint32_t { f32 = 0, q4_0 = 2, q4_k = 12 };

Gguf parse_gguf(std::string_view bytes) { return Gguf::parse(buffer_of(bytes), "f"); }
// Returns what is wrong with a file, after "data: [gguf] f: ".
std::string problem_of(const Bytes& file) {
  const std::string error = error_of([&] { parse_gguf(file.bytes); });
  const std::string_view start = "data: [gguf] f: ";
  return error.starts_with(start) ? error.substr(start.size()) : error;
}

template <class T>
T value_of(const Gguf& file, std::string_view key) {
  const GgufValue* value = io::find(file.metadata(), key);
  REQUIRE(value != nullptr);
  REQUIRE(std::holds_alternative<T>(*value));
  return std::get<T>(*value);
}
template <class T>
std::vector<T> array_of(const Gguf& file, std::string_view key) {
  const auto array = value_of<GgufArray>(file, key);
  REQUIRE(std::holds_alternative<std::vector<T>>(array));
  return std::get<std::vector<T>>(array);
}

void check_reference(const Gguf& file) {
  REQUIRE(file.entries().size() == 12);
  CHECK(file.entries()[0].name == "plain.F32");
  CHECK(file.entries()[0].type == Type{DType::f32, {3, 5}});
  CHECK(value_of<std::string>(file, "general.architecture") == "test");
  CHECK(value_of<uint8_t>(file, "a.u8") == 200);
  CHECK(value_of<int8_t>(file, "a.i8") == -100);
  CHECK(value_of<uint16_t>(file, "a.u16") == 60000);
  CHECK(value_of<int16_t>(file, "a.i16") == -30000);
  CHECK(value_of<uint32_t>(file, "a.u32") == 4000000000);
  CHECK(value_of<int32_t>(file, "a.i32") == -2000000000);
  CHECK(value_of<float>(file, "a.f32") == 0.1F);
  CHECK(value_of<bool>(file, "a.bool"));
  CHECK(value_of<std::string>(file, "a.text") == "zwölf\n");
  CHECK(value_of<uint64_t>(file, "a.u64") == (uint64_t{1} << 63) + 1);
  CHECK(value_of<int64_t>(file, "a.i64") == -(int64_t{1} << 62));
  CHECK(value_of<double>(file, "a.f64") == 0.1);
  CHECK(array_of<int32_t>(file, "a.numbers") == std::vector<int32_t>{1, 2, 3});
  CHECK(array_of<std::string>(file, "a.texts") == std::vector<std::string>{"a", "", "ccc"});
  CHECK(array_of<float>(file, "a.fractions") == std::vector<float>{0.5F, -0.25F});
  CHECK(array_of<bool>(file, "a.flags") == std::vector<bool>{true, false});
  for (const char* name : {"plain.F32", "plain.F16", "plain.BF16"}) {
    INFO(name);
    const std::vector<float> want = gguf_numbers(name);
    CHECK(elements(file.tensor(name)) == std::vector<double>(want.begin(), want.end()));
  }
  CHECK(file.tensor("plain.I32").to_vector<int32_t>() == std::vector<int32_t>{0, 1, 2, 3, 4, 5});
}
}  // namespace

TEST_CASE("a file of the gguf package is read with all of its types and values") {
  const Gguf file = Gguf::open(reference_gguf);
  check_reference(file);
  const auto* blocks = file.find("blocks.Q4_K");
  REQUIRE(blocks != nullptr);
  CHECK(blocks->shape() == Shape{2, 512});
  CHECK(blocks->type == Type{DType::u8, {2, 2, 144}});
  CHECK(blocks->type_name() == "Q4_K");
  CHECK(file.find("blocks") == nullptr);
  CHECK(error_of([&] { file.tensor("x\n"); }) ==
        fmt::format("data: [gguf] {}: no tensor 'x\\x0a' among its 12.", reference_gguf));
  // Blocks are the bytes of the file.
  CHECK(file.tensor("blocks.Q4_K")->data() == file.bytes(*blocks).data());
}

TEST_CASE("what weft writes is what the package wrote") {
  const Gguf file = Gguf::open(reference_gguf);
  std::vector<GgufTensor> tensors;
  for (const auto& entry : file.entries())
    tensors.push_back({entry.name, entry.type, entry.format, file.bytes(entry)});
  const TemporaryFolder folder;
  io::write_gguf(folder.file("copy.gguf"), tensors, file.metadata());
  // The package, too, writes in the order given and pads with zeros.
  CHECK(contents_of(folder.file("copy.gguf")) == contents_of(reference_gguf));

  GgufMetadata metadata = file.metadata();
  metadata.emplace_back(io::gguf_alignment_key, uint32_t{128});
  io::write_gguf(folder.file("aligned.gguf"), tensors, metadata);
  const Gguf aligned = Gguf::open(folder.file("aligned.gguf"));
  check_reference(aligned);
  for (const auto& entry : aligned.entries()) CHECK(entry.offset % 128 == 0);
}

TEST_CASE("versions 2 and 3 are read, files without tensors and tensors without elements") {
  for (uint32_t version : {2, 3})
    CHECK(parse_gguf(Bytes().header(0, 0, version).bytes).entries().empty());
  const Gguf empty = parse_gguf(Bytes().header(1, 0).tensor("a", {0, 3}, f32, 0).data(0).bytes);
  CHECK(empty.entries()[0].type == Type{DType::f32, {3, 0}});
  const Gguf number = parse_gguf(Bytes().header(1, 0).tensor("a", {}, f32, 0).data(4).bytes);
  CHECK(number.entries()[0].type == Type{DType::f32, {}});
  const Gguf blocks =
      parse_gguf(Bytes().header(1, 0).tensor("a", {64, 3}, q4_0, 0).data(108).bytes);
  CHECK(blocks.entries()[0].type == Type{DType::u8, {3, 2, 18}});
}

TEST_CASE("a file that is cut at any byte is refused") {
  const std::string whole = contents_of(reference_gguf);
  const Gguf file = Gguf::open(reference_gguf);
  size_t end = 0;  // behind it is padding
  for (const auto& entry : file.entries()) end = std::max(end, entry.offset + entry.type.bytes());
  CHECK(error_of([&] { parse_gguf(whole.substr(0, end)); }) == "none");
  for (size_t size = 0; size < end; ++size) {
    INFO(size);
    CHECK(error_of([&] {
            parse_gguf(std::string_view(whole).substr(0, size));
          }).starts_with("data: [gguf] f: "));
  }
}

TEST_CASE("what is no GGUF file of a known version is refused") {
  Bytes other;
  other.bytes = "{}";
  CHECK(problem_of({}) ==
        "the header: 4 bytes at byte 0 are beyond the file's 0; the file is truncated or damaged.");
  CHECK(problem_of(other) == "it does not begin with 'GGUF': not a GGUF file.");
  CHECK(problem_of(Bytes().header(0, 0, 1)) == "version 1; weft reads 2 and 3.");
  CHECK(problem_of(Bytes().header(0, 0, 4)) == "version 4; weft reads 2 and 3.");
  CHECK(problem_of(Bytes().header(0, 0, 0x03000000)) ==
        "it is big-endian; weft reads little-endian files.");
}

TEST_CASE("counts and lengths beyond the file are refused before memory is allocated") {
  const uint64_t absurd = uint64_t{1} << 62;
  CHECK(problem_of(Bytes().header(absurd, 0)) ==
        "the header: 4611686018427387904 tensors of at least 24 bytes, but 0 bytes follow; the "
        "file is truncated or damaged.");
  CHECK(problem_of(Bytes().header(0, absurd).data(100)) ==
        "the header: 4611686018427387904 metadata of at least 13 bytes, but 108 bytes follow; the "
        "file is truncated or damaged.");
  CHECK(problem_of(Bytes().header(0, 1).u64(absurd).data(100)) ==
        "the key of metadata 1 of 1: 4611686018427387904 bytes at byte 32 are beyond the file's "
        "132; the file is truncated or damaged.");
  CHECK(problem_of(Bytes().header(0, 1).text("k").u32(8).u64(absurd).data(100)) ==
        "metadata 'k': 4611686018427387904 bytes at byte 45 are beyond the file's 164; the file "
        "is truncated or damaged.");
  CHECK(problem_of(Bytes().header(0, 1).text("k").u32(9).u32(12).u64(absurd).data(7)) ==
        "metadata 'k': 4611686018427387904 elements of at least 8 bytes, but 22 bytes follow; the "
        "file is truncated or damaged.");
  CHECK(problem_of(Bytes().header(1, 0).text("t").u32(4000000000).data(100)) ==
        "tensor 't': rank 4000000000, over the limit of 4.");
  CHECK(problem_of(Bytes().header(1, 0).tensor("t", {absurd, 4}, f32, 0).data(100)) ==
        "tensor 't': its extents 4611686018427387904, 4 are too large.");
  CHECK(problem_of(Bytes().header(1, 0).tensor("t", {absurd, 0, absurd}, f32, 0).data(100)) ==
        "tensor 't': its extents 4611686018427387904, 0, 4611686018427387904 are too large.");
  CHECK(problem_of(Bytes().header(1, 0).tensor("t", {uint64_t{1} << 63}, f32, 0).data(100)) ==
        "tensor 't': its extents 9223372036854775808 are too large.");
  CHECK(problem_of(Bytes().header(1, 0).tensor("t", {25}, f32, 0).data(96)) ==
        "tensor 't': its 100 bytes at byte 64 are beyond the file's 160; the file is truncated or "
        "damaged.");
  CHECK(problem_of(Bytes().header(1, 0).tensor("t", {1}, f32, absurd).data(96)) ==
        "tensor 't': its 4 bytes at byte 4611686018427387968 are beyond the file's 160; the file "
        "is truncated or damaged.");
  CHECK(problem_of(Bytes().header(1, 0).tensor("t", {1}, f32, ~uint64_t{31}).data(96)) ==
        "tensor 't': offset 18446744073709551584 is too large.");
}

TEST_CASE("values of metadata that the format does not have are refused") {
  CHECK(problem_of(Bytes().header(0, 1).text("k").u32(13).data(64)) ==
        "metadata 'k': unknown type 13.");
  CHECK(problem_of(Bytes().header(0, 1).text("k").u32(9).u32(13).u64(0).data(64)) ==
        "metadata 'k': unknown type 13 of elements.");
  CHECK(problem_of(Bytes().header(0, 1).text("k").u32(9).u32(9).u64(0).data(64)) ==
        "metadata 'k': an array of arrays.");
  CHECK(problem_of(Bytes().header(0, 1).text("k").u32(7).add('\2').data(64)) ==
        "metadata 'k': a bool is 2, not 0 or 1.");
  CHECK(problem_of(Bytes().header(0, 2).text("k").u32(4).u32(0).text("k").u32(4).u32(0).data(9)) ==
        "metadata 'k' is there twice.");
  const auto aligned = [](uint32_t alignment) {
    return Bytes().header(0, 1).text("general.alignment").u32(4).u32(alignment).data(9);
  };
  CHECK(problem_of(aligned(48)) == "general.alignment is 48, which is no power of two.");
  CHECK(problem_of(aligned(0)) == "general.alignment is 0, which is no power of two.");
  CHECK(problem_of(aligned(1U << 31)) == "none");
  CHECK(problem_of(Bytes().header(0, 1).text("general.alignment").u32(10).u64(32).data(9)) ==
        "general.alignment is not a u32.");
}

TEST_CASE("types, sizes and places of tensors that weft does not read are refused by name") {
  CHECK(problem_of(Bytes().header(1, 0).tensor("t", {256}, 10, 0).data(84)) ==
        "tensor 't': weft does not read type 10 (Q2_K).");
  CHECK(problem_of(Bytes().header(1, 0).tensor("t", {256}, 99, 0).data(84)) ==
        "tensor 't': weft does not read type 99.");
  CHECK(problem_of(Bytes().header(1, 0).tensor("t", {48}, q4_0, 0).data(84)) ==
        "tensor 't': rows of 48 are no whole blocks of Q4_0, which have 32 numbers.");
  CHECK(problem_of(Bytes().header(1, 0).tensor("t", {32, 8}, q4_k, 0).data(144)) ==
        "tensor 't': rows of 32 are no whole blocks of Q4_K, which have 256 numbers.");
  CHECK(problem_of(Bytes().header(1, 0).tensor("t", {}, q4_0, 0).data(84)) ==
        "tensor 't': rows of 1 are no whole blocks of Q4_0, which have 32 numbers.");
  CHECK(problem_of(Bytes().header(1, 0).tensor("t", {1}, f32, 4).data(84)) ==
        "tensor 't': offset 4 is no multiple of the alignment, 32.");
  const auto two = [](std::string_view name, uint64_t offset) {
    return Bytes().header(2, 0).tensor("a", {9}, f32, 0).tensor(name, {1}, f32, offset).data(84);
  };
  CHECK(problem_of(two("b", 64)) == "none");
  CHECK(problem_of(two("b", 32)) == "tensors 'a' and 'b' overlap at byte 128.");
  CHECK(problem_of(two("a", 64)) == "tensor 'a' is there twice.");
}

TEST_CASE(
    "a text ends at the token that the file names, and at those that are known by their text") {
  GgufMetadata metadata{
      {"general.architecture", std::string("llama")},
      {"tokenizer.ggml.tokens", GgufArray(std::vector<std::string>{"<|im_end|>", "a"})},
      {"tokenizer.ggml.eos_token_id", uint32_t{1}}};
  const auto ends = [&] {
    const TemporaryFolder folder;
    const std::string path = folder.file("m.gguf");
    io::write_gguf(path, {}, metadata);
    const auto text = io::text_of_folder(Gguf::open(path), "generation_config.json");
    return nlohmann::json::parse(text.value())["eos_token_id"];
  };
  CHECK(ends() == 1);  // a file without the kinds of its tokens
  metadata.emplace_back(
      "tokenizer.ggml.token_type",
      GgufArray(std::vector<int32_t>{io::GgufTokenKind::control, io::GgufTokenKind::normal}));
  CHECK(ends() == nlohmann::json{1, 0});
}

TEST_CASE("a part of a split model is refused as such") {
  const TemporaryFolder folder;
  const std::string path = folder.file("m-00001-of-00003.gguf");
  io::write_gguf(path, {}, GgufMetadata{{"split.count", uint16_t{3}}, {"split.no", uint16_t{0}}});
  CHECK(error_of([&] { io::published(Gguf::open(path)); }) ==
        "usage: [gguf] " + path +
            ": it is one of the 3 files of a split model, which weft does not read. Hint: "
            "llama-gguf-split --merge joins them.");
}

TEST_CASE("what a file cannot hold is not written") {
  const TemporaryFolder folder;
  const std::string path = folder.file("x.gguf");
  const std::vector<std::byte> bytes(18);
  const BlockFormat& format = block_format("Q4_0");
  const auto error = [&](std::vector<GgufTensor> tensors, const GgufMetadata& metadata = {}) {
    std::string message = error_of([&] { io::write_gguf(path, tensors, metadata); });
    CHECK(folder.entries() == 0);
    return message;
  };
  const GgufTensor blocks{"a", {DType::u8, {1, 18}}, &format, bytes};
  CHECK(error({blocks, blocks}) ==
        fmt::format("usage: [gguf] the name 'a' is there twice; {} was not written.", path));
  CHECK(error({}, {{"k", 1.0}, {"k", true}}) ==
        fmt::format("usage: [gguf] the name 'k' is there twice; {} was not written.", path));
  CHECK(error({{"a", {DType::u8, {18}}, nullptr, bytes}}) ==
        "usage: [gguf] the format has no type for 'a'. Got u8.");
  CHECK(error({{"a", {DType::u8, {2, 9}}, &format, bytes}}) ==
        "usage: [gguf] blocks of Q4_0 must be u8[.., blocks, 18]. 'a' is u8[2, 9].");
  CHECK(error({{"a", {DType::u8, {1, 1, 1, 1, 1, 18}}, &format, bytes}}) ==
        "usage: [gguf] 'a' has rank 5, over the limit of 4.");
  CHECK(error({{std::string(64, 'x'), {DType::u8, {1, 18}}, &format, bytes}})
            .ends_with("has 64 bytes, over llama.cpp's limit of 63."));
  CHECK(error({{"\xff", {DType::u8, {1, 18}}, &format, bytes}}) ==
        "usage: [gguf] '\\xff' is not valid UTF-8.");
  CHECK(error({}, {{"general.alignment", uint32_t{24}}})
            .starts_with("usage: [gguf] general.alignment is 24, which is no power of two; "));
  CHECK(error({}, {{"k", GgufArray(io::NoArrays())}}) ==
        "usage: [gguf] an array of arrays cannot be written.");
}
