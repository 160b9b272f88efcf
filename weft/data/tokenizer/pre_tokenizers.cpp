#include "weft/data/tokenizer/pre_tokenizers.h"

#include <utility>

#include "weft/data/tokenizer/replace.h"

namespace weft::data::tokenizer {
namespace {

SplitBehavior behavior_of(const Part& part, std::string_view otherwise) {
  const std::string name = part.text_or("behavior", otherwise);
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  part.unknown("behavior", name,
               {"Contiguous", "Isolated", "MergedWithNext", "MergedWithPrevious", "Removed"});
}

class Split : public PreTokenizer {
 public:
  explicit Split(const Part& part)
      : pattern_(part.at("pattern")),
        behavior_(behavior_of(part, "")),
        invert_(part.truth_or("invert", false)) {}
  void apply(Pieces& pieces) const override {
    split_all(pieces, behavior_, invert_,
              [&](std::string_view text, auto&& use) { pattern_.for_each_match(text, use); });
  }

 private:
  Pattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

// Whitespace splits into words (letters, digits and underscores) and runs of other characters that
// are not white space.
class Whitespace : public PreTokenizer {
 public:
  void apply(Pieces& pieces) const override {
    split_all(pieces, SplitBehavior::removed, true, [](std::string_view text, auto&& use) {
      enum Kind { space, word, other };
      const auto kind_of = [](char32_t code) {
        return is_white_space(code) ? space : is_word_character(code) ? word : other;
      };
      Kind last = space;
      size_t begin = 0;
      for (size_t offset = 0; offset < text.size();) {
        const size_t at = offset;
        const Kind kind = kind_of(next_character(text, offset));
        if (kind == last) continue;
        if (last != space) use(begin, at);
        begin = at;
        last = kind;
      }
      if (last != space) use(begin, text.size());
    });
  }
};

class WhitespaceSplit : public PreTokenizer {
 public:
  void apply(Pieces& pieces) const override {
    split_at_characters(pieces, SplitBehavior::removed, is_white_space);
  }
};

class BertPreTokenizer : public PreTokenizer {
 public:
  void apply(Pieces& pieces) const override {
    split_at_characters(pieces, SplitBehavior::removed, is_white_space);
    split_at_characters(pieces, SplitBehavior::isolated, is_punctuation);
  }
};

class Punctuation : public PreTokenizer {
 public:
  explicit Punctuation(const Part& part) : behavior_(behavior_of(part, "Isolated")) {}
  void apply(Pieces& pieces) const override {
    split_at_characters(pieces, behavior_, is_punctuation);
  }

 private:
  SplitBehavior behavior_;
};

class Digits : public PreTokenizer {
 public:
  explicit Digits(const Part& part)
      : behavior_(part.truth_or("individual_digits", false) ? SplitBehavior::isolated
                                                            : SplitBehavior::contiguous) {}
  void apply(Pieces& pieces) const override { split_at_characters(pieces, behavior_, is_number); }

 private:
  SplitBehavior behavior_;
};

class CharDelimiterSplit : public PreTokenizer {
 public:
  explicit CharDelimiterSplit(const Part& part) : delimiter_(part.at("delimiter").character()) {}
  void apply(Pieces& pieces) const override {
    split_at_characters(pieces, SplitBehavior::removed,
                        [&](char32_t code) { return code == delimiter_; });
  }

 private:
  char32_t delimiter_;
};

// FixedLength splits into pieces of so many characters.
class FixedLength : public PreTokenizer {
 public:
  explicit FixedLength(const Part& part) : length_(part.at("length").integer(1, INT64_MAX)) {}
  void apply(Pieces& pieces) const override {
    split_all(pieces, SplitBehavior::isolated, false, [&](std::string_view text, auto&& use) {
      for (size_t offset = 0; offset < text.size();) {
        const size_t begin = offset;
        for (int64_t i = 0; i < length_ && offset < text.size(); ++i) next_character(text, offset);
        use(begin, offset);
      }
    });
  }

 private:
  int64_t length_;
};

class PreTokenizerSequence : public PreTokenizer {
 public:
  explicit PreTokenizerSequence(const Part& part) {
    part.at("pretokenizers").for_each([&](const Part& item) {
      steps_.push_back(make_pre_tokenizer(item));
    });
  }
  void apply(Pieces& pieces) const override {
    const size_t before = pieces.text.size();
    for (const auto& step : steps_) {
      step->apply(pieces);
      check_growth(pieces.text.size(), before);
    }
  }
  bool ends_in_bytes() const override { return !steps_.empty() && steps_.back()->ends_in_bytes(); }
  void leave_bytes() override { steps_.back()->leave_bytes(); }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> steps_;
};

}  // namespace

std::unique_ptr<PreTokenizer> make_pre_tokenizer(const Part& part) {
  part.check_depth();
  const std::string_view type = part.at("type").text();
  if (type == "ByteLevel") return make_byte_level(part);
  if (type == "Metaspace") return make_metaspace(part);
  if (type == "Split") return std::make_unique<Split>(part);
  if (type == "Whitespace") return std::make_unique<Whitespace>();
  if (type == "WhitespaceSplit") return std::make_unique<WhitespaceSplit>();
  if (type == "BertPreTokenizer") return std::make_unique<BertPreTokenizer>();
  if (type == "Punctuation") return std::make_unique<Punctuation>(part);
  if (type == "Digits") return std::make_unique<Digits>(part);
  if (type == "CharDelimiterSplit") return std::make_unique<CharDelimiterSplit>(part);
  if (type == "FixedLength") return std::make_unique<FixedLength>(part);
  if (type == "UnicodeScripts") return make_unicode_scripts();
  if (type == "Sequence") return std::make_unique<PreTokenizerSequence>(part);
  part.unknown(
      "type", type,
      {"BertPreTokenizer", "ByteLevel", "CharDelimiterSplit", "Digits", "FixedLength", "Metaspace",
       "Punctuation", "Sequence", "Split", "UnicodeScripts", "Whitespace", "WhitespaceSplit"});
}

}  // namespace weft::data::tokenizer
