// TextCodec turns text into a model's ids and back: a tokenizer, or the vocabulary of a run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "weft/data/tokenizer/tokenizer.h"
#include "weft/io/text.h"

namespace weft::infer {

// TextStream gives the text of ids that come one by one; pieces end between characters.
class TextStream {
 public:
  explicit TextStream(const data::Tokenizer& tokenizer) : decoder_(tokenizer) {}
  explicit TextStream(const io::Vocabulary& vocabulary) : vocabulary_(&vocabulary) {}

  std::string add(int32_t id);
  std::string finish();  // what is left of an unfinished character

 private:
  std::optional<data::StreamDecoder> decoder_;
  const io::Vocabulary* vocabulary_ = nullptr;
};

class TextCodec {
 public:
  explicit TextCodec(data::Tokenizer tokenizer) : codec_(std::move(tokenizer)) {}
  explicit TextCodec(io::Vocabulary vocabulary) : codec_(std::move(vocabulary)) {}

  // Throws Error(data) for characters that a vocabulary lacks. `special_tokens` are those that a
  // tokenizer puts around a text.
  std::vector<int32_t> encode(std::string_view text, bool special_tokens = true) const;
  TextStream stream() const;
  // Returns the number of ids that stand for text; a model may have more.
  int64_t size() const;

 private:
  std::variant<data::Tokenizer, io::Vocabulary> codec_;
};

}  // namespace weft::infer
