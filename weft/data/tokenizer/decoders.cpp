#include "weft/data/tokenizer/decoders.h"

#include <algorithm>
#include <utility>

#include "weft/data/tokenizer/byte_level.h"
#include "weft/data/tokenizer/pre_tokenizers.h"
#include "weft/data/tokenizer/replace.h"
#include "weft/data/tokenizer/unicode.h"
#include "weft/io/text.h"

namespace weft::data::tokenizer {
namespace {

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  if (from.empty()) return std::string(text);
  size_t kept = 0;
  for (size_t at = text.find(from); at != std::string_view::npos; at = text.find(from, kept)) {
    out.append(text.substr(kept, at - kept)).append(to);
    kept = at + from.size();
  }
  return out.append(text.substr(kept));
}

// Removes the spaces that English tokenizers insert: " ." becomes ".", " n't" becomes "n't".
void clean_up(std::string& text) {
  static constexpr std::pair<std::string_view, std::string_view> rules[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : rules)
    if (text.find(from) != std::string::npos) text = replaced(text, from, to);
}

class ByteLevelDecoder : public Decoder {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::string bytes;
    for (const std::string& token : tokens)
      if (!append_bytes_of(bytes, token)) bytes += token;
    tokens.assign(1, std::move(bytes));
  }
};

class MetaspaceDecoder : public Decoder {
 public:
  explicit MetaspaceDecoder(const Part& part) : scheme_(prepend_scheme_of(part)) {
    io::append_utf8(replacement_, part.at("replacement").character());
  }
  void apply(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      const bool prepended = i == 0 && scheme_ != PrependScheme::never;
      tokens[i] = replaced(tokens[i], replacement_, prepended ? "" : " ");
    }
  }

 private:
  std::string replacement_;
  PrependScheme scheme_;
};

class WordPieceDecoder : public Decoder {
 public:
  explicit WordPieceDecoder(const Part& part)
      : prefix_(part.text_or("prefix", "##")), clean_(part.truth_or("cleanup", true)) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0 && tokens[i].starts_with(prefix_))
        tokens[i].erase(0, prefix_.size());
      else if (i > 0)
        tokens[i].insert(0, 1, ' ');
      if (clean_) clean_up(tokens[i]);
    }
  }

 private:
  std::string prefix_;
  bool clean_;
};

class BpeDecoder : public Decoder {
 public:
  explicit BpeDecoder(const Part& part) : suffix_(part.text_or("suffix", "</w>")) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens)
      token = replaced(token, suffix_, &token == &tokens.back() ? "" : " ");
  }

 private:
  std::string suffix_;
};

class ByteFallbackDecoder : public Decoder {
 public:
  // A run of byte tokens becomes one text. Bytes that are not UTF-8 stay as they are.
  void apply(std::vector<std::string>& tokens) const override {
    std::vector<std::string> out;
    bool in_bytes = false;
    for (std::string& token : tokens) {
      const int byte = byte_of(token);
      if (byte < 0) {
        out.push_back(std::move(token));
      } else {
        if (!in_bytes) out.emplace_back();
        out.back() += static_cast<char>(static_cast<unsigned char>(byte));
      }
      in_bytes = byte >= 0;
    }
    tokens = std::move(out);
  }

 private:
  static int byte_of(std::string_view token) {
    if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return -1;
    int byte = 0;
    for (char c : token.substr(3, 2)) {
      const bool digit = c >= '0' && c <= '9', upper = c >= 'A' && c <= 'F';
      if (!digit && !upper && !(c >= 'a' && c <= 'f')) return -1;
      byte = byte * 16 + (digit ? c - '0' : upper ? c - 'A' + 10 : c - 'a' + 10);
    }
    return byte;
  }
};

class FuseDecoder : public Decoder {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::string all;
    for (const std::string& token : tokens) all += token;
    tokens.assign(1, std::move(all));
  }
};

// Removes up to so many of a character from both ends of each token.
class StripDecoder : public Decoder {
 public:
  explicit StripDecoder(const Part& part)
      : start_(part.at("start").integer(0, INT64_MAX)),
        stop_(part.at("stop").integer(0, INT64_MAX)) {
    io::append_utf8(content_, part.at("content").character());
  }
  void apply(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) {
      std::string_view rest = token;
      for (int64_t i = 0; i < start_ && rest.starts_with(content_); ++i)
        rest.remove_prefix(content_.size());
      for (int64_t i = 0; i < stop_ && rest.ends_with(content_); ++i)
        rest.remove_suffix(content_.size());
      token = std::string(rest);
    }
  }

 private:
  std::string content_;
  int64_t start_, stop_;
};

class ReplaceDecoder : public Decoder {
 public:
  explicit ReplaceDecoder(const Part& part) : replace_(part) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens)
      token = replace_(replace_.needs_utf8() ? valid_utf8(token) : token);
  }

 private:
  Replace replace_;
};

// CtcDecoder decodes connectionist temporal classification: joins equal neighbours to one token and
// removes pad tokens.
class CtcDecoder : public Decoder {
 public:
  explicit CtcDecoder(const Part& part)
      : pad_(part.text_or("pad_token", "<pad>")),
        delimiter_(part.text_or("word_delimiter_token", "|")),
        clean_(part.truth_or("cleanup", true)) {}
  void apply(std::vector<std::string>& tokens) const override {
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    for (std::string& token : tokens) {
      token = replaced(token, pad_, "");
      if (!clean_) continue;
      clean_up(token);
      token = replaced(token, delimiter_, " ");
    }
    std::erase(tokens, std::string());
  }

 private:
  std::string pad_, delimiter_;
  bool clean_;
};

class DecoderSequence : public Decoder {
 public:
  explicit DecoderSequence(const Part& part) {
    part.at("decoders").for_each([&](const Part& item) { steps_.push_back(make_decoder(item)); });
  }
  void apply(std::vector<std::string>& tokens) const override {
    const size_t before = bytes_of(tokens);
    for (const auto& step : steps_) {
      step->apply(tokens);
      check_growth(bytes_of(tokens), before);
    }
  }

 private:
  static size_t bytes_of(const std::vector<std::string>& tokens) {
    size_t bytes = 0;
    for (const std::string& token : tokens) bytes += token.size();
    return bytes;
  }

  std::vector<std::unique_ptr<Decoder>> steps_;
};

}  // namespace

std::unique_ptr<Decoder> make_decoder(const Part& part) {
  part.check_depth();
  const std::string_view type = part.at("type").text();
  if (type == "ByteLevel") return std::make_unique<ByteLevelDecoder>();
  if (type == "Metaspace") return std::make_unique<MetaspaceDecoder>(part);
  if (type == "WordPiece") return std::make_unique<WordPieceDecoder>(part);
  if (type == "BPEDecoder") return std::make_unique<BpeDecoder>(part);
  if (type == "ByteFallback") return std::make_unique<ByteFallbackDecoder>();
  if (type == "Fuse") return std::make_unique<FuseDecoder>();
  if (type == "Strip") return std::make_unique<StripDecoder>(part);
  if (type == "Replace") return std::make_unique<ReplaceDecoder>(part);
  if (type == "CTC") return std::make_unique<CtcDecoder>(part);
  if (type == "Sequence") return std::make_unique<DecoderSequence>(part);
  part.unknown("type", type,
               {"BPEDecoder", "ByteFallback", "ByteLevel", "CTC", "Fuse", "Metaspace", "Replace",
                "Sequence", "Strip", "WordPiece"});
}

}  // namespace weft::data::tokenizer
