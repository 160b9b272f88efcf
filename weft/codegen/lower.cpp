// This is one file because lowering is one class: each kind of node has a method, which recurses
// into the others.
#include "weft/codegen/lower.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "weft/codegen/gpu_schedule.h"
#include "weft/codegen/merge_axes.h"
#include "weft/codegen/scalar_ops.h"
#include "weft/codegen/vector_math.h"
#include "weft/ir/axis_map.h"
#include "weft/ir/op_def.h"

namespace weft::loop {
namespace {

// Coordinate is the index along one axis of a value: position[axis] + shift, or `shift` if axis is
// -1.
struct Coordinate {
  int axis = -1;
  int64_t shift = 0;
  auto operator<=>(const Coordinate&) const = default;
};
using View = std::vector<Coordinate>;  // one per axis of the value

class Lowering {
 public:
  Lowering(const Launch& launch, Maths maths, bool online)
      : launch_(launch), online_(online), code_(kernel_) {
    kernel_.maths = maths;
    for (size_t i = 0; i < launch.operands.size(); ++i)
      operands_[launch.operands[i].value.node()] = static_cast<int>(i);
    for (const Value& value : launch.body) body_.insert({value.node(), true});
    kernel_.operands = static_cast<int>(launch.operands.size());
    kernel_.results = static_cast<int>(launch.results.size());
  }

  Kernel run() {
    find_space();
    for (size_t i = 0; i < launch_.results.size(); ++i) store(static_cast<int>(i));
    delay_stores_in_place();
    merge_axes(kernel_);
    return std::move(kernel_);
  }

 private:
  // Finds the iteration space: each axis has the largest extent of any value and is reduced if a
  // reduction that is not across rows reduces it.
  void find_space() {
    Shape space;
    Dims reduced;
    auto grow = [&](const Shape& shape) {
      if (shape.empty()) return;
      if (space.empty()) space = Shape::filled(shape.size(), 1);
      WEFT_ASSERT(shape.size() == space.size(), "{} in a fused kernel over {}", to_string(shape),
                  to_string(space));
      for (int i = 0; i < shape.size(); ++i)
        if (shape[i] != 1) space[i] = shape[i];
    };
    for (const Access& result : launch_.results) grow(result.value.shape());
    std::vector<const Node*> reductions;
    for (const Value& value : launch_.body) {
      if (value->op->kind != OpKind::reduce) continue;
      grow(value->inputs[0].shape());
      reductions.push_back(value.node());
    }
    // If some reductions are along the innermost axis, it is the axis of rows, and the other
    // reductions reduce across rows.
    int last = space.size() - 1;
    while (last > 0 && space[last] == 1) --last;
    auto of_rows = [&](const Node* node) { return node->attrs.dims("axes").contains(last); };
    bool rows = std::any_of(reductions.begin(), reductions.end(), of_rows);
    for (const Node* node : reductions) {
      if (rows && !of_rows(node)) {
        across_.insert(node);
        continue;
      }
      for (int64_t axis : node->attrs.dims("axes"))
        if (!reduced.contains(axis)) reduced.push_back(axis);
    }
    for (int i = 0; i < space.size(); ++i) kernel_.axes.push_back({space[i], reduced.contains(i)});
  }

  View whole(const Shape& shape) const {
    View view;
    for (int i = 0; i < shape.size(); ++i) view.push_back({shape[i] == 1 ? -1 : i, 0});
    return view;
  }

  Affine at(const View& view, const Dims& strides, int64_t offset) const {
    Affine result{offset, Dims::filled(static_cast<int>(kernel_.axes.size()), 0)};
    for (size_t i = 0; i < view.size(); ++i) {
      int64_t stride = strides[static_cast<int>(i)];
      result.offset += view[i].shift * stride;
      if (view[i].axis < 0) continue;
      int64_t extent = kernel_.axes[static_cast<size_t>(view[i].axis)].extent;
      if (extent == 0) stride = 1;  // keeps the load inside the loop, which never runs
      if (extent != 1) result.strides[view[i].axis] += stride;
    }
    return result;
  }

  void store(int index) {
    const Access& result = launch_.results[static_cast<size_t>(index)];
    const Value& value = result.value;
    bool across = across_.contains(value.node());
    const Value& from = across ? value->inputs[0] : value;
    Store store{.result = index,
                .value = to_memory(lower(from, whole(from.shape()), -1), value.dtype()).id,
                .storage = storage_type(value.dtype())};
    if (across) reduce_across(*value.node(), store);
    store.at = at(whole(value.shape()), result.at.strides, result.at.offset);
    for (int i = 0; i < value.rank(); ++i)
      if (value.shape()[i] != 1) store.axes |= 1u << i;
    store.phase = code_.at(store.value).phase;
    kernel_.stores.push_back(store);
  }

  void reduce_across(const Node& node, Store& store) const {
    const Shape& from = node.inputs[0].shape();
    bool value =
        node.inputs[0].dtype() == node.type.dtype;  // a value, not the position of an argmax
    for (int i = 0; i < from.size(); ++i) {
      const Axis& axis = kernel_.axes[static_cast<size_t>(i)];
      bool combines = node.attrs.dims("axes").contains(i);
      value = value && from[i] == axis.extent && (combines != axis.reduced || axis.extent == 1);
    }
    WEFT_ASSERT(value, "reductions over different axes");
    store.across = true;
    store.reduction = reduction_of(node);
  }

  // A result that aliases an operand must not be written before the last loop that reads the
  // operand.
  void delay_stores_in_place() {
    for (auto [result, operand] : launch_.in_place) {
      // reads[i] says whether computing instruction i in a loop loads from `operand`.
      std::vector<bool> reads;
      int last = 0;
      for (const Instruction& in : kernel_.code) {
        bool any = in.op == Op::load && in.operand == operand;
        for (int arg : in.args) any = any || (arg >= 0 && reads[static_cast<size_t>(arg)]);
        if (in.op == Op::reduce && any) last = std::max(last, in.phase - 1);
        reads.push_back(any && in.op != Op::reduce);
      }
      for (const Store& store : kernel_.stores)
        if (reads[static_cast<size_t>(store.value)]) last = std::max(last, store.phase);
      for (Store& store : kernel_.stores) {
        if (store.result != result) continue;
        store.phase = std::max(store.phase, last);
        store.in_place = true;
      }
    }
  }

  using Key = std::tuple<const Node*, View, int>;

  // Returns the scalar code of `value` at `view`. Loads are skipped where instruction `guard` is
  // false.
  Expr lower(const Value& value, const View& view, int guard) {
    Key key{value.node(), view, guard};
    auto it = known_.find(key);
    if (it != known_.end()) return {&code_, it->second};
    Expr result = operands_.contains(value.node()) ? load(value, view, guard, -1, 0)
                                                   : compute(value, view, guard);
    known_[key] = result.id;
    return result;
  }

  Expr load(const Value& value, const View& view, int guard, int indirect, int64_t scale) {
    auto it = operands_.find(value.node());
    WEFT_ASSERT(it != operands_.end(), "{} is neither an operand nor in the body", value->op->name);
    const Placement& place = launch_.operands[static_cast<size_t>(it->second)].at;
    Instruction in{
        .op = Op::load, .type = loaded_type(value.dtype()), .args = {indirect, guard, -1}};
    in.at = at(view, place.strides, place.offset);
    in.operand = it->second;
    in.storage = storage_type(value.dtype());
    in.scale = scale;
    return from_memory(code_.add(in), value.dtype());
  }

  Expr compute(const Value& value, const View& view, int guard) {
    const Node& node = *value.node();
    WEFT_ASSERT(body_.contains(value.node()) || node.op->kind == OpKind::leaf,
                "{} is neither an operand nor in the body", node.op->name);
    if (node.op->kind == OpKind::elementwise) return elementwise(node, view, guard);
    if (node.op->kind == OpKind::reduce) return reduce(node, view, guard);
    if (node.op->kind == OpKind::random) return random(node, view);
    if (node.op->leaf == LeafKind::scalar)
      return constant(code_, node.type.dtype, node.attrs.number("value"));
    if (node.op->leaf == LeafKind::iota) return iota(node, view);
    if (node.op->view != nullptr) return broadcast(node, view, guard);
    if (node.op->kind == OpKind::movement)
      return node.op->arity < 0 ? concat(node, view, guard) : pad(node, view, guard);
    if (node.attrs.has("parts")) return part(node, view, guard);
    if (node.op->kind == OpKind::gather && node.op->arity == 2) return gather(node, view, guard);
    WEFT_ASSERT(false, "{} cannot be part of a fused kernel", node.op->name);
  }

  Expr elementwise(const Node& node, const View& view, int guard) {
    std::vector<Expr> args;
    args.reserve(node.inputs.size());
    for (const Value& input : node.inputs) args.push_back(lower(input, view, guard));
    return scalar_op(*node.op, args, node.inputs[0].dtype(), node.type.dtype);
  }

  Expr position(const View& view, const Dims& strides, int64_t offset) {
    Instruction in{.op = Op::index, .type = DType::i64};
    in.at = at(view, strides, offset);
    return code_.add(in);
  }

  Expr iota(const Node& node, const View& view) {
    const Placement whole = place_in_whole(node);
    return round_to(position(view, whole.strides, whole.offset), node.type.dtype);
  }

  Expr random(const Node& node, const View& view) {
    Expr step = lower(node.inputs[0], {}, -1);
    Instruction in{.op = Op::philox, .type = DType::i32, .args = {step.id, -1, -1}};
    const Placement place = place_in_whole(node);
    in.at = at(view, place.strides, place.offset);
    in.integer = node.attrs.integer("seed");
    in.low = node.attrs.integer("stream");
    if (node.inputs.size() > 1) {
      in.args[1] = lower(node.inputs[1], {}, -1).id;
      in.scale = node.attrs.integer("every");
    }
    return convert(code_.add(in), DType::f32) * 0x1p-24;
  }

  Expr broadcast(const Node& node, const View& view, int guard) {
    const Value& x = node.inputs[0];
    View inner(view.end() - x.rank(), view.end());
    for (int i = 0; i < x.rank(); ++i)
      if (x.shape()[i] == 1) inner[static_cast<size_t>(i)] = {};
    return lower(x, inner, guard);
  }

  // Returns whether the position along axis `axis` of the view is in [0, extent) and `guard` is
  // true.
  Expr inside(const View& view, int axis, int64_t extent, int guard) {
    Instruction in{.op = Op::in_range, .type = DType::boolean};
    Dims strides = Dims::filled(static_cast<int>(view.size()), 0);
    strides[axis] = 1;
    in.at = at(view, strides, 0);
    in.high = extent;
    Expr here = code_.add(in);
    return guard < 0 ? here : here & Expr{&code_, guard};
  }

  Expr pad(const Node& node, View view, int guard) {
    const Value& x = node.inputs[0];
    const Dims &low = node.attrs.dims("low"), &high = node.attrs.dims("high");
    int all = -1;
    for (int i = 0; i < x.rank(); ++i) {
      view[static_cast<size_t>(i)].shift -= low[i];
      if (low[i] != 0 || high[i] != 0) all = inside(view, i, x.shape()[i], all).id;
    }
    if (all < 0) return lower(x, view, guard);
    Expr condition{&code_, all};
    int both = guard < 0 ? all : (condition & Expr{&code_, guard}).id;
    Expr padding = constant(code_, node.type.dtype, node.attrs.number("value"));
    return select(condition, lower(x, view, both), padding);
  }

  Expr concat(const Node& node, const View& view, int guard) {
    int axis = static_cast<int>(node.attrs.integer("axis"));
    int64_t start = 0;
    std::vector<std::pair<Expr, Expr>> parts;  // condition, value
    for (const Value& part : node.inputs) {
      View inner = view;
      inner[static_cast<size_t>(axis)].shift -= start;
      start += part.shape()[axis];
      if (part.shape()[axis] == 0) continue;
      Expr here = inside(inner, axis, part.shape()[axis], -1);
      int both = guard < 0 ? here.id : (here & Expr{&code_, guard}).id;
      parts.emplace_back(here, lower(part, inner, both));
    }
    if (parts.empty()) return constant(code_, node.type.dtype, 0);
    Expr result = parts.back().second;
    for (size_t i = parts.size() - 1; i-- > 0;)
      result = select(parts[i].first, parts[i].second, result);
    return result;
  }

  // The part is one for all elements, which stay as contiguous as they are.
  Expr part(const Node& node, const View& view, int guard) {
    const Value& x = node.inputs[0];
    const auto axis = static_cast<int>(node.attrs.integer("axis"));
    const double last = static_cast<double>(node.attrs.integer("parts") - 1);
    const Expr asked = lower(node.inputs[1], {}, -1);
    const Expr low = select(asked < 0.0, constant(code_, DType::i64, 0), asked);
    const Expr index = select(low < last, low, constant(code_, DType::i64, last));
    if (x->op->leaf == LeafKind::scalar) return lower(x, view, guard);
    const auto it = operands_.find(x.node());
    WEFT_ASSERT(it != operands_.end(), "a part of a value that is not in memory");
    const Dims& strides = launch_.operands[static_cast<size_t>(it->second)].at.strides;
    return load(x, view, guard, index.id, node.type.shape[axis] * strides[axis]);
  }

  // An index outside [0, extent) reads zero.
  Expr gather(const Node& node, const View& view, int guard) {
    const Value &x = node.inputs[0], &indices = node.inputs[1];
    auto axis = static_cast<int>(node.attrs.integer("axis"));
    auto first = view.begin() + axis;
    Expr raw = lower(indices, View(first, first + indices.rank()), guard);
    Expr index = convert(raw, DType::i64);
    int64_t extent = x.shape()[axis];
    Expr valid = index < static_cast<double>(extent);
    if (has_sign(indices.dtype())) valid = valid & (index >= 0.0);
    if (guard >= 0) valid = valid & Expr{&code_, guard};
    View inner(view.begin(), first);
    inner.push_back({});
    inner.insert(inner.end(), first + indices.rank(), view.end());
    // A constant that other nodes of the kernel read, too, is in it and no operand.
    if (x->op->leaf == LeafKind::scalar)
      return select(valid, lower(x, inner, guard), constant(code_, x.dtype(), 0));
    auto it = operands_.find(x.node());
    WEFT_ASSERT(it != operands_.end(), "gather from a value that is not in memory");
    int64_t scale = launch_.operands[static_cast<size_t>(it->second)].at.strides[axis];
    return load(x, inner, valid.id, index.id, scale);
  }

  Expr reduce(const Node& node, const View& view, int guard) {
    const Value& x = node.inputs[0];
    const Dims& axes = node.attrs.dims("axes");
    WEFT_ASSERT(!across_.contains(&node), "a reduction across rows that is read by them");
    WEFT_ASSERT(guard < 0, "a reduction behind a pad, concat or gather");
    View inner = whole(x.shape());
    for (int i = 0; i < x.rank(); ++i) {
      const Axis& axis = kernel_.axes[static_cast<size_t>(i)];
      bool kept = !axes.contains(i);
      WEFT_ASSERT(!kept || view[static_cast<size_t>(i)] == inner[static_cast<size_t>(i)],
                  "a reduction that is read elsewhere than at its own position");
      WEFT_ASSERT(kept || x.shape()[i] == axis.extent, "reductions of different extents: {} and {}",
                  x.shape()[i], axis.extent);
      WEFT_ASSERT(kept != axis.reduced || axis.extent == 1, "reductions over different axes");
    }
    if (online_ && node.op->combine == ScalarOp::add)
      if (const std::optional<Expr> sum = sum_of_exponentials(x, inner)) return *sum;
    return finish_reduce(node, lower(x, inner, -1), axes);
  }

  // Returns the sum of `terms`, exp(x - shift), as a sum of exponentials if the shift is computed
  // from the largest x of the row.
  std::optional<Expr> sum_of_exponentials(const Value& terms, const View& view) {
    const auto computes = [&](const Value& value, ScalarOp op) {
      return value->op->kind == OpKind::elementwise && value->op->scalar == op &&
             value.dtype() == DType::f32 && !operands_.contains(value.node());
    };
    if (!computes(terms, ScalarOp::exp) || !computes(terms->inputs[0], ScalarOp::sub)) return {};
    const Node& difference = *terms->inputs[0].node();
    const Expr x = lower(difference.inputs[0], view, -1),
               shift = lower(difference.inputs[1], view, -1);
    const int largest = largest_behind(shift.id, x.id);
    if (largest < 0 || (code_.at(shift.id).axes & kernel_.reduced_axes()) != 0) return {};
    Instruction in{.op = Op::reduce, .type = DType::f32, .args = {x.id, -1, -1}};
    in.largest = largest;
    const Expr sum = code_.add(in), most{&code_, largest};
    constexpr double infinity = std::numeric_limits<double>::infinity();
    return sum * function("exp", select(abs(most) < infinity, most, 0.0) - shift);
  }
  // Returns the `max` of x that an instruction is computed from, or -1.
  int largest_behind(int id, int x) const {
    const std::vector<bool> behind = needed(kernel_, {id});
    for (int i = 0; i <= id; ++i) {
      const Instruction& in = code_.at(i);
      if (behind[static_cast<size_t>(i)] && in.op == Op::reduce && in.reduction == Reduction::max &&
          in.args[0] == x)
        return i;
    }
    return -1;
  }

  static Reduction reduction_of(const Node& node) {
    if (node.op->index_of != ScalarOp::none)
      return node.op->index_of == ScalarOp::maximum ? Reduction::argmax : Reduction::argmin;
    switch (node.op->combine) {
      case ScalarOp::add:
        return Reduction::sum;
      case ScalarOp::mul:
        return Reduction::prod;
      case ScalarOp::maximum:
        return Reduction::max;
      case ScalarOp::minimum:
        return Reduction::min;
      default:
        WEFT_ASSERT(false, "nothing combines the elements of {}", node.op->name);
    }
  }

  Expr finish_reduce(const Node& node, Expr argument, const Dims& axes) {
    Instruction in{.op = Op::reduce, .type = argument.type(), .args = {argument.id, -1, -1}};
    in.reduction = reduction_of(node);
    if (in.reduction == Reduction::argmax || in.reduction == Reduction::argmin) {
      WEFT_ASSERT(axes.size() == 1, "{} over {} axes", node.op->name, axes.size());
      Dims strides = Dims::filled(node.type.shape.size(), 0);
      strides[static_cast<int>(axes[0])] = 1;
      in.args[1] = position(whole(node.inputs[0].shape()), strides, 0).id;
      in.type = DType::i64;
      return code_.add(in);
    }
    bool exact = in.reduction == Reduction::max || in.reduction == Reduction::min;
    Expr result = code_.add(in);
    return exact ? result : round_to(result, node.type.dtype);
  }

  const Launch& launch_;
  bool online_;
  Kernel kernel_;
  Code code_;
  std::unordered_map<const Node*, int> operands_;
  std::unordered_map<const Node*, bool> body_;
  std::unordered_set<const Node*> across_;
  std::map<Key, int> known_;
};
}  // namespace

Kernel lower(const Launch& launch) { return Lowering(launch, Maths::own, false).run(); }

// Online sums of exponentials save loops that read a row again. They save nothing if each thread
// has one turn of a row: the row is then held in registers and read once.
Kernel lower(const Launch& launch, GpuLanguage language) {
  Kernel online = Lowering(launch, maths_of(language), true).run();
  const auto sums = [](const Instruction& in) { return in.largest >= 0; };
  if (std::ranges::none_of(online.code, sums)) return online;
  Kernel apart = Lowering(launch, maths_of(language), false).run();
  const bool saves = online.loops() < apart.loops() && !schedule_gpu(online, language).one_turn();
  return saves ? std::move(online) : std::move(apart);
}

}  // namespace weft::loop
