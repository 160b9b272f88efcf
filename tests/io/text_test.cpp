#include "weft/io/text.h"

#include <doctest/doctest.h>

#include "tests/io/helpers.h"

using namespace weft;
using namespace weft::test;
using io::Vocabulary;

TEST_CASE("the byte vocabulary encodes and decodes any text") {
  Vocabulary bytes = Vocabulary::bytes();
  CHECK(bytes.size() == 256);
  CHECK(bytes.encode({"a\0\xff", 3}) == std::vector<int32_t>{97, 0, 255});
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  CHECK(bytes.decode(bytes.encode(all)) == all);
}

TEST_CASE("a character vocabulary holds sorted unique code points") {
  Vocabulary vocabulary = Vocabulary::characters("zebra\n€é😀 a");
  CHECK(vocabulary.size() == 10);
  CHECK(vocabulary.encode("\n ab") == std::vector<int32_t>{0, 1, 2, 3});
  CHECK(vocabulary.encode("é€😀") == std::vector<int32_t>{7, 8, 9});
  CHECK(vocabulary.decode(vocabulary.encode("😀 zebra é€")) == "😀 zebra é€");
}

TEST_CASE("an unknown character is refused by its offset") {
  CHECK(error_of([] { Vocabulary::characters("ab").encode("abé"); }) ==
        "data: [text] character U+00E9 'é' at offset 2 is not among the 2 of the vocabulary.");
  CHECK(error_of([] { Vocabulary::characters(""); }) ==
        "data: [text] a vocabulary of characters needs some text.");
  int32_t ids[] = {0, 2};
  CHECK(error_of([&] { Vocabulary::characters("ab").decode(ids); }) ==
        "data: [text] token 2 at position 1 is outside 0 to 1.");
  ids[0] = -1;
  CHECK(error_of([&] { Vocabulary::bytes().decode(ids); }) ==
        "data: [text] token -1 at position 0 is outside 0 to 255.");
}

// The ill-formed sequences are neighbours of the well-formed ones of the Unicode standard, table
// 3-7.
TEST_CASE("invalid UTF-8 is refused by its offset") {
  for (std::string_view bad :
       {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xc3", "\xc3(", "\xe0\x9f\xbf", "\xed\xa0\x80",
        "\xed\xbf\xbf", "\xe2\x82", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80",
        "\xff", "\xf0\x9f\x98"}) {
    std::string text = "ab" + std::string(bad);
    auto first = static_cast<unsigned>(static_cast<unsigned char>(bad[0]));
    CHECK(error_of([&] { Vocabulary::characters(text); }) ==
          fmt::format("data: [text] byte 0x{:02x} at offset 2 is not valid UTF-8.", first));
  }
}

TEST_CASE("every code point survives encoding in UTF-8") {
  for (char32_t code = 0; code <= 0x10ffff; ++code) {
    if (code >= 0xd800 && code <= 0xdfff) continue;
    std::string text;
    io::append_utf8(text, code);
    size_t offset = 0;
    bool same = io::next_code_point(text, offset) == code && offset == text.size();
    if (!same) FAIL("code point ", static_cast<uint32_t>(code));
  }
}

TEST_CASE("a vocabulary is saved as JSON and loaded again") {
  TemporaryFolder folder;
  for (const Vocabulary& vocabulary :
       {Vocabulary::characters("\n\"\\ aé😀"), Vocabulary::bytes()}) {
    vocabulary.save(folder.file("vocabulary.json"));
    CHECK(Vocabulary::load(folder.file("vocabulary.json")) == vocabulary);
  }
  CHECK(Vocabulary::characters("\nab").to_json() ==
        "{\"type\":\"characters\",\"characters\":[\"\\n\",\"a\",\"b\"]}\n");
  CHECK(Vocabulary::bytes().to_json() == "{\"type\":\"bytes\"}\n");
}

TEST_CASE("a damaged vocabulary is refused in one line") {
  auto error_for = [](std::string_view json) {
    return error_of([&] { Vocabulary::from_json(json, "v.json"); });
  };
  CHECK(error_for("{") == "data: [vocabulary] v.json: not a JSON object.");
  CHECK(error_for("[1]") == "data: [vocabulary] v.json: not a JSON object.");
  CHECK(error_for("{}") ==
        "data: [vocabulary] v.json: \"type\" must be \"bytes\" or \"characters\".");
  CHECK(error_for(R"({"type":"characters"})") ==
        "data: [vocabulary] v.json: \"characters\" must be a list with at least one entry.");
  CHECK(error_for(R"({"type":"characters","characters":["a","bc"]})") ==
        "data: [vocabulary] v.json: entry 1 is not a single character.");
  CHECK(error_for(R"({"type":"characters","characters":["a",7]})") ==
        "data: [vocabulary] v.json: entry 1 is not a single character.");
  CHECK(error_for(R"({"type":"characters","characters":["a",""]})") ==
        "data: [vocabulary] v.json: entry 1 is not a single character.");
  CHECK(error_for(R"({"type":"characters","characters":["b","a"]})") ==
        "data: [vocabulary] v.json: entry 1 is not in ascending order.");
}
