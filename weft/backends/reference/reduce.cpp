// Computes reductions over attr "axes", which the result keeps with extent 1.
#include <cmath>

#include "weft/backends/reference/kernels.h"

namespace weft::reference {
namespace {
template <class T>
bool is_nan(T x) {
  return x != x;  // NOLINT(misc-redundant-expression)
}

// Calls f(index into x) for each element that is reduced into element `kept` of the result.
template <class F>
void for_each_reduced(const View& x, const Dims& axes, const Dims& kept, F&& f) {
  Shape extents = Dims::filled(x.rank(), 1);
  for (int64_t axis : axes) extents[static_cast<int>(axis)] = x.shape()[static_cast<int>(axis)];
  for_each_index(extents, [&](const Dims& inner) {
    Dims index = kept;
    for (int i = 0; i < index.size(); ++i) index[i] += inner[i];
    f(index);
  });
}

template <class T>
T folded(ScalarOp combine, const View& x, const Dims& axes, const Dims& kept) {
  T total = combine == ScalarOp::mul ? 1 : 0;
  bool first = true;
  for_each_reduced(x, axes, kept, [&](const Dims& index) {
    T value = x.get<T>(index);
    if (combine == ScalarOp::add)
      total = plus(total, value);
    else if (combine == ScalarOp::mul)
      total = times(total, value);
    else if (combine == ScalarOp::maximum)
      total = !first && (is_nan(total) || total > value) ? total : value;
    else if (combine == ScalarOp::minimum)
      total = !first && (is_nan(total) || total < value) ? total : value;
    else
      WEFT_ASSERT(false, "the reference does not know what combines the elements");
    first = false;
  });
  return total;
}

// Returns the position of the first extreme among the reduced elements; NaN exceeds everything.
template <class T>
int64_t extreme_place(bool greatest, const View& x, const Dims& axes, const Dims& kept) {
  int64_t place = 0, best_place = 0;
  T best = 0;
  for_each_reduced(x, axes, kept, [&](const Dims& index) {
    T value = x.get<T>(index);
    bool better = is_nan(value) ? !is_nan(best) : greatest ? value > best : value < best;
    if (place == 0 || better) {
      best = value;
      best_place = place;
    }
    ++place;
  });
  return best_place;
}
}  // namespace

void reduce(const Node& node, const Operands& in, const View& out) {
  View x = in[0];
  const ScalarOp combine = node.op->combine;
  const Dims& axes = node.attrs.dims("axes");
  const bool places = node.op->index_of != ScalarOp::none, floats = is_float(x.dtype());
  const bool greatest = node.op->index_of == ScalarOp::maximum;
  for_each_index(out.shape(), [&](const Dims& i) {
    if (places && floats)
      out.set(i, extreme_place<double>(greatest, x, axes, i));
    else if (places)
      out.set(i, extreme_place<int64_t>(greatest, x, axes, i));
    else if (floats)
      out.set(i, folded<double>(combine, x, axes, i));
    else
      out.set(i, folded<int64_t>(combine, x, axes, i));
  });
}
}  // namespace weft::reference
