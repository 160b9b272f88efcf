// Decoders turn tokens into text.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "weft/data/tokenizer/part.h"

namespace weft::data::tokenizer {

// A Decoder rewrites the texts of tokens; the decoded text is their concatenation. These are bytes,
// and UTF-8 only if the tokens make up whole characters.
class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual void apply(std::vector<std::string>& tokens) const = 0;
};

std::unique_ptr<Decoder> make_decoder(const Part& part);

}  // namespace weft::data::tokenizer
