// This is one file because each primitive is a method of one class, in whose terms of positions,
// guards and loads all are stated.
#include "weft/codegen/primitives.h"

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <limits>
#include <map>
#include <numeric>
#include <string_view>

#include "weft/base/numbers/rounding.h"
#include "weft/codegen/merge_axes.h"
#include "weft/codegen/scalar_ops.h"
#include "weft/ir/op_def.h"

namespace weft::loop {
namespace {

// Position is the index along one axis of a value, an affine function of the axes of the kernel.
using Position = Affine;

// Further is an offset that is known at run time: `units` times `scale` elements.
struct Further {
  Expr units;
  int64_t scale = 1;
};

class Primitive {
 public:
  Primitive(const Node& node, std::span<const Placement> operands, const Placement& result)
      : node_(node), operands_(operands), result_(result), code_(kernel_) {
    kernel_.operands = static_cast<int>(operands.size());
    kernel_.results = 1;
    // GPUs compute 64-bit integers by several instructions.
    constexpr int64_t least_wide = int64_t{1} << 30;
    bool narrow = reach(result, node.type.shape) < least_wide;
    for (size_t i = 0; i < operands.size(); ++i)
      narrow = narrow && reach(operands[i], node.inputs[i].shape()) < least_wide;
    coordinate_type_ = narrow ? DType::i32 : DType::i64;
  }
  Kernel run();

 private:
  // ---- loops
  Position add_axis(int64_t extent, bool reduced = false) {
    kernel_.axes.push_back({extent, reduced});
    Position at{0, Dims::filled(max_rank, 0)};
    at.strides[static_cast<int>(kernel_.axes.size()) - 1] = 1;
    return at;
  }
  std::vector<Position> add_axes(const Dims& extents, bool reduced = false) {
    std::vector<Position> positions;
    for (int64_t extent : extents) positions.push_back(add_axis(extent, reduced));
    return positions;
  }
  static Position sum(std::initializer_list<std::pair<Position, int64_t>> terms, int64_t offset) {
    Position total{offset, Dims::filled(max_rank, 0)};
    for (const auto& [at, factor] : terms) {
      total.offset += at.offset * factor;
      for (int axis = 0; axis < max_rank; ++axis) total.strides[axis] += at.strides[axis] * factor;
    }
    return total;
  }
  static Position zero() { return {0, Dims::filled(max_rank, 0)}; }
  // Drops the strides beyond the axes of the kernel.
  Affine cut(const Position& at) const {
    return {at.offset, Dims(std::span(at.strides.begin(), kernel_.axes.size()))};
  }
  Affine address(const Placement& place, std::span<const Position> index) const {
    Position total{place.offset, Dims::filled(max_rank, 0)};
    for (size_t i = 0; i < index.size(); ++i)
      total = sum({{total, 1}, {index[i], place.strides[static_cast<int>(i)]}}, 0);
    return cut(total);
  }

  // ---- scalar code
  const Value& input(int i) const { return node_.inputs[static_cast<size_t>(i)]; }
  const Placement& place(int i) const { return operands_[static_cast<size_t>(i)]; }
  const Shape& shape(int i) const { return input(i).shape(); }

  // Loads the element of input i at `index` plus the offset `further`; 0 where `guard` is false.
  Expr load(int i, std::span<const Position> index, Expr guard = {}, Further further = {}) {
    Instruction in{.op = Op::load,
                   .type = loaded_type(input(i).dtype()),
                   .args = {further.units.id, guard.id, -1}};
    in.at = address(place(i), index);
    in.operand = i;
    in.storage = storage_type(input(i).dtype());
    in.scale = further.scale;
    return from_memory(code_.add(in), input(i).dtype());
  }
  Expr load(int i, std::initializer_list<Position> index, Expr guard = {}, Further further = {}) {
    return load(i, std::span(index.begin(), index.size()), guard, further);
  }
  // Covering is a window that covers an element, along one axis: whether the window exists
  // (`there`), and its index.
  struct Covering {
    Expr there, window;
  };
  // Loads the element of input i for the window at indices row.window and column.window; 0 unless
  // the window exists along both axes.
  Expr load_window(int i, const Position& n, const Position& c, const Covering& row,
                   const Covering& column) {
    return load(i, {n, c, zero(), zero()}, row.there & column.there,
                further(i, row.window, column.window));
  }
  // Returns the offset of row h and column w of input i. Its scale is as large as can be, so that
  // accesses of neighbouring channels are known to be aligned.
  Further further(int i, Expr h, Expr w) {
    const int64_t down = place(i).strides[2], across = place(i).strides[3];
    const int64_t scale = std::max<int64_t>(std::gcd(down, across), 1);
    return {h * integer(down / scale) + w * integer(across / scale), scale};
  }
  // Returns the largest distance of an element from the first, or of an index from 0.
  static int64_t reach(const Placement& place, const Shape& shape) {
    int64_t elements = 0;
    for (int axis = 0; axis < shape.size(); ++axis)
      elements += std::max<int64_t>(std::abs(place.strides[axis]), 1) * shape[axis];
    return elements;
  }
  Expr integer(int64_t value) { return code_.integer(coordinate_type_, value); }
  Expr number_of(const Position& at) {
    Instruction in{.op = Op::index, .type = DType::i64};
    in.at = cut(at);
    return code_.add(in);
  }
  Expr coordinate(const Position& at) { return convert(number_of(at), coordinate_type_); }
  Expr inside(const Position& at, int64_t extent) {
    Instruction in{.op = Op::in_range, .type = DType::boolean};
    in.at = cut(at);
    in.high = extent;
    return code_.add(in);
  }
  // Returns the type of products and sums: f32 or wider; i64 for integers.
  static DType sum_type(DType type) {
    if (type == DType::f64) return type;
    return is_float(type) ? DType::f32 : DType::i64;
  }
  static Expr widened(Expr x) { return convert(x, sum_type(x.type())); }
  Expr reduce(Reduction reduction, Expr x) {
    Instruction in{.op = Op::reduce, .type = x.type(), .args = {x.id, -1, -1}};
    in.reduction = reduction;
    return code_.add(in);
  }
  Expr total(Expr x) { return reduce(Reduction::sum, x); }

  void store(Expr value, std::span<const Position> index) {
    const DType type = node_.type.dtype;
    Store store{.value = to_memory(round_to(value, type), type).id, .storage = storage_type(type)};
    store.at = address(result_, index);
    for (size_t axis = 0; axis < kernel_.axes.size(); ++axis)
      if (!kernel_.axes[axis].reduced) store.axes |= 1u << axis;
    store.phase = code_.at(store.value).phase;
    kernel_.stores.push_back(store);
  }
  void store(Expr value, std::initializer_list<Position> index) {
    store(value, std::span(index.begin(), index.size()));
  }

  // ---- the primitives
  void matmul();
  void conv();
  void conv_input_gradient();
  void conv_weight_gradient();
  void max_pool();
  void max_pool_gradient();
  void avg_pool();
  void avg_pool_gradient();
  void scatter_add();
  void first_position();

  // Windows describes one axis of windows: tap `tap` of window `window` reads input(window, tap).
  struct Windows {
    int64_t stride, padding, dilation;
    Position input(const Position& window, const Position& tap) const {
      return sum({{window, stride}, {tap, dilation}}, -padding);
    }
  };
  Windows windows(int axis) const {
    return {node_.attrs.dims("stride")[axis], node_.attrs.dims("padding")[axis],
            node_.attrs.has("dilation") ? node_.attrs.dims("dilation")[axis] : 1};
  }
  Covering at_tap(int axis, const Position& element, const Position& tap, int64_t windows);
  std::vector<Position> add_coverings();
  Covering covering(int axis, const Position& element, const Position& before, int64_t windows);
  // Returns the index of a window's first element along an axis; it is negative in the padding.
  Expr start_of(int axis, Expr window) {
    return window * integer(windows(axis).stride) - integer(windows(axis).padding);
  }
  // Returns the number of elements of the window that begins at (h, w): its elements without
  // padding, or all of them with count_include_pad.
  Expr divisor(Expr h, Expr w, const Shape& x);

  const Node& node_;
  std::span<const Placement> operands_;
  const Placement& result_;
  Kernel kernel_;
  Code code_;
  DType coordinate_type_ = DType::i64;  // type of arithmetic on window positions
};

void Primitive::matmul() {
  const int rank = node_.type.shape.size();
  std::vector<Position> result = add_axes(node_.type.shape), a = result, b = result;
  for (int i = 0; i < rank - 2; ++i) {
    if (shape(0)[i] == 1) a[static_cast<size_t>(i)] = zero();
    if (shape(1)[i] == 1) b[static_cast<size_t>(i)] = zero();
  }
  const Position k = add_axis(shape(0).back(), true);
  a.back() = k;
  b[b.size() - 2] = k;
  store(total(widened(load(0, a)) * widened(load(1, b))), result);
}

void Primitive::conv() {  // x, weight
  const Shape &y = node_.type.shape, &taps = shape(1);
  const int64_t groups = node_.attrs.integer("groups");
  const Position n = add_axis(y[0]), g = add_axis(groups), o = add_axis(y[1] / groups),
                 p = add_axis(y[2]), q = add_axis(y[3]);
  const Position c = add_axis(taps[1], true), u = add_axis(taps[2], true),
                 v = add_axis(taps[3], true);
  const Position h = windows(0).input(p, u), w = windows(1).input(q, v);
  const Position out = sum({{g, y[1] / groups}, {o, 1}}, 0);
  const Expr there = inside(h, shape(0)[2]) & inside(w, shape(0)[3]);
  const Expr x = load(0, {n, sum({{g, taps[1]}, {c, 1}}, 0), h, w}, there);
  store(total(widened(x) * widened(load(1, {out, c, u, v}))), {n, out, p, q});
}

void Primitive::conv_weight_gradient() {  // x, dy
  const Shape &weight = node_.type.shape, &y = shape(1);
  const int64_t groups = node_.attrs.integer("groups");
  const Position g = add_axis(groups), o = add_axis(weight[0] / groups), c = add_axis(weight[1]),
                 u = add_axis(weight[2]), v = add_axis(weight[3]);
  const Position n = add_axis(y[0], true), p = add_axis(y[2], true), q = add_axis(y[3], true);
  const Position h = windows(0).input(p, u), w = windows(1).input(q, v);
  const Position out = sum({{g, weight[0] / groups}, {o, 1}}, 0);
  const Expr there = inside(h, shape(0)[2]) & inside(w, shape(0)[3]);
  const Expr x = load(0, {n, sum({{g, weight[1]}, {c, 1}}, 0), h, w}, there);
  store(total(widened(x) * widened(load(1, {n, out, p, q}))), {out, c, u, v});
}

// The window begins at the element less the tap, if that is a multiple of the stride.
Primitive::Covering Primitive::at_tap(int axis, const Position& element, const Position& tap,
                                      int64_t count) {
  const Windows along = windows(axis);
  const Expr start = coordinate(sum({{element, 1}, {tap, -along.dilation}}, along.padding));
  const Expr step = integer(along.stride), window = start / step;
  return {(window * step == start) & (start >= 0.0) & (window < integer(count)), window};
}

// For each axis of windows without dilation, adds a reduced axis over the windows that may cover an
// element. If windows overlap in part, these windows are fewer than the taps.
std::vector<Position> Primitive::add_coverings() {
  const Dims &kernel = node_.attrs.dims("kernel"), &stride = node_.attrs.dims("stride");
  return add_axes({ceil_div(kernel[0], stride[0]), ceil_div(kernel[1], stride[1])}, true);
}

// The last window over an element begins at the multiple of the stride before it.
Primitive::Covering Primitive::covering(int axis, const Position& element, const Position& before,
                                        int64_t count) {
  const Windows along = windows(axis);
  const Expr at = coordinate(sum({{element, 1}}, along.padding)), step = integer(along.stride);
  const Expr window = at / step - coordinate(before);
  return {(at - window * step < integer(node_.attrs.dims("kernel")[axis])) & (window >= 0.0) &
              (window < integer(count)),
          window};
}

void Primitive::conv_input_gradient() {  // dy, weight
  const Shape &x = node_.type.shape, &taps = shape(1);
  const int64_t groups = node_.attrs.integer("groups");
  const Position n = add_axis(x[0]), g = add_axis(groups), c = add_axis(x[1] / groups),
                 h = add_axis(x[2]), w = add_axis(x[3]);
  const Position o = add_axis(taps[0] / groups, true), u = add_axis(taps[2], true),
                 v = add_axis(taps[3], true);
  const Position out = sum({{g, taps[0] / groups}, {o, 1}}, 0);
  const Covering row = at_tap(0, h, u, shape(0)[2]), column = at_tap(1, w, v, shape(0)[3]);
  const Expr dy = load_window(0, n, out, row, column);
  store(total(widened(dy) * widened(load(1, {out, c, u, v}))),
        {n, sum({{g, x[1] / groups}, {c, 1}}, 0), h, w});
}

void Primitive::max_pool() {
  const std::vector<Position> y = add_axes(node_.type.shape);
  const std::vector<Position> tap = add_axes(node_.attrs.dims("kernel"), true);
  const Position h = windows(0).input(y[2], tap[0]), w = windows(1).input(y[3], tap[1]);
  const Expr there = inside(h, shape(0)[2]) & inside(w, shape(0)[3]);
  const Expr x = load(0, {y[0], y[1], h, w}, there);
  const Expr none = constant_like(x, -std::numeric_limits<double>::infinity());
  store(reduce(Reduction::max, select(there, x, none)), y);
}

// The gradient goes to the first of a window's largest elements; among several nan to the last.
void Primitive::max_pool_gradient() {  // x, dy
  const Dims& kernel = node_.attrs.dims("kernel");
  const Shape& x = shape(0);
  const std::vector<Position> at = add_axes(node_.type.shape), before = add_coverings();
  const Covering row = covering(0, at[2], before[0], shape(1)[2]),
                 column = covering(1, at[3], before[1], shape(1)[3]);
  const Expr h = start_of(0, row.window), w = start_of(1, column.window);
  const Further window = further(0, h, w);
  auto tap = [&](Expr u, Expr v) { return u * integer(kernel[1]) + v; };
  auto none_below = [&](Expr start) { return select(start < 0.0, -start, integer(0)); };
  auto in_image = [&](const Covering& along, Expr start, int64_t offset, int64_t extent) {
    const Expr element = start + integer(offset);
    return along.there & (element >= 0.0) & (element < integer(extent));
  };
  Expr best, winner = tap(none_below(h), none_below(w));
  for (int64_t u = 0; u < kernel[0]; ++u)
    for (int64_t v = 0; v < kernel[1]; ++v) {
      const Expr there = in_image(row, h, u, x[2]) & in_image(column, w, v, x[3]);
      const Expr next = load(0, {at[0], at[1], sum({}, u), sum({}, v)}, there, window);
      if (best.code == nullptr)
        best = constant_like(next, -std::numeric_limits<double>::infinity());
      const Expr better = there & ((next > best) | is_nan(next));
      best = select(better, next, best);
      winner = select(better, integer(u * kernel[1] + v), winner);
    }
  const Expr wins = winner == tap(coordinate(at[2]) - h, coordinate(at[3]) - w);
  const Expr dy = widened(load_window(1, at[0], at[1], row, column));
  store(total(select(wins, dy, constant_like(dy, 0))), at);
}

Expr Primitive::divisor(Expr h, Expr w, const Shape& x) {
  const Dims& kernel = node_.attrs.dims("kernel");
  if (node_.attrs.integer("count_include_pad") != 0)
    return code_.number(DType::f32, static_cast<double>(element_count(kernel)));
  auto elements = [&](Expr start, int64_t taps, int64_t extent) {
    const Expr end = start + integer(taps), most = integer(extent);
    return select(end < most, end, most) - select(start < 0.0, integer(0), start);
  };
  return convert(elements(h, kernel[0], x[2]) * elements(w, kernel[1], x[3]), DType::f32);
}

void Primitive::avg_pool() {
  const std::vector<Position> y = add_axes(node_.type.shape);
  const std::vector<Position> tap = add_axes(node_.attrs.dims("kernel"), true);
  const Position h = windows(0).input(y[2], tap[0]), w = windows(1).input(y[3], tap[1]);
  const Expr there = inside(h, shape(0)[2]) & inside(w, shape(0)[3]);
  const Expr elements = divisor(coordinate(windows(0).input(y[2], zero())),
                                coordinate(windows(1).input(y[3], zero())), shape(0));
  const Expr all = total(widened(load(0, {y[0], y[1], h, w}, there)));
  store(all / convert(elements, all.type()), y);
}

void Primitive::avg_pool_gradient() {  // dy
  const std::vector<Position> at = add_axes(node_.type.shape), before = add_coverings();
  const Covering row = covering(0, at[2], before[0], shape(0)[2]),
                 column = covering(1, at[3], before[1], shape(0)[3]);
  const Expr elements =
      divisor(start_of(0, row.window), start_of(1, column.window), node_.type.shape);
  const Expr dy = widened(load_window(0, at[0], at[1], row, column));
  store(total(select(row.there & column.there, dy / convert(elements, dy.type()),
                     constant_like(dy, 0))),
        at);
}

// Each row scans all updates and adds the updates that name it, so that the order of its sum is
// fixed.
void Primitive::scatter_add() {  // into, indices, updates
  const std::vector<Position> row = add_axes(node_.type.shape);
  const std::vector<Position> place = add_axes(shape(1), true);
  std::vector<Position> update = place;
  update.insert(update.end(), row.begin() + 1, row.end());
  const Expr named = convert(load(1, place), DType::i64) == number_of(row[0]);
  store(widened(load(0, row)) + total(widened(load(2, update, named))), row);
}

void Primitive::first_position() {  // indices
  constexpr int64_t none = std::numeric_limits<int64_t>::max();
  const std::vector<Position> row = add_axes(node_.type.shape);
  const std::vector<Position> place = add_axes(shape(0), true);
  const Dims strides = row_major_strides(shape(0));
  Position position = zero();
  for (size_t i = 0; i < place.size(); ++i)
    position = sum({{position, 1}, {place[i], strides[static_cast<int>(i)]}}, 0);
  const Expr nowhere = code_.integer(DType::i64, none);
  const Expr named = convert(load(0, place), DType::i64) == number_of(row[0]);
  const Expr first = reduce(Reduction::min, select(named, number_of(position), nowhere));
  store(select(first == nowhere, code_.integer(DType::i64, -1), first), row);
}

Kernel Primitive::run() {
  static const std::map<std::string_view, void (Primitive::*)()> primitives{
      {"matmul", &Primitive::matmul},
      {"conv", &Primitive::conv},
      {"conv_input_gradient", &Primitive::conv_input_gradient},
      {"conv_weight_gradient", &Primitive::conv_weight_gradient},
      {"max_pool", &Primitive::max_pool},
      {"max_pool_gradient", &Primitive::max_pool_gradient},
      {"avg_pool", &Primitive::avg_pool},
      {"avg_pool_gradient", &Primitive::avg_pool_gradient},
      {"scatter_add", &Primitive::scatter_add},
      {"first_position", &Primitive::first_position},
  };
  auto found = primitives.find(node_.op->name);
  WEFT_ASSERT(found != primitives.end(), "{} has no loops", node_.op->name);
  (this->*found->second)();
  // Affines created before the last axis was added lack the strides of later axes.
  auto complete = [&](Affine& at) {
    while (at.strides.size() < static_cast<int>(kernel_.axes.size())) at.strides.push_back(0);
  };
  for (Instruction& in : kernel_.code) complete(in.at);
  for (Store& store : kernel_.stores) complete(store.at);
  merge_axes(kernel_);
  return std::move(kernel_);
}
}  // namespace

bool has_loops(const Node& node) {
  const OpDef& op = *node.op;
  if (is_matrix_product(node)) return node.type.shape.size() < max_rank;
  if (op.kind == OpKind::gather && op.combine == ScalarOp::add)
    return node.type.shape.size() + node.inputs[1].rank() <= max_rank;
  if (op.kind == OpKind::gather) return op.arity == 1 && node.inputs[0].rank() < max_rank;
  // Integers of two types are convolved by the decomposition.
  return (op.family == OpFamily::convolution && op.kind == OpKind::contraction) ||
         op.family == OpFamily::pooling;
}

Kernel lower_primitive(const Node& node, std::span<const Placement> operands,
                       const Placement& result) {
  return Primitive(node, operands, result).run();
}

Kernel lower_primitive(const Launch& launch) {
  std::vector<Placement> operands;
  operands.reserve(launch.operands.size());
  for (const Access& operand : launch.operands) operands.push_back(operand.at);
  Kernel kernel = lower_primitive(*launch.body.front().node(), operands, launch.results.front().at);
  for (Store& store : kernel.stores) store.in_place = !launch.in_place.empty();
  return kernel;
}

}  // namespace weft::loop
