// Divides and finds multiples, rounding up. The arguments are counts: neither is negative.
#pragma once

#include <concepts>
#include <type_traits>

namespace weft {

template <std::integral T>
constexpr T ceil_div(T count, std::type_identity_t<T> by) {
  return (count + by - 1) / by;
}
// Returns the least multiple of `unit` that is not less than `count`.
template <std::integral T>
constexpr T round_up(T count, std::type_identity_t<T> unit) {
  return ceil_div(count, unit) * unit;
}

}  // namespace weft
