// Generates random numbers as a function of (seed, stream, step, element index): Philox 4x32-10,
// the counter based generator of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC
// 2011). All backends compute identical bits; `stream` distinguishes the call sites of one training
// step.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace weft {

// Replaces a 128-bit counter by four random words, for a 64-bit key. Loops over it vectorize.
[[gnu::always_inline]] inline void philox_in_place(uint32_t& c0, uint32_t& c1, uint32_t& c2,
                                                   uint32_t& c3, uint32_t k0, uint32_t k1) {
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    uint64_t a = uint64_t{0xD2511F53} * c0, b = uint64_t{0xCD9E8D57} * c2;
    c0 = static_cast<uint32_t>(b >> 32) ^ c1 ^ k0, c1 = static_cast<uint32_t>(b);
    c2 = static_cast<uint32_t>(a >> 32) ^ c3 ^ k1, c3 = static_cast<uint32_t>(a);
    k0 += 0x9E3779B9, k1 += 0xBB67AE85;
  }
}
inline std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter,
                                      std::array<uint32_t, 2> key) {
  philox_in_place(counter[0], counter[1], counter[2], counter[3], key[0], key[1]);
  return counter;
}

// A PhiloxKey selects a sequence: the key, and the counter's part besides the element's index.
struct PhiloxKey {
  int64_t seed = 0;
  int64_t stream = 0;  // the low 32 bits count
  int64_t step = 0;    // the low 32 bits count
};

// Returns the random word of element `index`.
inline uint32_t philox_word(const PhiloxKey& key, int64_t index) {
  auto low = [](int64_t x) { return static_cast<uint32_t>(x); };
  auto high = [](int64_t x) { return static_cast<uint32_t>(static_cast<uint64_t>(x) >> 32); };
  int64_t block = index / 4;
  auto words = philox({low(block), high(block), low(key.step), low(key.stream)},
                      {low(key.seed), high(key.seed)});
  return words[static_cast<size_t>(index % 4)];
}

// Returns a number uniform in [0, 1) from the top 24 bits, exact in float32.
inline float philox_uniform(const PhiloxKey& key, int64_t index) {
  return static_cast<float>(philox_word(key, index) >> 8) * 0x1p-24f;
}

// Returns the stream of the second uniform number that a normal number consumes.
inline int64_t second_stream(int64_t stream) {
  return stream ^ int64_t { 0x80000000 };
}

// Fill host arrays in parallel; the values do not depend on the thread count. Element 64 g + 16 k +
// l comes from word k of block 16 g + l; pairs of words (0 and 1, 2 and 3) give pairs of normal
// numbers.
void fill_uniform(std::span<float> values, const PhiloxKey& key, double low, double high);
void fill_normal(std::span<float> values, const PhiloxKey& key, double mean, double deviation);

}  // namespace weft
