// Builds scalar code of the loop IR from expressions: an Expr is an instruction, and operators
// append one. Equal instructions are emitted once.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

#include "weft/ir/loop_ir.h"

namespace weft::loop {

class Code;

struct Expr {
  Code* code = nullptr;
  int id = -1;

  DType type() const;
};

class Code {
 public:
  explicit Code(Kernel& kernel) : kernel_(kernel) {}

  Expr number(DType type, double value);  // truncated if `type` is an integer type
  Expr integer(DType type, int64_t value);
  // Appends the instruction or finds an equal one; derives its axes (for arithmetic) and its phase.
  Expr add(Instruction instruction);
  Expr op(Op op, DType type, Expr a, Expr b = {}, Expr c = {});

  const Instruction& at(int id) const { return kernel_.code[static_cast<size_t>(id)]; }
  const Kernel& kernel() const { return kernel_; }

 private:
  Kernel& kernel_;
  std::unordered_map<std::string, int> known_;
};

Expr operator+(Expr a, Expr b);
Expr operator-(Expr a, Expr b);
Expr operator*(Expr a, Expr b);
Expr operator/(Expr a, Expr b);
Expr operator-(Expr a);
Expr operator+(Expr a, double b);
Expr operator-(Expr a, double b);
Expr operator-(double a, Expr b);
Expr operator*(Expr a, double b);
Expr operator/(double a, Expr b);
Expr operator%(Expr a, Expr b);  // of integers, truncating
Expr operator&(Expr a, Expr b);  // booleans too
Expr operator|(Expr a, Expr b);
Expr operator^(Expr a, Expr b);
Expr operator&(Expr a, int64_t b);
Expr operator|(Expr a, int64_t b);
Expr operator<<(Expr a, int bits);
Expr operator>>(Expr a, int bits);
// Shift by a count of bits in [0, width); shift_right is logical.
Expr shift_left(Expr a, Expr count);
Expr shift_right(Expr a, Expr count);
Expr operator!(Expr a);  // boolean
Expr operator<(Expr a, Expr b);
Expr operator<=(Expr a, Expr b);
Expr operator>(Expr a, Expr b);
Expr operator>=(Expr a, Expr b);
Expr operator==(Expr a, Expr b);
Expr operator!=(Expr a, Expr b);
Expr operator<(Expr a, double b);
Expr operator<=(Expr a, double b);
Expr operator>(Expr a, double b);
Expr operator>=(Expr a, double b);
Expr operator==(Expr a, double b);
Expr operator!=(Expr a, double b);

Expr constant_like(Expr like, double value);
Expr fma(Expr a, Expr b, Expr c);
Expr fma(Expr a, Expr b, double c);
Expr fma(Expr a, double b, Expr c);
Expr scale(Expr x, Expr exponent);  // x * 2^exponent, where exponent is a whole number
Expr select(Expr condition, Expr a, Expr b);
Expr select(Expr condition, Expr a, double b);
Expr select(Expr condition, double a, Expr b);
// Returns whether processors have this function of C as one instruction.
bool is_instruction(std::string_view function);
Expr intrinsic(std::string_view function, Expr x);
Expr sqrt(Expr x);
Expr floor(Expr x);
Expr rint(Expr x);  // half to even
Expr abs(Expr x);
Expr is_nan(Expr x);
Expr is_finite(Expr x);
Expr truth(Expr x);     // whether x is not 0
Expr to_float(Expr x);  // integers become f64
// Returns the remainder of division by b that rounds to minus infinity; `rest` is the remainder of
// division that truncates.
Expr floored_rest(Expr b, Expr rest);
// Returns the floored quotient of two floats by Python's rules, where `floored` is the floor of the
// rounded one: -1 instead of -0 where the exact quotient is below 0, as in 1 / -infinity, and nan
// for an infinite dividend, unless it is divided by 0.
Expr floored_quotient(Expr a, Expr b, Expr floored);
Expr convert(Expr x, DType type);
Expr bitcast(Expr x, DType type);
Expr call(std::string_view function, Expr a, Expr b = {});
// Return the larger or the smaller operand; nan if either is nan.
Expr maximum(Expr a, Expr b);
Expr minimum(Expr a, Expr b);

}  // namespace weft::loop
