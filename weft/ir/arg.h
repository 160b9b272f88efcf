// Declares the arguments of operations.
#pragma once

#include <concepts>
#include <cstdint>
#include <source_location>
#include <utility>

#include "weft/ir/tensor.h"

namespace weft {

// An Arg is an argument of an operation: a value or weakly typed scalar, and the line of the call.
struct Arg {
  // Accepts tensors, and types that convert to Tensor (Variable).
  template <std::convertible_to<Tensor> T>
  Arg(const T& value, std::source_location where = std::source_location::current())
      : value(value), where(where) {}
  Arg(Tensor value, const UserLocation& where) : value(std::move(value)), where(where) {}
  Arg(double scalar, std::source_location where = std::source_location::current())
      : Arg(scalar, UserLocation(where)) {}
  Arg(double scalar, const UserLocation& where) : scalar(scalar), is_scalar(true), where(where) {}
  template <std::integral T>
  Arg(T scalar, std::source_location where = std::source_location::current())
      : Arg(static_cast<int64_t>(scalar), UserLocation(where)) {}
  Arg(int64_t scalar, const UserLocation& where)
      : scalar(static_cast<double>(scalar)), is_scalar(true), integral(true), where(where) {}

  Tensor value;  // empty for a scalar
  double scalar = 0;
  bool is_scalar = false;
  bool integral = false;
  UserLocation where;
};

}  // namespace weft
