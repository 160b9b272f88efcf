// Writes the vocabulary of a run as a tokenizer.json, for programs that read no other tokenizer.
#pragma once

#include <string>

#include "weft/io/text.h"

namespace weft::data {

// Returns the contents of a tokenizer.json (of the tokenizers package) that gives the ids of the
// vocabulary: byte pair encoding without a merge. Characters that the vocabulary lacks are left out
// by it, where Vocabulary::encode refuses them.
std::string tokenizer_json(const io::Vocabulary& vocabulary);

}  // namespace weft::data
