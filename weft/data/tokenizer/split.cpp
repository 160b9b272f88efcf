#include "weft/data/tokenizer/split.h"

#include <algorithm>

namespace weft::data::tokenizer {

void Splitter::add(size_t begin, size_t end, bool match) {
  const bool has_last = out_.size() > begin_;
  bool extend = false;
  switch (behavior_) {
    case SplitBehavior::removed:
      if (!match) push(begin, end);
      return;
    case SplitBehavior::isolated:
      break;
    case SplitBehavior::merged_with_previous:
      extend = has_last && match && !last_match_;
      break;
    case SplitBehavior::merged_with_next:  // a match is joined to the text after it
      extend = has_last && !match && last_match_;
      break;
    case SplitBehavior::contiguous:
      extend = has_last && match == last_match_;
      break;
  }
  if (extend)
    out_.back().end = piece_.begin + end;
  else
    push(begin, end);
  last_match_ = match;
}

void Splitter::finish() {
  const auto empty = [](const Piece& piece) { return piece.begin == piece.end; };
  out_.erase(std::remove_if(out_.begin() + static_cast<std::ptrdiff_t>(begin_), out_.end(), empty),
             out_.end());
}

}  // namespace weft::data::tokenizer
