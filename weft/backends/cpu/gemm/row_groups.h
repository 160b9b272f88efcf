// Visits rows that are sorted by group, as grouped products read them
// (weft/ops/grouped_matmul.cpp).
#pragma once

#include <algorithm>
#include <cstring>

#include "weft/base/numbers/dtype.h"
#include "weft/device/bound.h"

namespace weft::cpu {

// Calls f(group, first row, rows) for each group in order, and returns the number of rows in all
// groups.
template <class F>
int64_t for_each_group(const Bound& counts, void* const* operands, int64_t rows, const F& f) {
  int64_t from = 0;
  for (int64_t group = 0; group < counts.type.shape[0]; ++group) {
    const int64_t wanted = load_int(counts.in(operands), counts.type.dtype, group);
    const int64_t count = std::clamp<int64_t>(wanted, 0, rows - from);
    f(group, from, count);
    from += count;
  }
  return from;
}

// Returns the address of element `at` of a dense tensor of this type.
inline const std::byte* element(const std::byte* from, DType dtype, int64_t at) {
  return from + at * static_cast<int64_t>(size_of(dtype));
}
inline std::byte* element(std::byte* from, DType dtype, int64_t at) {
  return from + at * static_cast<int64_t>(size_of(dtype));
}
// Zero is zero bits in every type.
inline void fill_zeros(std::byte* to, DType dtype, int64_t count) {
  std::memset(to, 0, static_cast<size_t>(count) * size_of(dtype));
}

}  // namespace weft::cpu
