// Tests CSV text by the rules of RFC 4180, section 2.
#include "weft/io/csv.h"

#include <doctest/doctest.h>

#include "tests/io/helpers.h"
#include "weft/base/numbers/philox.h"

using namespace weft;
using namespace weft::test;

namespace {
using Records = std::vector<std::vector<std::string>>;

Records records_of(std::string_view text, char separator = ',') {
  io::CsvReader reader(text, "file.csv", separator);
  Records records;
  for (std::vector<std::string> fields; reader.next(fields);) records.push_back(fields);
  return records;
}

std::string in_quotes(const std::string& field) {
  std::string text = "\"";
  for (const char c : field) text += c == '"' ? std::string("\"\"") : std::string(1, c);
  return text + "\"";
}
}  // namespace

TEST_CASE("records are read as RFC 4180 describes them") {
  const Records two = {{"aaa", "bbb", "ccc"}, {"zzz", "yyy", "xxx"}};
  CHECK(records_of("aaa,bbb,ccc\r\nzzz,yyy,xxx\r\n") == two);          // rule 1
  CHECK(records_of("aaa,bbb,ccc\r\nzzz,yyy,xxx") == two);              // rule 2
  CHECK(records_of("\"aaa\",\"bbb\",\"ccc\"\r\nzzz,yyy,xxx") == two);  // rule 5
  CHECK(records_of("\"aaa\",\"b\r\nbb\",\"ccc\"\r\nzzz,yyy,xxx") ==
        Records{{"aaa", "b\r\nbb", "ccc"}, {"zzz", "yyy", "xxx"}});                      // rule 6
  CHECK(records_of("\"aaa\",\"b\"\"bb\",\"ccc\"") == Records{{"aaa", "b\"bb", "ccc"}});  // rule 7
}

TEST_CASE("line ends, empty lines, byte order marks and separators of other programs are read") {
  const Records two = {{"a", "b"}, {"1", ""}};
  CHECK(records_of("a,b\n1,\n") == two);
  CHECK(records_of("\xEF\xBB\xBF"
                   "a,b\r\n1,\r") == two);
  CHECK(records_of("\n\r\na,b\n\n\n1,\n\r\n") == two);
  CHECK(records_of("a;b\n\"1\";\"\"\r", ';') == two);
  CHECK(records_of("a\tb\n1\t", '\t') == two);
  CHECK(records_of("").empty());
  CHECK(records_of("\n\r\n").empty());
}

TEST_CASE("random fields survive being written with quotes") {
  constexpr std::string_view characters = "a,\"\r\n; \xC3\xA9";
  for (int64_t seed = 0; seed < 50; ++seed) {
    int64_t at = 0;
    const auto draw = [&](uint32_t bound) {
      return philox_word({.seed = seed, .stream = 1}, at++) % bound;
    };
    Records records(1 + draw(4));
    std::string text;
    for (auto& fields : records) {
      fields.resize(1 + draw(3));
      for (std::string& field : fields) {
        for (uint32_t i = draw(6); i > 0; --i)
          field += characters[draw(static_cast<uint32_t>(characters.size()))];
        text += (&field == fields.data() ? "" : ",") + in_quotes(field);
      }
      text += draw(2) == 0 ? "\n" : "\r\n";
    }
    CHECK(records_of(text) == records);
  }
}

TEST_CASE("the line of a record is that on which it begins") {
  io::CsvReader reader("a,b\n\n\"1\n2\",3\r\n4,5", "file.csv");
  std::vector<int64_t> lines;
  for (std::vector<std::string> fields; reader.next(fields);) lines.push_back(reader.line());
  CHECK(lines == std::vector<int64_t>{1, 3, 5});
}

TEST_CASE("quotes that are not closed, and text after them, are refused with their line") {
  CHECK(error_of([] { records_of("a,b\n1,\"2\n3,4\n"); }) ==
        "data: file.csv: line 2 opens a quote that is never closed.");
  CHECK(error_of([] { records_of("a,b\n\"1\n\" 2,3\n"); }) ==
        "data: file.csv: line 3 has text after a closing quote.");
}
