#include "weft/passes/views.h"

#include <algorithm>
#include <cstdlib>

#include "weft/ir/op_def.h"

namespace weft {
namespace {
// Splits and merges axes; NumPy's no-copy reshape rule: axes merge where outer stride = extent *
// inner stride.
std::optional<Dims> reshaped_strides(const Shape& from, const Dims& strides, const Shape& to) {
  Dims result = Dims::filled(to.size(), 0);
  if (element_count(from) == 0) return row_major_strides(to);
  std::vector<std::pair<int64_t, int64_t>> axes;  // extent, stride of the input without unit axes
  for (int i = 0; i < from.size(); ++i)
    if (from[i] != 1) axes.emplace_back(from[i], strides[i]);
  size_t in = 0;
  for (int out = 0; out < to.size();) {
    if (to[out] == 1) {
      result[out++] = 0;
      continue;
    }
    // The shortest run of input axes and of output axes with equal element counts.
    size_t in_end = in + 1;
    int out_end = out + 1;
    int64_t have = axes[in].first, want = to[out];
    while (have != want) {
      if (have < want)
        have *= axes[in_end++].first;
      else
        want *= to[out_end++];
    }
    for (size_t i = in; i + 1 < in_end; ++i)
      if (axes[i].second != axes[i + 1].first * axes[i + 1].second) return std::nullopt;
    int64_t stride = axes[in_end - 1].second;
    for (int i = out_end - 1; i >= out; --i) {
      result[i] = to[i] == 1 ? 0 : stride;
      stride *= to[i];
    }
    in = in_end;
    out = out_end;
  }
  return result;
}
}  // namespace

std::optional<Placement> view_of(const Node& node, const Placement& input) {
  Placement at = input;
  const Shape& shape = node.inputs[0].shape();
  if (node.is("reshape")) {
    auto strides = reshaped_strides(shape, input.strides, node.type.shape);
    if (!strides) return std::nullopt;
    at.strides = *strides;
  } else if (node.is("permute")) {
    const Dims& order = node.attrs.dims("order");
    for (int i = 0; i < order.size(); ++i)
      at.strides[i] = input.strides[static_cast<int>(order[i])];
  } else if (node.is("broadcast")) {
    for (int i = 0; i < shape.size(); ++i)
      if (shape[i] != node.type.shape[i]) at.strides[i] = 0;
  } else if (node.is("slice")) {
    int axis = static_cast<int>(node.attrs.integer("axis"));
    at.offset += node.attrs.integer("start") * input.strides[axis];
    at.strides[axis] *= node.attrs.integer("step");
  } else if (node.is("flip")) {
    for (int64_t flipped : node.attrs.dims("axes")) {
      int axis = static_cast<int>(flipped);
      at.offset += (shape[axis] - 1) * input.strides[axis];
      at.strides[axis] = -input.strides[axis];
    }
  } else {
    WEFT_ASSERT(false, "{} is no view", node.op->name);
  }
  return at;
}

bool same_strides(const Shape& shape, const Dims& a, const Dims& b) {
  for (int i = 0; i < shape.size(); ++i)
    if (shape[i] > 1 && a[i] != b[i]) return false;
  return true;
}
}  // namespace weft
