#include "weft/data/tokenizer/replace.h"

namespace weft::data::tokenizer {

Pattern::Pattern(const Part& part) {
  if (const auto literal = part.find("String")) {
    literal_ = literal->text();
    if (literal_.empty()) regex_.emplace("");  // it matches between all characters
  } else if (const auto expression = part.find("Regex")) {
    regex_.emplace(expression->text(), *expression);
  } else {
    part.must("must have a String or a Regex");
  }
}

std::string Replace::operator()(std::string_view text) const {
  std::string out;
  size_t kept = 0;
  pattern_.for_each_match(text, [&](size_t begin, size_t end) {
    out.append(text.substr(kept, begin - kept)).append(content_);
    kept = end;
  });
  out.append(text.substr(kept));
  return out;
}

bool Replace::removes_first(std::string_view text) const {
  if (!content_.empty()) return false;
  bool removes = false;
  pattern_.for_each_match(
      text, [&](size_t begin, size_t end) { removes = removes || (begin == 0 && end > 0); });
  return removes;
}

}  // namespace weft::data::tokenizer
