// A large reduction that keeps few elements (a bias gradient, the loss, a norm of everything)
// leaves most threads idle. Two stages, sum(x) = sum over chunks of (sum of each chunk), give them
// work. The number of chunks depends on the shape alone, so that results do not depend on the
// threads. Stands after simplify, which would see through the reshape, and before schedule, which
// makes a kernel of each stage.
#include <algorithm>

#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"
#include "weft/passes/passes.h"

namespace weft {
namespace {
constexpr int64_t least_elements = 32768;  // below that, a second kernel costs more than it gains
constexpr int64_t most_chunks = 64;
constexpr int64_t least_chunks = 4;
constexpr int64_t chunk_elements = 16;  // least elements that a chunk sums for each one it writes
constexpr int64_t few_rows =
    64;  // rows kept outside all reduced axes: from here, enough for any team
constexpr int64_t few_columns =
    512;  // columns kept inside a reduced axis: from here, enough to share out

int64_t divisor_up_to(int64_t extent, int64_t most) {
  for (int64_t chunks = std::min(extent, most); chunks > 1; --chunks)
    if (extent % chunks == 0) return chunks;
  return 1;
}

struct Split {
  int axis = -1;
  int64_t chunks = 1;
};

// The reduced axis that divides into most chunks, outermost first: a view of it, whatever the
// layout.
Split best_split(const Value& y) {
  const Value& x = y->inputs[0];
  int64_t most = std::min(most_chunks, x.elements() / y.elements() / chunk_elements);
  Split best;
  for (int64_t axis : y->attrs.dims("axes")) {
    int64_t chunks = divisor_up_to(x.dim(static_cast<int>(axis)), most);
    if (chunks > best.chunks) best = {static_cast<int>(axis), chunks};
  }
  return best;
}

bool is_worthwhile(const Value& y, const Dims& axes) {
  const Value& x = y->inputs[0];
  if (x.elements() < least_elements || x.rank() >= max_rank || axes.empty()) return false;
  int64_t rows = 1;
  for (int i = 0; i < axes[0]; ++i) rows *= x.dim(i);
  return rows < few_rows && y.elements() < few_columns;
}

// [.., n, ..] -> [.., chunks, n / chunks, ..]
Value chunked(const Value& x, const Split& split) {
  Shape shape;
  for (int i = 0; i < x.rank(); ++i) {
    if (i == split.axis) shape.push_back(split.chunks);
    shape.push_back(i == split.axis ? x.dim(i) / split.chunks : x.dim(i));
  }
  return reshape(x, shape);
}

Value two_stages(const Value& y, const Split& split, bool drop_a_chunk) {
  const Value& x = y->inputs[0];
  // Partial sums of 16-bit floats stay in float32, as they do inside one kernel.
  bool extreme = y->is("max") || y->is("min");
  DType dtype = extreme || !is_float(x.dtype()) ? x.dtype() : accumulator(x.dtype());
  Dims inner;
  for (int64_t axis : y->attrs.dims("axes")) inner.push_back(axis < split.axis ? axis : axis + 1);
  Value partial = make_node(*y->op, {chunked(cast(x, dtype), split)}, {{"axes", inner}});
  if (drop_a_chunk) partial = slice(partial, split.axis, 0, split.chunks - 1);
  Value whole = make_node(*y->op, {partial}, {{"axes", Dims{split.axis}}});
  return cast(reshape(whole, y.shape()), y.dtype());
}
}  // namespace

// Fault "split-drops-chunk": the last chunk is left out.
Graph split_reductions(const Graph& graph, const PassOptions& options) {
  return rewrite(graph, [&](const Value& y) -> Value {
    bool splits = y->is("sum") || y->is("max") || y->is("min") || y->is("prod");
    if (!splits || !is_worthwhile(y, y->attrs.dims("axes"))) return {};
    Split split = best_split(y);
    if (split.chunks < least_chunks) return {};
    return two_stages(y, split, options.fault == "split-drops-chunk");
  });
}

}  // namespace weft
