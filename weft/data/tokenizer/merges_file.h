// GPT-2's files, vocab.json and merges.txt, as one tokenizer.json.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace weft::data::tokenizer {

// Returns the tokenizer.json of a byte-level BPE with that vocabulary and the merges of a text, one
// of two tokens a line. <|endoftext|>, and RoBERTa's <s>, <pad>, </s>, <unk> and <mask>, are
// special where the vocabulary has them. Throws Error(data) that names `merges_name` and the line.
nlohmann::json json_of_merges(nlohmann::json vocabulary, std::string_view merges,
                              const std::string& merges_name);

}  // namespace weft::data::tokenizer
