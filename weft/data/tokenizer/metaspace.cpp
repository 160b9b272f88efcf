// Metaspace, SentencePiece's pre-tokenizer, turns spaces into a visible character, which begins
// words.
#include <utility>

#include "weft/data/tokenizer/pre_tokenizers.h"
#include "weft/io/text.h"

namespace weft::data::tokenizer {
namespace {

class Metaspace : public PreTokenizer {
 public:
  explicit Metaspace(const Part& part)
      : code_(part.at("replacement").character()),
        scheme_(prepend_scheme_of(part)),
        split_(part.truth_or("split", true)) {
    io::append_utf8(replacement_, code_);
  }

  void apply(Pieces& pieces) const override {
    std::string text;
    text.reserve(pieces.text.size() + pieces.text.size() / 2);
    for (Piece& piece : pieces.list) {
      const std::string_view old = pieces.of(piece);
      const size_t begin = text.size();
      const bool prepends =
          scheme_ == PrependScheme::always || (scheme_ == PrependScheme::first && piece.first);
      if (prepends && !old.starts_with(' ') && !old.starts_with(replacement_)) text += replacement_;
      for (char c : old)
        if (c == ' ')
          text += replacement_;
        else
          text += c;
      piece.begin = begin;
      piece.end = text.size();
    }
    pieces.text = std::move(text);
    if (split_)
      split_all(pieces, SplitBehavior::merged_with_next, false,
                [&](std::string_view piece, auto&& use) {
                  for (size_t at = piece.find(replacement_); at != std::string_view::npos;
                       at = piece.find(replacement_, at + replacement_.size()))
                    use(at, at + replacement_.size());
                });
  }

 private:
  char32_t code_;
  std::string replacement_;
  PrependScheme scheme_;
  bool split_;
};

}  // namespace

// Files before tokenizers 0.14 say add_prefix_space: true is "always", false is "never".
PrependScheme prepend_scheme_of(const Part& part) {
  const auto given = part.find("prepend_scheme");
  const std::string_view name = given ? given->text() : "always";
  const bool prefix = part.truth_or("add_prefix_space", true);
  if (name != "always" && name != "first" && name != "never")
    part.unknown("prepend_scheme", name, {"always", "first", "never"});
  if (!prefix && given && name != "never")
    part.fail("must not have add_prefix_space false and another prepend_scheme than never");
  if (!prefix || name == "never") return PrependScheme::never;
  return name == "first" ? PrependScheme::first : PrependScheme::always;
}

std::unique_ptr<PreTokenizer> make_metaspace(const Part& part) {
  return std::make_unique<Metaspace>(part);
}

}  // namespace weft::data::tokenizer
