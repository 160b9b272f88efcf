// Finds tokens by text and by id.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft::data::tokenizer {

// A TokenTable maps texts to ids and ids to texts. Ids may have holes.
class TokenTable {
 public:
  // Adds a token. If the text was added before, find() returns the new id, while the old id still
  // has the text. If the id was added before, text_of() returns the new text. `id` must not be
  // negative.
  void add(std::string_view text, int32_t id);
  // Makes room, so that adding `count` tokens moves nothing.
  void reserve(size_t count);

  // Returns -1 if there is no such token.
  int32_t find(std::string_view text) const;
  // Does the same for many texts at once, so that their cache misses overlap. `ids` has the size of
  // `texts`.
  void find_all(std::span<const std::string_view> texts, std::span<int32_t> ids) const;
  // Returns nullopt if no token has that id. The text is valid until the next add().
  std::optional<std::string_view> text_of(int64_t id) const;
  // Returns the greatest id + 1.
  int64_t size() const { return static_cast<int64_t>(by_id_.size()); }
  // Returns the number of tokens.
  size_t count() const { return tokens_.size(); }

 private:
  struct Token {
    size_t begin;  // start of its text in texts_
    uint32_t bytes;
    int32_t id;
  };
  struct Slot {
    uint32_t hash = 0;
    int32_t index = -1;  // index into tokens_; -1: the slot is empty
  };
  std::string_view text_of(const Token& token) const {
    return std::string_view(texts_).substr(token.begin, token.bytes);
  }
  size_t slot_of(std::string_view text, uint64_t hash) const;
  const Slot& first_slot(uint64_t hash) const { return slots_[hash & (slots_.size() - 1)]; }
  void grow(size_t slots);

  std::string texts_;  // texts of all tokens, one after the other
  std::vector<Token> tokens_;
  std::vector<Slot> slots_;     // open addressing, a power of two, at most half full
  std::vector<int32_t> by_id_;  // index of a token, or -1
};

}  // namespace weft::data::tokenizer
