// Computes elementwise operations through the oracle or function of the OpDef, rounded to the
// dtype, or its oracle of integers.
#include <cmath>
#include <limits>

#include "weft/backends/reference/kernels.h"

namespace weft::reference {
namespace {
// Converts a float to an integer: truncates and saturates; NaN becomes 0.
int64_t to_integer(double value, DType dtype) {
  if (std::isnan(value)) return 0;
  int bits = static_cast<int>(size_of(dtype)) * 8;
  double low = has_sign(dtype) ? -std::ldexp(1.0, bits - 1) : 0.0;
  double high = std::ldexp(1.0, has_sign(dtype) ? bits - 1 : bits);  // one past the greatest
  if (value <= low) return static_cast<int64_t>(low);
  if (value < high) return static_cast<int64_t>(value);
  return dtype == DType::i64 ? std::numeric_limits<int64_t>::max() : static_cast<int64_t>(high) - 1;
}
}  // namespace

void elementwise(const Node& node, const Operands& in, const View& out) {
  const OpDef& def = *node.op;
  View a = in[0], b = in.size() > 1 ? in[1] : a, c = in.size() > 2 ? in[2] : a;
  const bool in_integers = def.integer_oracle != nullptr && !is_float(a.dtype()) &&
                           !is_float(b.dtype()) && !is_float(c.dtype()) && !is_float(out.dtype());
  bool float_to_integer = is_float(a.dtype()) && is_integer(out.dtype());
  for_each_index(out.shape(), [&](const Dims& i) {
    if (def.reinterprets) return out.copy(i, a, i);
    if (in_integers)
      return out.set(i,
                     def.integer_oracle(a.get<int64_t>(i), b.get<int64_t>(i), c.get<int64_t>(i)));
    double value = evaluate(def, a.get<double>(i), b.get<double>(i), c.get<double>(i));
    if (float_to_integer)
      out.set(i, to_integer(value, out.dtype()));
    else
      out.set(i, value);
  });
}
}  // namespace weft::reference
