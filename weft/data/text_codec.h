// TextCodec turns text into a model's ids and back: a tokenizer, or the vocabulary of a run.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "weft/data/tokenizer/tokenizer.h"
#include "weft/io/text.h"

namespace weft::data {

// TextStream gives the text of ids that come one by one; pieces end between characters.
class TextStream {
 public:
  explicit TextStream(const Tokenizer& tokenizer) : decoder_(tokenizer) {}
  explicit TextStream(const io::Vocabulary& vocabulary) : vocabulary_(&vocabulary) {}

  std::string add(int32_t id);
  std::string finish();  // the rest: bytes of an unfinished character

 private:
  std::optional<StreamDecoder> decoder_;
  const io::Vocabulary* vocabulary_ = nullptr;
};

class TextCodec {
 public:
  TextCodec(Tokenizer tokenizer);
  TextCodec(io::Vocabulary vocabulary);

  // Throws Error(data) for a character that a vocabulary lacks. `special_tokens`: with the special
  // tokens that a tokenizer puts around a text.
  std::vector<int32_t> encode(std::string_view text, bool special_tokens = true) const;
  std::string decode(std::span<const int32_t> ids) const;
  TextStream stream() const;
  // Returns the number of ids that stand for text; a model may have more.
  int64_t size() const;
  const io::Vocabulary* vocabulary() const { return std::get_if<io::Vocabulary>(&codec_); }
  const Tokenizer* tokenizer() const { return std::get_if<Tokenizer>(&codec_); }

 private:
  std::variant<Tokenizer, io::Vocabulary> codec_;
};

}  // namespace weft::data
