// Random numbers come in groups of 64: element 64 g + 16 k + l is word k of Philox block 16 g + l,
// so that sixteen blocks fill whole vectors. Normal ones by Box and Muller, two for two words. The
// polynomials are plain float arithmetic without fused multiply-add: the same bits on any
// processor.
#include "weft/nn/init.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "weft/base/parallel.h"
#include "weft/base/philox.h"

namespace weft::nn {
namespace {
constexpr int lanes = 16;
constexpr int64_t group_size = 4 * lanes;

struct Group {
  alignas(64) uint32_t words[4][lanes];
  alignas(64) float values[4][lanes];
};

// Elements [64 g, 64 g + 64) for g in [begin, end), handed to `store(first element, values)`.
struct Job {
  Init init;
  PhiloxKey key;
  const Variable* variable;
};

[[gnu::always_inline]] inline void philox_group(Group& group, int64_t index, const PhiloxKey& key) {
  auto low = [](int64_t x) { return static_cast<uint32_t>(x); };
  auto high = [](int64_t x) { return static_cast<uint32_t>(static_cast<uint64_t>(x) >> 32); };
  int64_t block = index * lanes;
  uint32_t low_block = low(block), high_block = high(block);  // lanes never carry: 16 divides block
  uint32_t step = low(key.step), stream = low(key.stream);
  uint32_t key0 = low(key.seed), key1 = high(key.seed);
#pragma omp simd
  for (int lane = 0; lane < lanes; ++lane) {
    uint32_t c0 = low_block + static_cast<uint32_t>(lane), c1 = high_block, c2 = step, c3 = stream;
    uint32_t k0 = key0, k1 = key1;
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {
      uint64_t a = uint64_t{0xD2511F53} * c0, b = uint64_t{0xCD9E8D57} * c2;
      uint32_t n0 = static_cast<uint32_t>(b >> 32) ^ c1 ^ k0;
      uint32_t n2 = static_cast<uint32_t>(a >> 32) ^ c3 ^ k1;
      c1 = static_cast<uint32_t>(b), c3 = static_cast<uint32_t>(a), c0 = n0, c2 = n2;
      k0 += 0x9E3779B9, k1 += 0xBB67AE85;
    }
    group.words[0][lane] = c0, group.words[1][lane] = c1;
    group.words[2][lane] = c2, group.words[3][lane] = c3;
  }
}

// Top 24 bits as [0, 1), exact.
[[gnu::always_inline]] inline float unit(uint32_t word) {
  return static_cast<float>(static_cast<int32_t>(word >> 8)) * 0x1p-24f;
}

// ln u for u in (0, 1], error about 1e-7: u = 2^e m, m in [sqrt(1/2), sqrt 2), and
// ln m = 2 artanh(s) with s = (m - 1) / (m + 1), |s| < 0.172.
[[gnu::always_inline]] inline float log_unit(float u) {
  int32_t bits = std::bit_cast<int32_t>(u);
  int32_t shifted = bits - 0x3F3504F3;  // bits of sqrt(1/2)
  int32_t exponent = shifted >> 23;
  float m = std::bit_cast<float>((shifted & 0x007FFFFF) + 0x3F3504F3);
  float s = (m - 1.0f) / (m + 1.0f), q = s * s;
  float series = 1.0f + q * (0.33333333f + q * (0.2f + q * (0.14285715f + q * 0.11111111f)));
  return static_cast<float>(exponent) * 0.69314718f + 2.0f * s * series;
}

// By Newton's method from a first guess in the exponent: std::sqrt may set errno, so it would not
// become vector code.
[[gnu::always_inline]] inline float square_root(float x) {
  float y = std::bit_cast<float>(0x5F375A86 - (std::bit_cast<int32_t>(x) >> 1));
  for (int i = 0; i < 3; ++i) y = y * (1.5f - 0.5f * x * y * y);
  return x * y;
}

// Two independent standard normal numbers from two words.
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

[[gnu::always_inline]] inline void fill_group(Group& group, const Init& init) {
  float offset = static_cast<float>(init.a);
  if (init.kind == Init::Kind::uniform) {
    float extent = static_cast<float>(init.b - init.a);
    for (int k = 0; k < 4; ++k)
#pragma omp simd
      for (int lane = 0; lane < lanes; ++lane)
        group.values[k][lane] = offset + extent * unit(group.words[k][lane]);
  } else {
    float deviation = static_cast<float>(init.b);
    for (int k = 0; k < 4; k += 2)
#pragma omp simd
      for (int lane = 0; lane < lanes; ++lane) {
        float x, y;
        box_muller(group.words[k][lane], group.words[k + 1][lane], x, y);
        group.values[k][lane] = offset + deviation * x;
        group.values[k + 1][lane] = offset + deviation * y;
      }
  }
}

[[gnu::always_inline]] inline void fill_groups(const Job& job, std::byte* data, int64_t begin,
                                               int64_t end) {
  DType dtype = job.variable->type().dtype;
  int64_t elements = job.variable->type().elements();
  Group group;
  for (int64_t g = begin; g < end; ++g) {
    philox_group(group, g, job.key);
    fill_group(group, job.init);
    int64_t first = g * group_size, count = std::min(group_size, elements - first);
    const float* values = &group.values[0][0];
    if (dtype == DType::f32)
      std::memcpy(data + first * 4, values, static_cast<size_t>(count) * sizeof(float));
    else
      for (int64_t i = 0; i < count; ++i) store(data, dtype, first + i, values[i]);
  }
}

using FillFunction = void (*)(const Job&, std::byte*, int64_t, int64_t);
void fill_plain(const Job& job, std::byte* data, int64_t begin, int64_t end) {
  fill_groups(job, data, begin, end);
}
#if defined(__x86_64__)
[[gnu::target("avx2")]] void fill_avx2(const Job& job, std::byte* data, int64_t begin,
                                       int64_t end) {
  fill_groups(job, data, begin, end);
}
[[gnu::target("avx512f,avx512dq")]] void fill_avx512(const Job& job, std::byte* data, int64_t begin,
                                                     int64_t end) {
  fill_groups(job, data, begin, end);
}
FillFunction best_fill() {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) return fill_avx512;
  return __builtin_cpu_supports("avx2") ? fill_avx2 : fill_plain;
}
#else
FillFunction best_fill() { return fill_plain; }
#endif

// Small ones are not worth the team's start.
constexpr int64_t parallel_groups = 256;
}  // namespace

Init Init::fan_in(int64_t fan_in) {
  double bound = fan_in > 0 ? 1 / std::sqrt(static_cast<double>(fan_in)) : 0;
  return uniform(-bound, bound);
}

void initialize(const Variable& variable, const Init& init, int64_t seed, int64_t stream) {
  std::byte* data = variable.bytes().data();
  int64_t elements = variable.type().elements();
  if (init.kind == Init::Kind::constant) {
    for (int64_t i = 0; i < elements; ++i) store(data, variable.type().dtype, i, init.a);
    return;
  }
  // Step -1: no random op of a step draws from it.
  Job job{init, {.seed = seed, .stream = stream, .step = -1}, &variable};
  int64_t groups = (elements + group_size - 1) / group_size;
  static const FillFunction fill = best_fill();
  if (groups < parallel_groups) return fill(job, data, 0, groups);
  parallel_for(groups, [&](int64_t begin, int64_t end) { fill(job, data, begin, end); });
}

}  // namespace weft::nn
