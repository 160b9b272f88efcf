// Converts narrow float formats, for which processors have no instructions, to and from their bits
// in integers, by formulas of the loop IR that every emitter supports.
#pragma once

#include "weft/codegen/scalar_code.h"

namespace weft::loop {

// An f64, i32 or i64 to f32 such that a second rounding to fewer bits gives what one rounding
// would: truncated, with the last bit set if anything was lost (rounding to odd).
Expr to_odd_single(Expr x);

// `bits`: of at most 8, u8. Yields f32, which holds every such number.
Expr number_of_bits(Expr bits, const FloatFormat& format);
// Returns the bits (u8) of an f32 or f64, rounded once to nearest even.
Expr bits_of_number(Expr x, const FloatFormat& format);

}  // namespace weft::loop
