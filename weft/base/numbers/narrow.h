// Rounds float32 to 16 bits, to nearest, ties to even. The functions are inlined, so that loops
// over them vectorize.
#pragma once

#include <bit>
#include <cstdint>

#include "weft/base/numbers/dtype.h"

namespace weft {

template <class Narrow>
Narrow narrow(float value);

template <>
[[gnu::always_inline]] inline Half narrow<Half>(float value) {
  return std::bit_cast<Half>(static_cast<_Float16>(value));
}
template <>
[[gnu::always_inline]] inline BFloat16 narrow<BFloat16>(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  const uint32_t quiet = bits >> 16 | 0x40;
  return {static_cast<uint16_t>(value != value ? quiet : rounded)};
}

}  // namespace weft
