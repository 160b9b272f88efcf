#include "weft/io/csv.h"

#include <algorithm>
#include <utility>

#include "weft/base/error.h"

namespace weft::io {

CsvReader::CsvReader(std::string_view text, std::string name, char separator)
    : text_(text), name_(std::move(name)), ends_({separator, '\n'}) {
  constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
  if (text_.starts_with(byte_order_mark)) at_ = byte_order_mark.size();
}

bool CsvReader::next(std::vector<std::string>& fields) {
  fields.clear();
  for (; at_ < text_.size(); ++next_line_) {
    if (text_[at_] == '\n')
      ++at_;
    else if (text_.substr(at_, 2) == "\r\n")
      at_ += 2;
    else
      break;
  }
  if (at_ == text_.size()) return false;
  line_ = next_line_;
  for (;;) {
    fields.push_back(field());
    if (at_ == text_.size()) return true;
    if (text_[at_++] == '\n') break;
  }
  ++next_line_;
  return true;
}

std::string CsvReader::field() {
  if (at_ < text_.size() && text_[at_] == '"') return quoted_field();
  const size_t end = std::min(text_.find_first_of(ends_, at_), text_.size());
  std::string_view value = text_.substr(at_, end - at_);
  at_ = end;
  const bool ends_line = end == text_.size() || text_[end] == '\n';
  if (ends_line && value.ends_with('\r')) value.remove_suffix(1);
  return std::string(value);
}

std::string CsvReader::quoted_field() {
  const int64_t begin = next_line_;
  std::string value;
  for (++at_;; ++at_) {
    const size_t quote = text_.find('"', at_);
    if (quote == std::string_view::npos)
      throw Error(ErrorKind::data, "{}: line {} opens a quote that is never closed.", name_, begin);
    const std::string_view part = text_.substr(at_, quote - at_);
    next_line_ += std::ranges::count(part, '\n');
    value += part;
    at_ = quote + 1;
    if (at_ == text_.size() || text_[at_] != '"') break;
    value += '"';
  }
  if (const std::string_view rest = text_.substr(at_); rest == "\r" || rest.starts_with("\r\n"))
    ++at_;
  if (at_ < text_.size() && ends_.find(text_[at_]) == std::string::npos)
    throw Error(ErrorKind::data, "{}: line {} has text after a closing quote.", name_, next_line_);
  return value;
}

}  // namespace weft::io
