// Provides functions of f64 as branch-free scalar code, for devices whose compiler has none.
// Results are within a few ULP of the exact value (tests/codegen/f64_test.cpp).
#pragma once

#include <span>
#include <string_view>

#include "weft/codegen/scalar_code.h"

namespace weft::loop {

struct F64Formula {
  std::string_view name;
  bool has_two;  // takes two arguments
  Expr (*of)(Expr x, Expr y);
};

// Returns the formulas under their C names; `near_sin` and `near_cos` are for |x| <= pi / 4. Each
// formula calls only those before it. Devices without float64 compute functions that have no
// formula in float32.
std::span<const F64Formula> f64_formulas();

}  // namespace weft::loop
