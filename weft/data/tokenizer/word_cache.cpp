#include "weft/data/tokenizer/word_cache.h"

#include <cstring>
#include <utility>

#include "weft/base/numbers/hash.h"

namespace weft::data::tokenizer {
namespace {
constexpr size_t most_slots = size_t{1} << 17;

// Hashes short words in two loads; XXH3 hashes the others.
uint64_t hash_of(std::string_view word) {
  if (word.size() > 16) return hash_text(word);
  uint64_t low = 0, high = 0;
  if (word.size() >= 8) {
    std::memcpy(&low, word.data(), 8);
    std::memcpy(&high, word.data() + word.size() - 8, 8);
  } else if (word.size() >= 4) {
    std::memcpy(&low, word.data(), 4);
    std::memcpy(&high, word.data() + word.size() - 4, 4);
  } else {
    for (char c : word) low = low << 8 | static_cast<unsigned char>(c);
  }
  uint64_t mixed = (low ^ word.size() * 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ mixed >> 32 ^ high) * 0x94d049bb133111eb;
  return mixed ^ mixed >> 29;
}
}  // namespace

size_t WordCache::slot_of(std::string_view word, uint64_t hash) const {
  for (size_t slot = hash & (slots_.size() - 1);; slot = (slot + 1) & (slots_.size() - 1)) {
    const Slot& there = slots_[slot];
    if (there.key_bytes == 0) return slot;
    if (there.hash == hash && there.key_bytes == word.size() &&
        std::memcmp(keys_.data() + there.key_begin, word.data(), word.size()) == 0)
      return slot;
  }
}

bool WordCache::find(std::string_view word, std::vector<int32_t>& ids) {
  const Slot& slot = slots_[slot_of(word, hash_of(word))];
  if (slot.key_bytes == 0) return false;
  const int32_t* first = ids_.data() + slot.ids_begin;
  if (slot.ids_count == 1)
    ids.push_back(*first);
  else
    ids.insert(ids.end(), first, first + slot.ids_count);
  return true;
}

void WordCache::make_room() {
  if (2 * (count_ + 1) <= slots_.size()) return;
  if (slots_.size() >= most_slots) {
    slots_.assign(most_slots, {});
    keys_.clear();
    ids_.clear();
    count_ = 0;
    return;
  }
  const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(4 * slots_.size()));
  for (const Slot& slot : old) {
    if (slot.key_bytes == 0) continue;
    slots_[slot_of({keys_.data() + slot.key_begin, slot.key_bytes}, slot.hash)] = slot;
  }
}

void WordCache::insert(std::string_view word, const std::vector<int32_t>& ids, size_t from) {
  if (ids.size() - from > UINT16_MAX) return;
  make_room();
  const uint64_t hash = hash_of(word);
  slots_[slot_of(word, hash)] = {
      hash, static_cast<uint32_t>(keys_.size()), static_cast<uint32_t>(ids_.size()),
      static_cast<uint16_t>(word.size()), static_cast<uint16_t>(ids.size() - from)};
  keys_ += word;
  ids_.insert(ids_.end(), ids.begin() + static_cast<std::ptrdiff_t>(from), ids.end());
  ++count_;
}

}  // namespace weft::data::tokenizer
