// Reads CSV text (RFC 4180): records of fields between separators, one record a line.
//
//   io::CsvReader reader(text, "houses.csv");
//   for (std::vector<std::string> fields; reader.next(fields);) ...
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft::io {

// A field may be in quotes, and then holds separators, line ends and doubled quotes. Lines end with
// LF or CRLF; empty lines and a byte order mark are skipped.
class CsvReader {
 public:
  // `name` is the file's, for messages. The text must outlive this.
  CsvReader(std::string_view text, std::string name, char separator = ',');

  // Gets the fields of the next record; returns false at the end. Throws Error(data), naming the
  // line, for a quote that is never closed and for text after a closing quote.
  bool next(std::vector<std::string>& fields);

  int64_t line() const { return line_; }  // on which the last record begins, counted from 1
  size_t offset() const { return at_; }   // bytes of the text that were read

 private:
  std::string field();
  std::string quoted_field();

  std::string_view text_;
  std::string name_;
  std::string ends_;  // the characters that end a field without quotes
  size_t at_ = 0;
  int64_t line_ = 0, next_line_ = 1;
};

}  // namespace weft::io
