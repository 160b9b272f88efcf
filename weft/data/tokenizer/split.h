// Splits pieces of a text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "weft/data/tokenizer/unicode.h"

namespace weft::data::tokenizer {

// A Piece is a range of bytes of a text.
struct Piece {
  size_t begin = 0, end = 0;
  bool first = false;  // whether it begins where the whole text begins
};

// Pieces are a text and its parts, which pre-tokenizers split and rewrite.
struct Pieces {
  std::string text;
  std::vector<Piece> list;

  std::string_view of(const Piece& piece) const {
    return std::string_view(text).substr(piece.begin, piece.end - piece.begin);
  }
};

// SplitBehavior says what becomes of the delimiters that a split finds.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

// A Splitter takes the ranges of one piece in order, matches and the text between matches, and
// appends the pieces that `behavior` makes of them.
class Splitter {
 public:
  Splitter(const Piece& piece, SplitBehavior behavior, std::vector<Piece>& out)
      : piece_(piece), behavior_(behavior), out_(out), begin_(out.size()) {}

  // Adds a range; offsets are from the begin of the piece.
  void add(size_t begin, size_t end, bool match);
  // Removes the empty pieces that it has appended.
  void finish();

 private:
  void push(size_t begin, size_t end) {
    out_.push_back({piece_.begin + begin, piece_.begin + end, piece_.first && begin == 0});
  }

  const Piece piece_;
  const SplitBehavior behavior_;
  std::vector<Piece>& out_;
  const size_t begin_;
  bool last_match_ = false;
};

// Splits every piece: for_each_match(text, use) calls use(begin, end) for each delimiter.
template <class ForEachMatch>
void split_all(Pieces& pieces, SplitBehavior behavior, bool invert, ForEachMatch&& for_each_match) {
  std::vector<Piece> out;
  out.reserve(pieces.list.size());
  for (const Piece& piece : pieces.list) {
    const std::string_view text = pieces.of(piece);
    Splitter splitter(piece, behavior, out);
    size_t last = 0;
    for_each_match(text, [&](size_t begin, size_t end) {
      if (begin > last) splitter.add(last, begin, invert);
      splitter.add(begin, end, !invert);
      last = end;
    });
    if (last < text.size()) splitter.add(last, text.size(), invert);
    splitter.finish();
  }
  pieces.list = std::move(out);
}

// Splits every piece at single characters: each character for which is_delimiter() is true is a
// match.
template <class IsDelimiter>
void split_at_characters(Pieces& pieces, SplitBehavior behavior, IsDelimiter&& is_delimiter) {
  split_all(pieces, behavior, false, [&](std::string_view text, auto&& use) {
    for (size_t offset = 0; offset < text.size();) {
      const size_t begin = offset;
      if (is_delimiter(next_character(text, offset))) use(begin, offset);
    }
  });
}

}  // namespace weft::data::tokenizer
