// Rewrites tokenizer files from before tokenizer.json as the text of one: GPT-2's vocab.json with
// merges.txt, and BERT's vocab.txt with tokenizer_config.json.
#pragma once

#include <string>
#include <string_view>

#include "weft/data/tokenizer/part.h"

namespace weft::data::tokenizer {

// NamedText is a file's contents, and its name for errors.
struct NamedText {
  std::string_view text;
  const std::string& name;
};

// Returns the tokenizer.json of a byte-level BPE with the vocabulary `json`, parsed as
// `vocabulary`, and the merges of a text, two tokens a line. <|endoftext|>, and RoBERTa's <s>,
// <pad>, </s>, <unk> and <mask>, are special where the vocabulary has them. Throws Error(data) that
// names the file of the merges and the line.
std::string json_of_gpt2(const Part& vocabulary, std::string_view json, const NamedText& merges);

// Returns the tokenizer.json of BERT's WordPiece (Devlin et al. 2019) whose token of line n, from
// 0, has the id n; an empty `config` has the defaults. Throws Error(data) that names the file and
// the line, or the key of the config.
std::string json_of_bert(const NamedText& vocabulary, const NamedText& config);

}  // namespace weft::data::tokenizer
