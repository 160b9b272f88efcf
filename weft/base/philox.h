// Random numbers as a function of (seed, stream, step, element index): Philox 4x32-10, the counter
// based generator of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
// Every backend computes these very bits; `stream` tells the call sites of one step apart.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <span>

namespace weft {

// Four random words for a 128-bit counter and a 64-bit key (ten rounds).
inline std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter,
                                      std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    uint64_t a = uint64_t{0xD2511F53} * counter[0], b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key = {key[0] + 0x9E3779B9, key[1] + 0xBB67AE85};
  }
  return counter;
}

// Which numbers of the generator: its key, and the part of the counter that is not the element.
struct PhiloxKey {
  int64_t seed = 0;
  int64_t stream = 0;  // the low 32 bits count
  int64_t step = 0;    // the low 32 bits count
};

// The random word of element `index`.
inline uint32_t philox_word(const PhiloxKey& key, int64_t index) {
  auto low = [](int64_t x) { return static_cast<uint32_t>(x); };
  auto high = [](int64_t x) { return static_cast<uint32_t>(static_cast<uint64_t>(x) >> 32); };
  int64_t block = index / 4;
  auto words = philox({low(block), high(block), low(key.step), low(key.stream)},
                      {low(key.seed), high(key.seed)});
  return words[static_cast<size_t>(index % 4)];
}

// Uniform in [0, 1): the top 24 bits, exact in float32.
inline float philox_uniform(const PhiloxKey& key, int64_t index) {
  return static_cast<float>(philox_word(key, index) >> 8) * 0x1p-24f;
}

// The stream of the second uniform number that a normal one takes.
inline int64_t second_stream(int64_t stream) {
  return stream ^ int64_t { 0x80000000 };
}

// Standard normal, by Box and Muller: sqrt(-2 ln u) cos(2 pi v), u in (0, 1].
inline double philox_normal(const PhiloxKey& key, int64_t index) {
  double u = 1.0 - static_cast<double>(philox_uniform(key, index));
  double v = philox_uniform({key.seed, second_stream(key.stream), key.step}, index);
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

// Host arrays, for the initial values of parameters; element i has index i.
inline void fill_uniform(std::span<float> values, const PhiloxKey& key, double low, double high) {
  for (size_t i = 0; i < values.size(); ++i) {
    double u = philox_uniform(key, static_cast<int64_t>(i));
    values[i] = static_cast<float>(low + (high - low) * u);
  }
}
inline void fill_normal(std::span<float> values, const PhiloxKey& key, double mean,
                        double deviation) {
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(mean + deviation * philox_normal(key, static_cast<int64_t>(i)));
}

}  // namespace weft
