#include "weft/io/safetensors.h"

#include <cstring>

#include <doctest/doctest.h>

#include "tests/io/helpers.h"
#include "tests/io/safetensors_file.h"
#include "weft/io/files.h"
#include "weft/io/load.h"

using namespace weft;
using namespace weft::test;
using io::NamedBytes;
using io::Safetensors;

namespace {

Safetensors parse_safetensors(std::string_view bytes) {
  return Safetensors::parse(buffer_of(bytes), "f");
}

std::string safetensors_error(std::string_view bytes) {
  return error_of([&] { parse_safetensors(bytes); });
}
std::string header_error(std::string_view header, std::string_view data = "") {
  return safetensors_error(safetensors_file(header, data));
}

std::string entry(std::string_view fields) { return fmt::format("{{\"a\":{{{}}}}}", fields); }

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

TEST_CASE("a hand-written file is read without a copy") {
  auto file = buffer_of(safetensors_file(
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
      R"("a":{"shape":[3],"dtype":"U8","data_offsets":[8,11]},"s":{"dtype":"BOOL","shape":[],)"
      R"("data_offsets":[11,12]}}  )",
      {"\0\0\x80\x3f\0\0\0\xc0xyz\x01", 12}));
  Safetensors opened = Safetensors::parse(file, "f");
  REQUIRE(opened.entries().size() == 3);
  CHECK(opened.entries()[0].name == "a");
  CHECK(opened.entries()[0].type == Type{DType::u8, {3}});
  CHECK(opened.entries()[1].type == Type{DType::f32, {1, 2}});
  CHECK(opened.entries()[2].type == Type{DType::boolean, {}});
  CHECK(text_of(opened.bytes(opened.entries()[0])) == "xyz");
  CHECK(opened.metadata() == io::Metadata{{"format", "pt"}});
  CHECK(opened.find("c") == nullptr);
  CHECK(error_of([&] { opened.tensor("c"); }) == "checkpoint: f: no tensor 'c' among its 3.");
  Tensor a = opened.tensor("a");
  CHECK(a->data() == file->data + file->bytes - 4);
}

TEST_CASE("misaligned tensors are copied into place") {
  std::string header = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  for (int spaces = 0; spaces < 4; ++spaces) {
    Safetensors file = parse_safetensors(safetensors_file(
        header + std::string(static_cast<size_t>(spaces), ' '), {"\0\0\x80\x3f\0\0\0\xc0", 8}));
    CHECK(file.tensor("a").to_vector<float>() == std::vector<float>{1, -2});
  }
}

TEST_CASE("a file without tensors is valid") {
  CHECK(parse_safetensors(safetensors_file("{}", "")).entries().empty());
  Safetensors zero = parse_safetensors(
      safetensors_file(entry(R"("dtype":"I64","shape":[0,3],"data_offsets":[0,0])"), ""));
  CHECK(zero.entries()[0].type.bytes() == 0);
}

TEST_CASE("an invalid header size is refused") {
  CHECK(safetensors_error("abc") ==
        "checkpoint: [safetensors] f: 3 bytes are too few for a header.");
  CHECK(safetensors_error({"\x40\0\0\0\0\0\0\0{}", 10}) ==
        "checkpoint: [safetensors] f: header of 64 bytes, but the file has 10; truncated.");
  CHECK(safetensors_error("\xff\xff\xff\xff\xff\xff\xff\xff{}") ==
        "checkpoint: [safetensors] f: header of 18446744073709551615 bytes, over the limit of "
        "100000000: not a safetensors file.");
  CHECK(header_error("") == "checkpoint: [safetensors] f: the header does not begin with '{'.");
  CHECK(header_error(" {}") == "checkpoint: [safetensors] f: the header does not begin with '{'.");
}

TEST_CASE("a header that is not the expected JSON is refused") {
  auto problem = [](std::string_view header) {
    std::string error = header_error(header);
    std::string_view start = "checkpoint: [safetensors] f: ";
    CHECK(error.starts_with(start));
    return error.substr(std::min(start.size(), error.size()));
  };
  CHECK(problem("{") == "the header is not valid JSON near its byte 2.");
  CHECK(problem("{}{}").starts_with("the header is not valid JSON"));
  CHECK(problem("{\"a\xff\":1}").starts_with("the header is not valid JSON"));
  CHECK(problem(R"({"a":1})") == "a number stands out of place.");
  CHECK(problem(R"({"a":[]})") == "a list stands out of place.");
  CHECK(problem(R"({"a":null})") == "null stands out of place.");
  CHECK(problem(R"({"a":true})") == "a boolean stands out of place.");
  CHECK(problem(R"({"a":"x"})") == "text stands where a number, a list or an object should.");
  CHECK(problem(R"({"a":{"dtype":{}}})") == "an object stands where a value should.");
  CHECK(problem(R"({"a":{"shape":[[1]]}})") == "a list stands out of place.");
  CHECK(problem(R"({"a":{"shape":[{}]}})") == "an object stands where a value should.");
  CHECK(problem(R"({"a":{"shape":[-1]}})") == "a negative number stands out of place.");
  CHECK(problem(R"({"a":{"shape":[1.5]}})") == "a fraction or huge number stands out of place.");
  CHECK(problem(R"({"a":{"shape":["1"]}})") ==
        "text stands where a number, a list or an object should.");
  CHECK(problem(R"({"__metadata__":{"k":1}})") == "a number stands out of place.");
  CHECK(problem(R"({"__metadata__":{"k":"1","k":"2"}})") ==
        "a key of __metadata__ is there twice.");
  std::string deep(100'000, '[');
  CHECK(problem("{\"a\":" + deep) == "a list stands out of place.");
}

TEST_CASE("an invalid entry is refused by its tensor") {
  auto problem = [](std::string_view fields, std::string_view data = "") {
    std::string error = header_error(entry(fields), data);
    std::string_view start = "checkpoint: [safetensors] f: tensor 'a': ";
    CHECK(error.starts_with(start));
    return error.substr(std::min(start.size(), error.size()));
  };
  CHECK(problem("") == "dtype, shape or two data_offsets are missing.");
  CHECK(problem(R"("dtype":"U8","shape":[0])") == "dtype, shape or two data_offsets are missing.");
  CHECK(problem(R"("dtype":"U8","shape":[0],"data_offsets":[0])") ==
        "dtype, shape or two data_offsets are missing.");
  CHECK(problem(R"("data_offsets":[0,1,2])") == "data_offsets has more than two numbers.");
  CHECK(problem(R"("dtype":"F6_E2M3")") == "unknown dtype 'F6_E2M3'.");
  CHECK(problem(R"("strides":[1])") == "unknown key 'strides'.");
  CHECK(problem(R"("shape":[1],"shape":[1])") == "key 'shape' is there twice.");
  CHECK(problem(R"("data_offsets":[0,1],"data_offsets":[0,1])") ==
        "key 'data_offsets' is there twice.");
  CHECK(problem(R"("shape":[1,1,1,1,1,1,1,1,1])") == "rank is over the limit of 8.");
  CHECK(problem(R"("shape":[9223372036854775808])") == "an extent is over the limit of 2^63 - 1.");
  CHECK(problem(R"("dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0])") ==
        "shape [4611686018427387904, 4] is too large.");
  CHECK(problem(R"("dtype":"U8","shape":[0,9223372036854775807,9],"data_offsets":[0,0])") ==
        "shape [0, 9223372036854775807, 9] is too large.");
  CHECK(problem(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])", "abcd") ==
        "f32[2] does not take the 4 bytes of its data_offsets.");
  CHECK(problem(R"("dtype":"U8","shape":[2],"data_offsets":[4,2])", "abcd") ==
        "data_offsets run backwards.");
}

TEST_CASE("entries must cover the data without gaps and overlaps") {
  auto two = [](int a, int b, int c, int d) {
    return fmt::format(R"({{"a":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}},)"
                       R"("b":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}}}})",
                       b - a, a, b, d - c, c, d);
  };
  CHECK(header_error(two(0, 2, 2, 4), "abcd") == "none");
  CHECK(header_error(two(2, 4, 0, 2), "abcd") == "none");
  CHECK(header_error(two(0, 3, 2, 4), "abcd") ==
        "checkpoint: [safetensors] f: tensors 'a' and 'b' overlap at byte 2.");
  CHECK(header_error(two(0, 1, 2, 4), "abcd") ==
        "checkpoint: [safetensors] f: bytes 1 to 2 belong to no tensor.");
  CHECK(header_error(two(0, 2, 2, 4), "abcde") ==
        "checkpoint: [safetensors] f: 1 bytes after the last tensor.");
  CHECK(header_error(two(0, 2, 2, 4), "abc") ==
        "checkpoint: [safetensors] f: tensor 'b' ends at byte 4 of 3; the file is truncated or "
        "damaged.");
  std::string twice = two(0, 2, 2, 4);
  twice[twice.find("\"b\"") + 1] = 'a';
  CHECK(header_error(twice, "abcd") == "checkpoint: [safetensors] f: tensor 'a' is there twice.");
}

TEST_CASE("every prefix of a file is refused") {
  TemporaryFolder folder;
  std::vector<NamedBytes> tensors{{"w", {DType::u8, {5}}, bytes_of("hello")}};
  io::write_safetensors(folder.file("f"), tensors, {{"k", "v"}});
  std::string whole = contents_of(folder.file("f"));
  for (size_t length = 0; length < whole.size(); ++length)
    CHECK(safetensors_error(whole.substr(0, length)).starts_with("checkpoint: [safetensors] f: "));
}

TEST_CASE("tensors of every dtype are written aligned and read back") {
  TemporaryFolder folder;
  std::vector<std::string> names, contents;
  std::vector<DType> known;
  for (int i = 0; i < dtype_count; ++i)
    if (!info(static_cast<DType>(i)).safetensors.empty()) known.push_back(static_cast<DType>(i));
  for (size_t i = 0; i < known.size(); ++i) {
    names.push_back(fmt::format("tensor \"{}\"\n€", i));
    contents.push_back(std::string(3 * size_of(known[i]), static_cast<char>(i + 1)));
  }
  std::vector<NamedBytes> tensors;
  tensors.reserve(known.size());
  for (size_t i = 0; i < known.size(); ++i)
    tensors.push_back({names[i], {known[i], {3, 1}}, bytes_of(contents[i])});
  io::Metadata metadata{{"format", "pt"}, {"step", "12 \"x\""}};
  io::FileSummary summary = io::write_safetensors(folder.file("f"), tensors, metadata);
  CHECK(summary.checksum == io::checksum_file(folder.file("f")));
  Safetensors file = Safetensors::open(folder.file("f"));
  CHECK(file.metadata() == metadata);
  REQUIRE(file.entries().size() == known.size());
  for (const NamedBytes& tensor : tensors) {
    const auto* found = file.find(tensor.name);
    REQUIRE(found != nullptr);
    CHECK(found->type == tensor.type);
    CHECK(text_of(file.bytes(*found)) == text_of(tensor.bytes));
    CHECK(found->offset % size_of(tensor.type.dtype) == 0);
  }
}

TEST_CASE("an unsupported dtype is refused by name and no file is created") {
  TemporaryFolder folder;
  const std::vector<NamedBytes> tensors{{"w", {DType::i4x2, {2}}, bytes_of("bb")}};
  CHECK_THROWS_WITH_AS(io::write_safetensors(folder.file("f"), tensors),
                       doctest::Contains("no type for 'w'. Got i4x2"), Error);
  CHECK(!std::filesystem::exists(folder.file("f")));
}

TEST_CASE("equal contents in any order give equal files") {
  TemporaryFolder folder;
  std::vector<NamedBytes> tensors{{"b", {DType::u8, {2}}, bytes_of("bb")},
                                  {"a", {DType::u8, {2}}, bytes_of("aa")},
                                  {"c", {DType::i16, {1}}, bytes_of("cc")}};
  io::write_safetensors(folder.file("1"), tensors);
  std::swap(tensors[0], tensors[2]);
  io::write_safetensors(folder.file("2"), tensors);
  CHECK(contents_of(folder.file("1")) == contents_of(folder.file("2")));
  std::string bytes = contents_of(folder.file("1"));
  CHECK(bytes.ends_with("ccaabb"));
  CHECK((bytes.size() - 6) % 64 == 0);
}

TEST_CASE("invalid names are refused before the file is touched") {
  TemporaryFolder folder;
  auto error_with = [&](std::string_view one, std::string_view other) {
    std::vector<NamedBytes> tensors{{std::string(one), {DType::u8, {1}}, bytes_of("1")},
                                    {std::string(other), {DType::u8, {1}}, bytes_of("2")}};
    return error_of([&] { io::write_safetensors(folder.file("f"), tensors); });
  };
  CHECK(error_with("w", "w") == "usage: [safetensors] two tensors have the name 'w'; " +
                                    folder.file("f") + " was not written.");
  CHECK(error_with("w", "__metadata__").find("'__metadata__'") != std::string::npos);
  CHECK(error_with("w", "\xff").find("is not valid UTF-8") != std::string::npos);
  CHECK(folder.entries() == 0);
}

TEST_CASE("variables are saved and loaded by name") {
  TemporaryFolder folder;
  std::vector<Variable> saved{variable("w", {DType::f32, {2, 3}}, 1),
                              variable("b", {DType::f32, {3}}, 7)};
  io::save_safetensors(folder.file("m"), saved);
  CHECK(Safetensors::open(folder.file("m")).metadata() == io::Metadata{{"format", "pt"}});
  std::vector<Variable> loaded{variable("b", {DType::f32, {3}}, 0),
                               variable("w", {DType::f32, {2, 3}}, 0)};
  io::load_into(folder.file("m"), loaded);
  CHECK(loaded[0].floats()[2] == 9);
  CHECK(loaded[1].floats()[5] == 6);
}

TEST_CASE("only PyTorch's batch counters may be missing from the model") {
  TemporaryFolder folder;
  Type type{DType::f32, {2}}, count{DType::i64, {}};
  auto refused = [&](const char* other) {
    std::vector<Variable> saved{variable("bn1.running_mean", type, 3), Variable(other, count)};
    std::vector<Variable> loaded{variable("bn1.running_mean", type, 0)};
    io::save_safetensors(folder.file("m"), saved);
    const std::string error = error_of([&] { io::load_into(folder.file("m"), loaded); });
    CAPTURE(error);
    CHECK((loaded[0].floats()[1] == 4) == (error == "none"));
    return error != "none";
  };
  CHECK_FALSE(refused("bn1.num_batches_tracked"));
  CHECK_FALSE(refused("num_batches_tracked"));
  CHECK_FALSE(refused("bert.embeddings.position_ids"));
  CHECK(refused("bn1.weight"));
  CHECK(refused("num_batches_tracked.weight"));
}

TEST_CASE("a file that does not match is refused by the first names and changes nothing") {
  TemporaryFolder folder;
  Type type{DType::f32, {2}};
  std::vector<Variable> saved;
  for (const char* name : {"a", "b", "c", "d", "e", "w"}) saved.push_back(variable(name, type, 1));
  io::save_safetensors(folder.file("m"), saved);
  std::vector<Variable> wanted{variable("w", {DType::f32, {2, 1}}, 5), variable("a", type, 5),
                               Variable("b", {DType::i64, {2}}), variable("x", type, 5)};
  CHECK(
      error_of([&] { io::load_into(folder.file("m"), wanted); }) ==
      "checkpoint: [load] " + folder.file("m") +
          " does not fit: 1 missing ('x'); 3 unexpected ('c', 'd', 'e'); 1 of another type ('b' is "
          "f32[2], wanted i64[2]); 1 of another shape ('w' is f32[2], wanted f32[2, 1]).");
  CHECK(wanted[1].floats()[0] == 5);
  std::vector<Variable> one{wanted[1]};
  CHECK(error_of([&] { io::load_into(folder.file("m"), one); }) ==
        "checkpoint: [load] " + folder.file("m") +
            " does not fit: 5 unexpected ('b', 'c', 'd', ...).");
}

TEST_CASE("a model is saved under the names of its state") {
  struct Named {
    std::string name;
    Variable variable;
  };
  struct Model {
    std::vector<Named> variables;
    std::vector<Named> state() const { return variables; }
  };
  TemporaryFolder folder;
  Model model{{{"head.weight", variable("gpt.head.weight", {DType::f32, {2}}, 3)}}};
  io::save(model, folder.file("m"));
  CHECK(Safetensors::open(folder.file("m")).find("head.weight") != nullptr);
  model.variables[0].variable.floats()[1] = 0;
  io::load(model, folder.file("m"));
  CHECK(model.variables[0].variable.floats()[1] == 4);
}

TEST_CASE("a tensor of several chunks is written and read back completely") {
  TemporaryFolder folder;
  const int64_t count = (int64_t{37} << 18) + 5;  // 37 MiB: two chunks of 16 MiB and a partial one
  const Variable saved("w", {DType::f32, {count}}), read("w", {DType::f32, {count}});
  const auto value = [](int64_t i) { return static_cast<float>(i % 16'777'213); };
  std::span<float> from = saved.floats();
  for (int64_t i = 0; i < count; ++i) from[static_cast<size_t>(i)] = value(i);
  const std::string path = folder.file("large.safetensors");
  io::save_safetensors(path, std::vector{saved});
  io::load_into(path, std::vector{read});
  const std::span<const float> now = read.floats();
  int64_t wrong = 0;
  for (int64_t i = 0; i < count; ++i) wrong += now[static_cast<size_t>(i)] != value(i);
  CHECK(wrong == 0);
}

TEST_SUITE("slow safetensors") {
  TEST_CASE("offsets beyond 2 and 4 GiB are written and read") {
    TemporaryFolder folder;
    const std::string path = folder.file("huge.safetensors");
    constexpr int64_t third = (int64_t{3} << 30) / 2 + 3;  // 1.5 GiB each, 4.5 GiB in all
    const auto bytes = Buffer::allocate(third + 2);
    const Type type{DType::u8, {third}};
    std::vector<NamedBytes> tensors;
    // Each tensor starts one byte after its predecessor, so that no two are equal.
    tensors.reserve(3);
    for (size_t i = 0; i < 3; ++i)
      tensors.push_back({.name = std::string(1, static_cast<char>('a' + i)),
                         .type = type,
                         .bytes = std::span<const std::byte>(bytes->data + i, third)});
    for (int64_t i : {int64_t{0}, third / 2, third - 1}) bytes->data[i] = std::byte{0x5a};
    io::write_safetensors(path, tensors);
    CHECK(std::filesystem::file_size(path) > size_t{9} << 29);
    const Safetensors file = Safetensors::open(path);
    REQUIRE(file.entries().size() == 3);
    for (const auto& entry : file.entries())
      CHECK(std::memcmp(file.bytes(entry).data(), bytes->data + (entry.name[0] - 'a'), third) == 0);
  }
}
