// Computes gather and scatter; an index outside of the axis reads zero and adds nothing.
#include <algorithm>

#include "weft/backends/reference/kernels.h"

namespace weft::reference {
namespace {
// Returns axes [first, first + count) of an index.
Dims part(const Dims& index, int first, int count) {
  return Dims(std::span(index.begin() + first, static_cast<size_t>(count)));
}

// Computes into[row, rest] plus every update whose index is `row`, in row-major order of the
// indices.
template <class T>
void scatter_add_as(const Operands& in, const View& out) {
  View into = in[0], indices = in[1], updates = in[2];
  for_each_index(out.shape(), [&](const Dims& i) {
    T total = into.get<T>(i);
    for_each_index(indices.shape(), [&](const Dims& place) {
      if (indices.get<int64_t>(place) != i[0]) return;
      Dims update = place;
      for (int k = 1; k < i.size(); ++k) update.push_back(i[k]);
      total = plus(total, updates.get<T>(update));
    });
    out.set(i, total);
  });
}
}  // namespace

void gather(const Node& node, const Operands& in, const View& out) {
  View x = in[0], indices = in[1];
  int axis = static_cast<int>(node.attrs.integer("axis"));
  for_each_index(out.shape(), [&](const Dims& i) {
    int64_t row = indices.get<int64_t>(part(i, axis, indices.rank()));
    if (row < 0 || row >= x.shape()[axis]) return out.set(i, int64_t{0});
    Dims index = part(i, 0, axis);
    index.push_back(row);
    for (int k = axis + indices.rank(); k < i.size(); ++k) index.push_back(i[k]);
    out.copy(i, x, index);
  });
}

void part_at(const Node& node, const Operands& in, const View& out) {
  const auto axis = static_cast<int>(node.attrs.integer("axis"));
  const int64_t part =
      std::clamp<int64_t>(in[1].get<int64_t>({}), 0, node.attrs.integer("parts") - 1);
  for_each_index(out.shape(), [&](const Dims& i) {
    Dims from = i;
    from[axis] += part * out.shape()[axis];
    out.copy(i, in[0], from);
  });
}

void scatter_add(const Node&, const Operands& in, const View& out) {
  if (is_float(out.dtype()))
    scatter_add_as<double>(in, out);
  else
    scatter_add_as<int64_t>(in, out);
}

void first_position(const Node&, const Operands& in, const View& out) {
  View indices = in[0];
  for_each_index(out.shape(), [&](const Dims& row) {
    int64_t position = 0, first = -1;
    for_each_index(indices.shape(), [&](const Dims& place) {
      if (first < 0 && indices.get<int64_t>(place) == row[0]) first = position;
      ++position;
    });
    out.set(row, first);
  });
}
}  // namespace weft::reference
