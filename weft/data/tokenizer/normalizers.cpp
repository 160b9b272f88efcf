#include "weft/data/tokenizer/normalizers.h"

#include <functional>
#include <utility>
#include <vector>

#include "weft/data/tokenizer/byte_level.h"
#include "weft/data/tokenizer/replace.h"
#include "weft/data/tokenizer/unicode.h"

namespace weft::data::tokenizer {
namespace {

// Rewrites a text by characters: rewrite(code, bytes, out) appends the replacement of one to `out`.
template <class Rewrite>
void rewrite_characters(NormalText& text, Rewrite&& rewrite) {
  std::string out;
  out.reserve(text.text.size());
  for (size_t offset = 0; offset < text.text.size();) {
    const size_t begin = offset;
    const char32_t code = next_character(text.text, offset);
    rewrite(code, std::string_view(text.text).substr(begin, offset - begin), out);
    if (begin == 0 && out.empty()) text.first = false;
  }
  text.text = std::move(out);
}

void remove_characters(NormalText& text, bool (*removed)(char32_t)) {
  rewrite_characters(text, [&](char32_t code, std::string_view bytes, std::string& out) {
    if (!removed(code)) out += bytes;
  });
}

// A FunctionNormalizer has no settings.
class FunctionNormalizer : public Normalizer {
 public:
  using Function = void (*)(NormalText&);
  explicit FunctionNormalizer(Function function) : function_(function) {}
  void apply(NormalText& text) const override { function_(text); }

 private:
  Function function_;
};

template <Form form>
void to_form(NormalText& text) {
  text.text = normalized(text.text, form);
}
void to_lower_case(NormalText& text) { text.text = lower_case(text.text); }
void strip_accents(NormalText& text) { remove_characters(text, is_mark); }
void to_byte_characters(NormalText& text) { text.text = byte_characters(text.text); }

// Applies the rules of SentencePiece's nmt_nfkc that are not of NFKC.
void nmt(NormalText& text) {
  rewrite_characters(text, [](char32_t code, std::string_view bytes, std::string& out) {
    const bool removed = (code >= 1 && code <= 8) || code == 0xb || (code >= 0xe && code <= 0x1f) ||
                         code == 0x7f || code == 0x8f || code == 0x9f;
    const bool space = code == 9 || code == 0xa || code == 0xc || code == 0xd || code == 0x1680 ||
                       (code >= 0x200b && code <= 0x200f) || code == 0x2028 || code == 0x2029 ||
                       code == 0x2581 || code == 0xfeff || code == 0xfffd;
    if (space)
      out += ' ';
    else if (!removed)
      out += bytes;
  });
}

class Strip : public Normalizer {
 public:
  explicit Strip(const Part& part)
      : left_(part.at("strip_left").truth()), right_(part.at("strip_right").truth()) {}
  void apply(NormalText& text) const override {
    std::string& whole = text.text;
    size_t end = whole.size();
    for (size_t before = end; right_ && end > 0; end = before)
      if (!is_white_space(previous_character(whole, before))) break;
    size_t begin = 0;
    for (size_t after = 0; left_ && begin < end; begin = after)
      if (!is_white_space(next_character(whole, after))) break;
    if (begin > 0) text.first = false;
    whole.erase(end);
    whole.erase(0, begin);
  }

 private:
  bool left_, right_;
};

class ReplaceNormalizer : public Normalizer {
 public:
  explicit ReplaceNormalizer(const Part& part) : replace_(part) {}
  void apply(NormalText& text) const override {
    const bool removed_first = replace_.removes_first(text.text);
    text.text = replace_(text.text);
    if (removed_first) text.first = false;
  }

 private:
  Replace replace_;
};

class Prepend : public Normalizer {
 public:
  explicit Prepend(const Part& part) : prefix_(part.at("prepend").text()) {}
  void apply(NormalText& text) const override {
    if (!text.text.empty()) text.text.insert(0, prefix_);
  }

 private:
  std::string prefix_;
};

// Returns whether BERT puts spaces around a character: the blocks of CJK ideographs.
bool is_ideograph(char32_t code) {
  return (code >= 0x4e00 && code <= 0x9fff) || (code >= 0x3400 && code <= 0x4dbf) ||
         (code >= 0x20000 && code <= 0x2a6df) || (code >= 0x2a700 && code <= 0x2b73f) ||
         (code >= 0x2b740 && code <= 0x2b81f) || (code >= 0x2b920 && code <= 0x2ceaf) ||
         (code >= 0xf900 && code <= 0xfaff) || (code >= 0x2f800 && code <= 0x2fa1f);
}

class BertNormalizer : public Normalizer {
 public:
  explicit BertNormalizer(const Part& part)
      : clean_(part.truth_or("clean_text", true)),
        ideographs_(part.truth_or("handle_chinese_chars", true)),
        lower_(part.truth_or("lowercase", true)),
        accents_(part.truth_or("strip_accents", lower_)) {}

  void apply(NormalText& text) const override {
    if (clean_) clean(text);
    if (ideographs_)
      rewrite_characters(text, [](char32_t code, std::string_view bytes, std::string& out) {
        const bool apart = is_ideograph(code);
        if (apart) out += ' ';
        out += bytes;
        if (apart) out += ' ';
      });
    if (accents_) {
      text.text = normalized(text.text, Form::nfd);
      remove_characters(text, is_nonspacing_mark);
    }
    if (lower_) to_lower_case(text);
  }

 private:
  static void clean(NormalText& text) {
    rewrite_characters(text, [](char32_t code, std::string_view bytes, std::string& out) {
      const bool control = code != '\t' && code != '\n' && code != '\r' && is_other(code);
      if (code == 0 || code == 0xfffd || control) return;
      if (is_white_space(code))
        out += ' ';
      else
        out += bytes;
    });
  }

  bool clean_, ideographs_, lower_, accents_;
};

class NormalizerSequence : public Normalizer {
 public:
  explicit NormalizerSequence(const Part& part) {
    part.at("normalizers").for_each([&](const Part& item) {
      steps_.push_back(make_normalizer(item));
    });
  }
  void apply(NormalText& text) const override {
    const size_t before = text.text.size();
    for (const auto& step : steps_) {
      step->apply(text);
      check_growth(text.text.size(), before);
    }
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
};

std::unique_ptr<Normalizer> from_function(FunctionNormalizer::Function function) {
  return std::make_unique<FunctionNormalizer>(function);
}

}  // namespace

std::unique_ptr<Normalizer> make_normalizer(const Part& part) {
  part.check_depth();
  const std::string_view type = part.at("type").text();
  if (type == "NFC") return from_function(to_form<Form::nfc>);
  if (type == "NFD") return from_function(to_form<Form::nfd>);
  if (type == "NFKC") return from_function(to_form<Form::nfkc>);
  if (type == "NFKD") return from_function(to_form<Form::nfkd>);
  if (type == "Lowercase") return from_function(to_lower_case);
  if (type == "StripAccents") return from_function(strip_accents);
  if (type == "Nmt") return from_function(nmt);
  if (type == "ByteLevel") return from_function(to_byte_characters);
  if (type == "Strip") return std::make_unique<Strip>(part);
  if (type == "Replace") return std::make_unique<ReplaceNormalizer>(part);
  if (type == "Prepend") return std::make_unique<Prepend>(part);
  if (type == "BertNormalizer") return std::make_unique<BertNormalizer>(part);
  if (type == "Precompiled") return make_precompiled(part);
  if (type == "Sequence") return std::make_unique<NormalizerSequence>(part);
  part.unknown("type", type,
               {"BertNormalizer", "ByteLevel", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Nmt",
                "Precompiled", "Prepend", "Replace", "Sequence", "Strip", "StripAccents"});
}

}  // namespace weft::data::tokenizer
