// Makes random choices about samples, which are functions of (seed, epoch, index) and of their
// purpose.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "weft/base/numbers/philox.h"

namespace weft::data {

// Choice is the purpose of a random choice. Each purpose has its own stream of numbers.
enum class Choice : uint32_t { order = 1, augmentation, window, sum, synthetic, pattern, mask };

// Returns four random words; `draw` tells several calls for one sample apart.
inline std::array<uint32_t, 4> random_words(Choice choice, int64_t seed, int64_t epoch,
                                            int64_t index, uint32_t draw = 0) {
  auto low = [](int64_t x) { return static_cast<uint32_t>(x); };
  auto high = [](int64_t x) { return static_cast<uint32_t>(static_cast<uint64_t>(x) >> 32); };
  return philox({low(index), high(index), low(epoch), static_cast<uint32_t>(choice) | draw << 8},
                {low(seed), high(seed)});
}

// Returns a number uniform in [0, bound) from one word; its bias is below bound / 2^32.
inline int64_t below(int64_t bound, uint32_t word) {
  return static_cast<int64_t>(static_cast<uint64_t>(bound) * word >> 32);
}
// Returns a number uniform in [0, bound) from two words, for large bounds (up to 2^32).
inline int64_t below(int64_t bound, uint32_t high, uint32_t low) {
  auto n = static_cast<uint64_t>(bound);
  return static_cast<int64_t>((n * high + (n * low >> 32)) >> 32);
}

// Permutes [0, order.size()) by a Fisher-Yates shuffle that depends on (seed, epoch) alone.
void shuffle(std::span<int64_t> order, int64_t seed, int64_t epoch);

}  // namespace weft::data
