// Where values begin in memory that several share.
#pragma once

#include "weft/base/buffer.h"

namespace weft {

// The next multiple of `unit`.
constexpr size_t aligned(size_t bytes, size_t unit = buffer_alignment) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace weft
