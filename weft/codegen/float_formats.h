// Numbers of a format that processors have no instructions for, as bits in integers: by formulas of
// the loop IR, which every emitter knows.
#pragma once

#include "weft/codegen/scalar_code.h"

namespace weft::loop {

// `bits`: of at most 8, u8. Yields f32, which holds every such number.
Expr number_of_bits(Expr bits, const FloatFormat& format);
// Of an f32 or f64, rounded once, half to even; u8.
Expr bits_of_number(Expr x, const FloatFormat& format);

}  // namespace weft::loop
