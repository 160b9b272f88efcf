#include "weft/backends/cpu/blocks/int8_rows.h"

#include <bit>
#include <limits>

#include "weft/backends/cpu/simd/elements.h"
#include "weft/base/host/parallel.h"

#if !defined(__clang__)
#pragma GCC optimize("O3")
#endif

namespace weft::cpu::int8 {
namespace {
// Rounds block `block` of 32 neighbours of a row.
void round_neighbours(const float* x, const Rows& rows, const Bundle& bundle, int64_t row,
                      int64_t block, int64_t k, int64_t group) {
  constexpr uint32_t magnitude = 0x7fffffff, infinity = 0x7f800000;
  uint32_t most_bits = 0;  // magnitudes have the order of their bits, and NaN is the greatest
  for (int i = 0; i < neighbours; ++i)
    most_bits = std::max(most_bits, std::bit_cast<uint32_t>(x[i]) & magnitude);
  const float most = std::bit_cast<float>(most_bits);
  const bool is_finite = most_bits < infinity;
  const float inverse = most > 0x1p-100F && is_finite ? 127 / most : 0;
  // The addition leaves no bits for fractions, so that the lowest byte is the integer.
  constexpr float without_fractions = 0x1.8p23F;
  int8_t quants[neighbours];
  for (int i = 0; i < neighbours; ++i) {
    const float scaled = is_finite ? x[i] * inverse : 0;
    quants[i] = static_cast<int8_t>(std::bit_cast<uint32_t>(scaled + without_fractions));
  }
  const int64_t lane = row - bundle.first;
  int8_t* to = rows.quants + bundle.first * k + (block * neighbours * bundle.rows + 4 * lane);
  for (int64_t i = 0; i < neighbours / 4; ++i)
    __builtin_memcpy(to + i * 4 * bundle.rows, quants + 4 * i, 4);
  rows.scales[bundle.first * (k / neighbours) + block * bundle.rows + lane] =
      is_finite ? most / 127 : std::numeric_limits<float>::quiet_NaN();
  int32_t* starts = rows.starts + bundle.first * (k / group);
  for (int64_t part = 0; part < neighbours / group; ++part) {
    int32_t sum = 0;
    for (int64_t i = 0; i < group; ++i) sum += quants[part * group + i];
    starts[(block * (neighbours / group) + part) * bundle.rows + lane] = -128 * sum;
  }
}
}  // namespace

void round_rows(const std::byte* x, DType dtype, int64_t m, int64_t k, int64_t group,
                int64_t most_rows, const Rows& rows) {
  // One thread has rounded up to this many numbers before other threads have begun.
  constexpr int64_t numbers_alone = 16384;
  const int64_t each = k / neighbours, blocks = m * each;
  auto round_blocks = [&](int64_t begin, int64_t end) {
    with_float(dtype, [&](auto element, auto) {
      using Element = decltype(element);
      const auto* from = reinterpret_cast<const Element*>(x);
      for (int64_t block = begin; block < end; ++block) {
        float wide[neighbours];
        for (int64_t i = 0; i < neighbours; ++i)
          wide[i] = to_lane<float>(from[block * neighbours + i]);
        const int64_t row = block / each;
        round_neighbours(wide, rows, bundle_of(row, m, most_rows), row, block % each, k, group);
      }
    });
  };
  if (blocks * neighbours <= numbers_alone) return round_blocks(0, blocks);
  parallel_for(blocks, round_blocks);
}

}  // namespace weft::cpu::int8
