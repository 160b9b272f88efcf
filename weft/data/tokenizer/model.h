// The model of a tokenizer turns a word into ids.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weft/data/tokenizer/part.h"
#include "weft/data/tokenizer/token_table.h"
#include "weft/data/tokenizer/word_cache.h"

namespace weft::data::tokenizer {

// A Model is immutable once it is made; threads share it, each with a cache of its own.
class Model {
 public:
  virtual ~Model() = default;

  // Appends the ids of a word: valid UTF-8, or bytes after take_bytes().
  void encode(std::string_view word, WordCache& cache, std::vector<int32_t>& ids) const {
    if (word.empty()) return;
    if (word.size() > WordCache::longest_word) return compute(word, cache, ids);
    if (cache.find(word, ids)) return;
    const size_t from = ids.size();
    compute(word, cache, ids);
    cache.insert(word, ids, from);
  }
  const TokenTable& tokens() const { return tokens_; }

  // Asks the model to map bytes to the characters of ByteLevel itself, so that text need not be
  // rewritten. Returns whether it does so from now on.
  virtual bool take_bytes() { return false; }

 protected:
  explicit Model(std::string file) : file_(std::move(file)) {}
  virtual void compute(std::string_view word, WordCache& cache,
                       std::vector<int32_t>& ids) const = 0;
  // Adds the tokens of a vocabulary {"token": id}.
  void read_vocabulary(const Part& vocabulary);
  [[noreturn]] void no_unknown_token(std::string_view word) const;

  TokenTable tokens_;
  std::string file_;
};

// Return the model that `part`, "model" of tokenizer.json, describes. make_model() chooses by
// "type", or, in older files without a type, by the keys.
std::unique_ptr<Model> make_model(const Part& part);
std::unique_ptr<Model> make_bpe(const Part& part);
std::unique_ptr<Model> make_unigram(const Part& part);
std::unique_ptr<Model> make_word_piece(const Part& part);
std::unique_ptr<Model> make_word_level(const Part& part);

// Returns the token of a byte in vocabularies with byte_fallback: "<0x0A>".
std::string byte_token(unsigned char byte);

}  // namespace weft::data::tokenizer
