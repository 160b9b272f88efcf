// GPT-2's files, vocab.json and merges.txt, as one tokenizer.json.
#pragma once

#include <string>
#include <string_view>

namespace weft::data::tokenizer {

// Returns the tokenizer.json of a byte-level BPE with that vocabulary and those merges, one of two
// tokens a line. <|endoftext|>, and RoBERTa's <s>, <pad>, </s>, <unk> and <mask>, are special where
// the vocabulary has them. Throws Error(data), with the name of the file.
std::string json_of_merges(std::string_view vocabulary, const std::string& vocabulary_name,
                           std::string_view merges, const std::string& merges_name);

}  // namespace weft::data::tokenizer
