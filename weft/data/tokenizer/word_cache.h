// Caches the ids of words that occurred before. Text repeats its words: of a megabyte of prose, one
// word in thirty is new.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft::data::tokenizer {

// A WordCache belongs to one thread at a time. It begins anew when it is full (65,536 words).
class WordCache {
 public:
  static constexpr size_t longest_word = 128;  // bytes; longer words are not cached

  // Appends the ids of the word and returns true, or returns false if the word is not here.
  bool find(std::string_view word, std::vector<int32_t>& ids);
  // Keeps ids[from...] for the word of the last find(), which must have returned false.
  void insert(std::string_view word, const std::vector<int32_t>& ids, size_t from);

 private:
  struct Slot {
    uint64_t hash = 0;
    uint32_t key_begin = 0, ids_begin = 0;
    uint16_t key_bytes = 0, ids_count = 0;  // no key: the slot is free
  };
  size_t slot_of(std::string_view word, uint64_t hash) const;
  void make_room();

  std::vector<Slot> slots_ = std::vector<Slot>(4096);
  std::string keys_;
  std::vector<int32_t> ids_;
  size_t count_ = 0;
};

}  // namespace weft::data::tokenizer
