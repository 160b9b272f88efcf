// Aligns offsets in memory that several values share.
#pragma once

#include "weft/base/memory/buffer.h"
#include "weft/base/numbers/rounding.h"

namespace weft {

// Returns `bytes` rounded up to a multiple of `unit`.
constexpr size_t aligned(size_t bytes, size_t unit = buffer_alignment) {
  return round_up(bytes, unit);
}

}  // namespace weft
