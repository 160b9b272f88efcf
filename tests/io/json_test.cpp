// Malformed or unexpected JSON is reported in our own words, not in those of the JSON library.
#include "weft/io/json.h"

#include <string>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/io/helpers.h"

using namespace weft;
using nlohmann::json;

namespace {
template <class Function>
std::string complaint(Function function) {
  try {
    function();
  } catch (const io::JsonError& error) {
    return error.what();
  }
  return "none";
}
}  // namespace

TEST_CASE("text that is not JSON is refused with the line and column") {
  auto wrong = [](const std::string& text) { return complaint([&] { io::parse_json(text); }); };
  CHECK(wrong("{\"a\": [1, 2.5, null]}") == "none");
  CHECK(wrong("") == "not JSON: it ends too early, at line 1, column 1");
  CHECK(wrong("{\"a\":\n  \"b") == "not JSON: it ends too early, at line 2, column 5");
  CHECK(wrong("{\n  \"a\": ?}") == "not JSON: there is a mistake at line 2, column 8");
  CHECK(complaint([] { io::parse_json_line("{\"a\": ?}"); }) ==
        "not JSON: there is a mistake at column 7");
  CHECK(wrong("[1]\n]") == "not JSON: there is a mistake at line 2, column 1");
  CHECK(wrong("{\"a\": 1e999}") == "not JSON: it has a number that is too large");
  // No byte at the place of the error makes the library's own message appear.
  for (int byte = 0; byte < 256; ++byte)
    for (const char* before : {"", "{", "{\"a", "[1", "\"\\"}) {
      const std::string said = wrong(before + std::string(1, static_cast<char>(byte)));
      CHECK((said == "none" || said.starts_with("not JSON: ")));
      CHECK(said.find("pars") == std::string::npos);
      CHECK(said.find("expected") == std::string::npos);
    }
}

TEST_CASE("a missing or mistyped value is refused by its key") {
  const json object = json::parse(
      R"({"whole": 7, "part": 7.5, "huge": 18446744073709551615, "text": "t", "nothing": null,
          "truth": true, "list": [1], "inner": {"a": 1}})");
  CHECK(io::integer_at(object, "whole") == 7);
  CHECK(io::number_at(object, "whole") == 7);
  CHECK(io::number_at(object, "part") == 7.5);
  CHECK(!io::number_or_null_at(object, "nothing"));
  CHECK(io::text_at(object, "text") == "t");
  CHECK(io::truth_at(object, "truth"));
  CHECK(io::integer_at(io::object_at(object, "inner"), "a") == 1);
  auto wrong = [&](auto read, const char* key) { return complaint([&] { read(object, key); }); };
  CHECK(wrong(io::integer_at, "part") == "part must be a whole number. Got 7.5");
  CHECK(wrong(io::integer_at, "huge") == "huge must be a whole number. Got 18446744073709551615");
  CHECK(wrong(io::integer_at, "truth") == "truth must be a whole number. Got true");
  CHECK(wrong(io::number_at, "text") == "text must be a number. Got \"t\"");
  CHECK(wrong(io::number_at, "nothing") == "nothing must be a number. Got null");
  CHECK(wrong(io::text_at, "whole") == "whole must be text. Got 7");
  CHECK(wrong(io::truth_at, "whole") == "whole must be true or false. Got 7");
  CHECK(wrong(io::object_at, "list") == "list must be an object. Got [1]");
  CHECK(wrong(io::text_at, "absent") == "absent is missing");
  CHECK(complaint([] { io::text_at(json::array({1}), "a"); }) == "must be an object. Got [1]");
  CHECK(complaint([] { io::text_at(json{{"a", std::string(500, '1')}}, "a"); }) == "none");
  CHECK(complaint([] { io::integer_at(json{{"a", std::string(500, '1')}}, "a"); }).size() < 200);
}

TEST_CASE("lists and objects nest as deep as copies of them can recurse") {
  auto nested = [](int depth) {
    return std::string(static_cast<size_t>(depth), '[') +
           std::string(static_cast<size_t>(depth), ']');
  };
  CHECK(complaint([&] { io::parse_json(nested(io::deepest_json)); }) == "none");
  for (const int depth : {io::deepest_json + 1, 1 << 22}) {
    CHECK(complaint([&] { io::parse_json("{\"[\\\"{\": 1, \"a\": " + nested(depth) + "}"); }) ==
          "lists and objects nest deeper than 500 at byte 516");
    CHECK(io::parse_json_or_discard(nested(depth)).is_discarded());
  }
  CHECK(io::parse_json(R"(["[[[", "\\", "[[\"[["])").size() == 3);
}

TEST_CASE("a JSON file is read within a limit, and its errors name it") {
  const test::TemporaryFolder folder;
  CHECK(io::read_json_file(folder.file("a", "[1]"), 3) == json{1});
  CHECK(test::error_of([&] { io::read_json_file(folder.file("a"), 2); }) ==
        "data: cannot read " + folder.file("a") + ": 3 bytes, over the limit of 2.");
  CHECK(test::error_of([&] {
          io::read_json_file(folder.file("b", "{\n]"), 9, ErrorKind::usage);
        }) == "usage: " + folder.file("b") + ": not JSON: there is a mistake at line 2, column 1.");
}
