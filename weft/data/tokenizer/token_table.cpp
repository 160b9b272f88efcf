#include "weft/data/tokenizer/token_table.h"

#include <algorithm>
#include <array>
#include <bit>

#include "weft/base/numbers/hash.h"

namespace weft::data::tokenizer {

size_t TokenTable::slot_of(std::string_view text, uint64_t hash) const {
  const auto short_hash = static_cast<uint32_t>(hash >> 32);
  for (size_t slot = hash & (slots_.size() - 1);; slot = (slot + 1) & (slots_.size() - 1)) {
    const Slot& there = slots_[slot];
    if (there.index < 0) return slot;
    if (there.hash == short_hash && text_of(tokens_[static_cast<size_t>(there.index)]) == text)
      return slot;
  }
}

void TokenTable::grow(size_t slots) {
  slots_.assign(slots, {});
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const uint64_t hash = hash_text(text_of(tokens_[i]));
    slots_[slot_of(text_of(tokens_[i]), hash)] = {static_cast<uint32_t>(hash >> 32),
                                                  static_cast<int32_t>(i)};
  }
}

void TokenTable::reserve(size_t count) {
  tokens_.reserve(count);
  by_id_.reserve(count);
  const size_t slots = std::bit_ceil(2 * count + 2);
  if (slots > slots_.size()) grow(slots);
}

void TokenTable::add(std::string_view text, int32_t id) {
  if (slots_.size() < 2 * (tokens_.size() + 1)) grow(std::bit_ceil(4 * tokens_.size() + 16));
  const uint64_t hash = hash_text(text);
  Slot& slot = slots_[slot_of(text, hash)];
  if (slot.index < 0) {
    slot = {static_cast<uint32_t>(hash >> 32), static_cast<int32_t>(tokens_.size())};
    tokens_.push_back({texts_.size(), static_cast<uint32_t>(text.size()), id});
    texts_ += text;
  } else {
    tokens_[static_cast<size_t>(slot.index)].id = id;
  }
  if (by_id_.size() <= static_cast<size_t>(id)) by_id_.resize(static_cast<size_t>(id) + 1, -1);
  by_id_[static_cast<size_t>(id)] = slot.index;
}

int32_t TokenTable::find(std::string_view text) const {
  if (slots_.empty()) return -1;
  const int32_t index = slots_[slot_of(text, hash_text(text))].index;
  return index < 0 ? -1 : tokens_[static_cast<size_t>(index)].id;
}

void TokenTable::find_all(std::span<const std::string_view> texts, std::span<int32_t> ids) const {
  constexpr size_t most_in_flight = 32;
  if (slots_.empty()) {
    std::ranges::fill(ids, -1);
    return;
  }
  std::array<uint64_t, most_in_flight> hashes;
  for (size_t from = 0; from < texts.size(); from += most_in_flight) {
    const size_t count = std::min(most_in_flight, texts.size() - from);
    const auto for_each_token = [&](auto&& use) {
      for (size_t i = 0; i < count; ++i)
        if (const int32_t index = first_slot(hashes[i]).index; index >= 0)
          use(tokens_[static_cast<size_t>(index)]);
    };
    for (size_t i = 0; i < count; ++i) {
      hashes[i] = hash_text(texts[from + i]);
      __builtin_prefetch(&first_slot(hashes[i]));
    }
    for_each_token([](const Token& token) { __builtin_prefetch(&token); });
    for_each_token([&](const Token& token) { __builtin_prefetch(texts_.data() + token.begin); });
    for (size_t i = 0; i < count; ++i) {
      const int32_t index = slots_[slot_of(texts[from + i], hashes[i])].index;
      ids[from + i] = index < 0 ? -1 : tokens_[static_cast<size_t>(index)].id;
    }
  }
}

std::optional<std::string_view> TokenTable::text_of(int64_t id) const {
  if (id < 0 || id >= size()) return std::nullopt;
  const int32_t index = by_id_[static_cast<size_t>(id)];
  if (index < 0) return std::nullopt;
  return text_of(tokens_[static_cast<size_t>(index)]);
}

}  // namespace weft::data::tokenizer
