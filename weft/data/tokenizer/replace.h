// Replaces the matches of a text or a regular expression, in normalizers and decoders.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "weft/data/tokenizer/part.h"
#include "weft/data/tokenizer/regex.h"

namespace weft::data::tokenizer {

// A Pattern is {"String": "text"} or {"Regex": "expression"}.
class Pattern {
 public:
  explicit Pattern(const Part& part);
  // Calls use(begin, end) for each match, from left to right.
  template <class Use>
  void for_each_match(std::string_view text, Use&& use) const {
    if (regex_) {
      Regex::Matches matches(*regex_, text);
      for (Match match; matches.next(match);) use(match.begin, match.end);
      return;
    }
    for (size_t at = text.find(literal_); at != std::string_view::npos;
         at = text.find(literal_, at + literal_.size()))
      use(at, at + literal_.size());
  }
  bool is_regex() const { return regex_.has_value(); }

 private:
  std::string literal_;
  std::optional<Regex> regex_;
};

class Replace {
 public:
  // Reads {"pattern": ..., "content": "text"}.
  explicit Replace(const Part& part)
      : pattern_(part.at("pattern")), content_(part.at("content").text()) {}
  std::string operator()(std::string_view text) const;
  // Returns whether the first character of the text is replaced by nothing.
  bool removes_first(std::string_view text) const;
  // Returns whether the text must be valid UTF-8.
  bool needs_utf8() const { return pattern_.is_regex(); }

 private:
  Pattern pattern_;
  std::string content_;
};

}  // namespace weft::data::tokenizer
