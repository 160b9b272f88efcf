// Finds added tokens: texts that are a token wherever they occur, before words are looked for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "weft/data/tokenizer/normalizers.h"
#include "weft/data/tokenizer/part.h"
#include "weft/data/tokenizer/token_table.h"
#include "weft/data/tokenizer/trie.h"

namespace weft::data::tokenizer {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool single_word = false;             // never within a word
  bool lstrip = false, rstrip = false;  // includes the white space before or after it
  bool normalized = false;              // matched in the normalized text, not in the raw one
  bool special = false;                 // DecodeOptions::skip_special omits it
  std::string text = {};                // its decoded text: the content, normalized
};

// Segment is an added token, or text between added tokens (id -1).
struct Segment {
  size_t begin = 0, end = 0;
  int32_t id = -1;
};

class AddedTokens {
 public:
  AddedTokens() = default;
  // Reads "added_tokens" of a file. A token of the model keeps the model's id.
  void read(const Part& list, const TokenTable& model);
  void add(AddedToken token);
  // Prepares the search; content of normalized tokens goes through the normalizer, if there is one.
  void finish(const Normalizer* normalizer);

  // Append the segments of a text: split_raw() searches the raw text for tokens without
  // `normalized`, split_normalized() the normalized text for the others. The leftmost match wins,
  // of several the longest.
  void split_raw(std::string_view text, std::vector<Segment>& out) const { split(raw_, text, out); }
  void split_normalized(std::string_view text, std::vector<Segment>& out) const {
    split(normalized_, text, out);
  }

  // find() returns null, and id_of() -1, if there is no such token.
  const AddedToken* find(int64_t id) const;
  int32_t id_of(std::string_view content) const { return ids_.find(content); }
  int64_t size() const { return ids_.size(); }  // the greatest id + 1

 private:
  void split(const Trie& trie, std::string_view text, std::vector<Segment>& out) const;

  std::vector<AddedToken> tokens_;
  TokenTable ids_;
  std::unordered_map<int64_t, size_t> by_id_;  // index of a token
  Trie raw_, normalized_;                      // values are indices of tokens
};

}  // namespace weft::data::tokenizer
