// The code works on groups of 64 elements, whose sixteen Philox blocks fill whole vectors. Normal
// numbers follow Box and Muller, two from two words. The polynomials avoid fused multiply-add, so
// that all processors give the same bits.
#include "weft/base/numbers/philox.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "weft/base/host/isa_dispatch.h"
#include "weft/base/host/parallel.h"
#include "weft/base/numbers/rounding.h"

namespace weft {
namespace {
constexpr int lanes = 16;
constexpr int64_t group_size = 4 * lanes;
constexpr int64_t parallel_groups = 256;  // below this, waking the team costs more than it saves

struct Group {
  alignas(64) uint32_t words[4][lanes];
  alignas(64) float values[4][lanes];
};

[[gnu::always_inline]] inline void draw_words(Group& group, int64_t index, const PhiloxKey& key) {
  auto low = [](int64_t x) { return static_cast<uint32_t>(x); };
  auto high = [](int64_t x) { return static_cast<uint32_t>(static_cast<uint64_t>(x) >> 32); };
  uint32_t low_block = low(index * lanes), high_block = high(index * lanes);  // lanes never carry
  uint32_t step = low(key.step), stream = low(key.stream);
  uint32_t key0 = low(key.seed), key1 = high(key.seed);
#pragma omp simd
  for (int lane = 0; lane < lanes; ++lane) {
    uint32_t a = low_block + static_cast<uint32_t>(lane), b = high_block, c = step, d = stream;
    philox_in_place(a, b, c, d, key0, key1);
    group.words[0][lane] = a, group.words[1][lane] = b;
    group.words[2][lane] = c, group.words[3][lane] = d;
  }
}

// Maps the top 24 bits exactly to [0, 1), through int32_t, which converts in one vector
// instruction.
[[gnu::always_inline]] inline float unit(uint32_t word) {
  return static_cast<float>(static_cast<int32_t>(word >> 8)) * 0x1p-24f;
}

// Returns ln u for u in (0, 1], with an error of about 1e-7: u = 2^e m, m in [sqrt(1/2), sqrt 2),
// and ln m = 2 artanh(s) with s = (m - 1) / (m + 1), |s| < 0.172.
[[gnu::always_inline]] inline float log_unit(float u) {
  int32_t bits = std::bit_cast<int32_t>(u);
  int32_t shifted = bits - 0x3F3504F3;  // bits of sqrt(1/2)
  int32_t exponent = shifted >> 23;
  float m = std::bit_cast<float>((shifted & 0x007FFFFF) + 0x3F3504F3);
  float s = (m - 1.0f) / (m + 1.0f), q = s * s;
  float series = 1.0f + q * (0.33333333f + q * (0.2f + q * (0.14285715f + q * 0.11111111f)));
  return static_cast<float>(exponent) * 0.69314718f + 2.0f * s * series;
}

// Computes the root by Newton's method from a guess by exponent bits. std::sqrt may set errno,
// which prevents vectorization.
[[gnu::always_inline]] inline float square_root(float x) {
  // The subtraction is unsigned, as it wraps for -0.
  float y =
      std::bit_cast<float>(0x5F375A86U - static_cast<uint32_t>(std::bit_cast<int32_t>(x) >> 1));
  for (int i = 0; i < 3; ++i) y = y * (1.5f - 0.5f * x * y * y);
  return x * y;
}

// Computes two independent standard normal numbers from two words.
[[gnu::always_inline]] inline void box_muller(uint32_t a, uint32_t b, float& x, float& y) {
  float radius = square_root(-2.0f * log_unit(1.0f - unit(a)));
  float half = (unit(b) - 0.5f) * 3.14159265f;  // half the angle, in [-pi/2, pi/2)
  float q = half * half;
  float sine =
      half * (1.0f + q * (-0.16666667f +
                          q * (8.3333333e-3f +
                               q * (-1.9841270e-4f + q * (2.7557319e-6f + q * -2.5052108e-8f)))));
  float cosine =
      1.0f +
      q * (-0.5f + q * (4.1666667e-2f +
                        q * (-1.3888889e-3f +
                             q * (2.4801587e-5f + q * (-2.7557319e-7f + q * 2.0876757e-9f)))));
  x = radius * (1.0f - 2.0f * sine * sine);
  y = radius * (2.0f * sine * cosine);
}

// values = offset + scale * number
struct Uniform {
  float offset, scale;
  [[gnu::always_inline]] inline void operator()(Group& group) const {
    for (int k = 0; k < 4; ++k)
#pragma omp simd
      for (int lane = 0; lane < lanes; ++lane)
        group.values[k][lane] = offset + scale * unit(group.words[k][lane]);
  }
};
struct Normal {
  float offset, scale;
  [[gnu::always_inline]] inline void operator()(Group& group) const {
    for (int k = 0; k < 4; k += 2)
#pragma omp simd
      for (int lane = 0; lane < lanes; ++lane) {
        float x, y;
        box_muller(group.words[k][lane], group.words[k + 1][lane], x, y);
        group.values[k][lane] = offset + scale * x;
        group.values[k + 1][lane] = offset + scale * y;
      }
  }
};

template <class Distribution>
struct Fill {
  [[gnu::always_inline]] static inline void run(float* values, int64_t count, const PhiloxKey* key,
                                                const Distribution* distribution, int64_t begin,
                                                int64_t end) {
    Group group;
    for (int64_t g = begin; g < end; ++g) {
      draw_words(group, g, *key);
      (*distribution)(group);
      int64_t first = g * group_size, size = std::min(group_size, count - first);
      std::memcpy(values + first, group.values, static_cast<size_t>(size) * sizeof(float));
    }
  }
};

template <class Distribution>
void fill(std::span<float> values, const PhiloxKey& key, const Distribution& distribution) {
  auto count = static_cast<int64_t>(values.size());
  int64_t groups = ceil_div(count, group_size);
  auto part = [&](int64_t begin, int64_t end) {
    run_on_best<Fill<Distribution>>(values.data(), count, &key, &distribution, begin, end);
  };
  if (groups < parallel_groups)
    part(0, groups);
  else
    parallel_for(groups, part);
}
}  // namespace

void fill_uniform(std::span<float> values, const PhiloxKey& key, double low, double high) {
  fill(values, key, Uniform{static_cast<float>(low), static_cast<float>(high - low)});
}
void fill_normal(std::span<float> values, const PhiloxKey& key, double mean, double deviation) {
  fill(values, key, Normal{static_cast<float>(mean), static_cast<float>(deviation)});
}
}  // namespace weft
