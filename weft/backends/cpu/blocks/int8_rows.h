// Rounds to int8 the rows of a product by a matrix in blocks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "weft/base/numbers/dtype.h"
#include "weft/base/numbers/rounding.h"

namespace weft::cpu::int8 {

inline constexpr int64_t neighbours = 32;  // adjacent numbers of a row that share one scale
inline constexpr int64_t cache_line = 64;

// A Bundle is rows that are multiplied at a time.
struct Bundle {
  int64_t first, rows;
};
// Returns the bundle that contains `row`: `most` rows or, of the last m % most rows, 4 or 1.
inline Bundle bundle_of(int64_t row, int64_t m, int64_t most) {
  const int64_t left_from = m / most * most;
  if (row < left_from) return {row / most * most, most};
  if (most > 4 && row < left_from + 4 && left_from + 4 <= m) return {left_from, 4};
  return {row, 1};
}

// Rows are the rounded rows in scratch, bundle after bundle. A bundle has quants [k / 4, rows, 4],
// scales [k / 32, rows] and starts [k / group, rows]. A start is -128 times the sum of the row's
// quants in one group: the 16 or 32 numbers that share a scale in the matrix's format.
struct Rows {
  int8_t* quants;
  float* scales;
  int32_t* starts;

  static size_t bytes(int64_t m, int64_t k) {
    return static_cast<size_t>(
        round_up(m * k + m * k / neighbours * 4 + m * k / 16 * 4, cache_line));
  }
  Rows(std::byte* memory, int64_t m, int64_t k)
      : quants(reinterpret_cast<int8_t*>(memory)),
        scales(reinterpret_cast<float*>(memory + m * k)),
        starts(reinterpret_cast<int32_t*>(memory + m * k + m * k / neighbours * 4)) {}
};

// Rounds m rows of k numbers of `dtype`; `group` depends on the format of the matrix, `most_rows`
// on the instruction set. rounded_to_int8() of weft/ops/blocks.cpp defines the values.
void round_rows(const std::byte* x, DType dtype, int64_t m, int64_t k, int64_t group,
                int64_t most_rows, const Rows& rows);

}  // namespace weft::cpu::int8
