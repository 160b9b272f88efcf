// Aligns offsets in memory that several values share.
#pragma once

#include "weft/base/buffer.h"
#include "weft/base/rounding.h"

namespace weft {

// Returns `bytes` rounded up to a multiple of `unit`.
constexpr size_t aligned(size_t bytes, size_t unit = buffer_alignment) {
  return round_up(bytes, unit);
}

}  // namespace weft
