// Converts narrow float formats, for which processors have no instructions, to and from their bits
// in integers, by formulas of the loop IR that every emitter supports.
#pragma once

#include "weft/codegen/scalar_code.h"

namespace weft::loop {

// Returns the number that `bits` (u8) encode as f32, which represents every such number exactly.
Expr number_of_bits(Expr bits, const FloatFormat& format);
// Returns the bits (u8) of an f32 or f64, rounded once to nearest even.
Expr bits_of_number(Expr x, const FloatFormat& format);

}  // namespace weft::loop
