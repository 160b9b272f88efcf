// Computes elementwise operations: floats through the oracle or function of the OpDef, rounded to
// the dtype; integers in int64 wherever a double would lose bits.
#include <cmath>
#include <limits>

#include "weft/backends/reference/kernels.h"

namespace weft::reference {
namespace {
// Divides, rounding towards minus infinity; division by zero gives 0.
int64_t floor_quotient(int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return times(a, int64_t{-1});  // the least integer has no negative: wraps, no trap
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
int64_t floor_remainder(int64_t a, int64_t b) {
  if (b == 0) return 0;
  return plus(a, times(int64_t{-1}, times(floor_quotient(a, b), b)));
}

// Computes `result` in integers; returns false where the oracle is exact for integers, too.
bool exact(ScalarOp op, int64_t a, int64_t b, int64_t c, int64_t& result) {
  switch (op) {
    case ScalarOp::identity:
    case ScalarOp::cast:
      result = a;
      return true;
    case ScalarOp::neg:
      result = times(a, int64_t{-1});
      return true;
    case ScalarOp::abs:
      result = a < 0 ? times(a, int64_t{-1}) : a;
      return true;
    case ScalarOp::add:
      result = plus(a, b);
      return true;
    case ScalarOp::sub:
      result = plus(a, times(b, int64_t{-1}));
      return true;
    case ScalarOp::mul:
      result = times(a, b);
      return true;
    case ScalarOp::maximum:
      result = a > b ? a : b;
      return true;
    case ScalarOp::minimum:
      result = a < b ? a : b;
      return true;
    case ScalarOp::remainder:
      result = floor_remainder(a, b);
      return true;
    case ScalarOp::floor_divide:
      result = floor_quotient(a, b);
      return true;
    case ScalarOp::equal:
      result = a == b;
      return true;
    case ScalarOp::not_equal:
      result = a != b;
      return true;
    case ScalarOp::less:
      result = a < b;
      return true;
    case ScalarOp::less_equal:
      result = a <= b;
      return true;
    case ScalarOp::greater:
      result = a > b;
      return true;
    case ScalarOp::greater_equal:
      result = a >= b;
      return true;
    case ScalarOp::select:
      result = a != 0 ? b : c;
      return true;
    default:
      return false;
  }
}

// Converts a float to an integer: truncates and saturates; NaN becomes 0.
int64_t to_integer(double value, DType dtype) {
  if (std::isnan(value)) return 0;
  int bits = static_cast<int>(size_of(dtype)) * 8;
  bool has_sign = dtype != DType::u8;
  double low = has_sign ? -std::ldexp(1.0, bits - 1) : 0.0;
  double high = std::ldexp(1.0, has_sign ? bits - 1 : bits);  // one past the greatest
  if (value <= low) return static_cast<int64_t>(low);
  if (value < high) return static_cast<int64_t>(value);
  return dtype == DType::i64 ? std::numeric_limits<int64_t>::max() : static_cast<int64_t>(high) - 1;
}
}  // namespace

void elementwise(const Node& node, const Operands& in, const View& out) {
  const OpDef& def = *node.op;
  View a = in[0], b = in.size() > 1 ? in[1] : a, c = in.size() > 2 ? in[2] : a;
  bool integers = !is_float(a.dtype()) && !is_float(b.dtype()) && !is_float(c.dtype()) &&
                  !is_float(out.dtype());
  bool float_to_integer = is_float(a.dtype()) && is_integer(out.dtype());
  for_each_index(out.shape(), [&](const Dims& i) {
    int64_t result = 0;
    if (integers &&
        exact(def.scalar, a.get<int64_t>(i), b.get<int64_t>(i), c.get<int64_t>(i), result))
      return out.set(i, result);
    double value = evaluate(def, a.get<double>(i), b.get<double>(i), c.get<double>(i));
    if (float_to_integer)
      out.set(i, to_integer(value, out.dtype()));
    else
      out.set(i, value);
  });
}
}  // namespace weft::reference
