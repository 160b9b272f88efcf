// ByteLevel, GPT-2's pre-tokenizer, finds words by a regular expression, then writes a character
// for each byte.
#include <optional>
#include <utility>

#include "weft/data/tokenizer/byte_level.h"
#include "weft/data/tokenizer/pre_tokenizers.h"
#include "weft/data/tokenizer/regex.h"

namespace weft::data::tokenizer {
namespace {

// This is GPT-2's expression, as the file would write it.
constexpr std::string_view expression =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

class ByteLevel : public PreTokenizer {
 public:
  explicit ByteLevel(const Part& part) : prefix_(part.truth_or("add_prefix_space", true)) {
    if (part.truth_or("use_regex", true)) words_.emplace(expression, part);
  }

  void apply(Pieces& pieces) const override {
    if (prefix_) add_prefixes(pieces);
    if (words_)
      split_all(pieces, SplitBehavior::isolated, false, [&](std::string_view text, auto&& use) {
        Regex::Matches matches(*words_, text);
        for (Match match; matches.next(match);) use(match.begin, match.end);
      });
    if (map_) map_bytes(pieces);
  }
  bool ends_in_bytes() const override { return true; }
  void leave_bytes() override { map_ = false; }

 private:
  static void add_prefixes(Pieces& pieces) {
    std::string text;
    text.reserve(pieces.text.size() + pieces.list.size());
    for (Piece& piece : pieces.list) {
      const std::string_view old = pieces.of(piece);
      const size_t begin = text.size();
      if (!old.starts_with(' ')) text += ' ';
      text += old;
      piece.begin = begin;
      piece.end = text.size();
    }
    pieces.text = std::move(text);
  }
  static void map_bytes(Pieces& pieces) {
    std::string text;
    text.reserve(pieces.text.size() + pieces.text.size() / 2);
    for (Piece& piece : pieces.list) {
      const size_t begin = text.size();
      for (char byte : pieces.of(piece)) append_byte_character(text, byte);
      piece.begin = begin;
      piece.end = text.size();
    }
    pieces.text = std::move(text);
  }

  bool prefix_, map_ = true;
  std::optional<Regex> words_;
};

}  // namespace

std::unique_ptr<PreTokenizer> make_byte_level(const Part& part) {
  return std::make_unique<ByteLevel>(part);
}

}  // namespace weft::data::tokenizer
