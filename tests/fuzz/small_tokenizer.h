// Defines the tokenizer of fuzzed texts, whose words are "e", "t" and "te".
#pragma once

#include "weft/data/tokenizer/tokenizer.h"

namespace weft::fuzz {

inline const data::Tokenizer& small_tokenizer() {
  static const data::Tokenizer made = data::Tokenizer::from_json(
      R"({"model":{"type":"BPE","unk_token":"?","vocab":{"?":0,"e":1,"t":2,"te":3},
"merges":["t e"]}})",
      "tokenizer");
  return made;
}

}  // namespace weft::fuzz
