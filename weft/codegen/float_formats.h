// Converts narrow float formats, for which processors have no instructions, to and from their bits
// in integers, by formulas of the loop IR that every emitter supports.
#pragma once

#include "weft/ir/scalar_code.h"

namespace weft::loop {

// Converts an f64, i32 or i64 to f32 by rounding to odd: truncates, and sets the last bit if
// anything was lost, so that a second rounding to fewer bits gives what one rounding would.
Expr to_odd_single(Expr x);

// Returns the number that `bits` (u8) encode, as f32, which represents every number of these
// formats.
Expr number_of_bits(Expr bits, const FloatFormat& format);
// Returns the bits (u8) of an f32 or f64, rounded once to nearest even.
Expr bits_of_number(Expr x, const FloatFormat& format);

}  // namespace weft::loop
