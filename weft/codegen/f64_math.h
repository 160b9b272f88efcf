// Functions of f64 as branch-free scalar code, for devices whose compiler has none: within a few
// ULP of the exact value (tests/codegen/f64_test.cpp).
#pragma once

#include <span>

#include "weft/codegen/scalar_code.h"

namespace weft::loop {

struct F64Formula {
  const char* name;
  bool has_two;  // arguments
  Expr (*of)(Expr x, Expr y);
};

// One for each Function but sin, cos and tan, by its name; `near_sin` and `near_cos`, which are for
// |x| <= pi / 4. Each calls those before it only.
std::span<const F64Formula> f64_formulas();

}  // namespace weft::loop
