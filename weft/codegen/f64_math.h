// Functions of f64 as branch-free scalar code, for devices whose compiler has none: within a few
// ULP of the exact value (tests/codegen/f64_test.cpp).
#pragma once

#include <span>
#include <string_view>

#include "weft/codegen/scalar_code.h"

namespace weft::loop {

struct F64Formula {
  std::string_view name;
  bool has_two;  // arguments
  Expr (*of)(Expr x, Expr y);
};

// Functions of C by their names; `near_sin` and `near_cos` are for |x| <= pi / 4. Each calls those
// before it only. Where a function has none, devices without float64 compute it in float32.
std::span<const F64Formula> f64_formulas();

}  // namespace weft::loop
