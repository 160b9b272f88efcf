// Where values begin in memory that several share.
#pragma once

#include "weft/base/buffer.h"

namespace weft {

// The next multiple of buffer_alignment.
constexpr size_t aligned(size_t bytes) {
  return (bytes + buffer_alignment - 1) / buffer_alignment * buffer_alignment;
}

}  // namespace weft
