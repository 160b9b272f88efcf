// Integers: at inference, products and convolutions whose two operands were quantized to 8 bits
// (`dequantize`, `fake_quantize`) multiply the integers themselves, where the library has a kernel
// for that. With x = sx (p - z) and w = sw q,
//
//   sum x w = sx sw (sum p q - z sum q)
//
// so that sums are exact in i32 and scaled once; sum q depends on the weight alone, which `fixed`
// computes before the first run. The form holds where scales do not vary along what is summed, the
// weight has no zero of its own, and the step does not assign it: training needs its float32.
#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "weft/device/bound.h"
#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"
#include "weft/passes/graph/fold.h"
#include "weft/passes/passes.h"

namespace weft {
namespace {
bool is_byte(DType dtype) { return dtype == DType::i8 || dtype == DType::u8; }
bool is_fake(const Value& value) {
  return value->is("fake_quantize") && value.dtype() == DType::f32 &&
         is_byte(static_cast<DType>(value->attrs.integer("dtype")));
}

// Integers are the numbers that a value stands for: scale * (numbers - zero). Where there is no
// scale it is 1; the zero is one number, and where there is none 0.
struct Integers {
  Value numbers, scale, zero;
};

// Returns the one number that a constant holds, everywhere; nullopt where it is not known.
std::optional<double> number_of(const Value& value) {
  const Value* from = &value;
  while ((*from)->op->view != nullptr || (*from)->is("cast")) from = &(*from)->inputs[0];
  if (auto uniform = uniform_value(*from)) return uniform;
  const Value& data = *from;
  if (!data->has_data() || data->variable != nullptr || data.elements() == 0) return std::nullopt;
  const double first = load(data->data(), data.dtype(), 0);
  for (int64_t i = 1; i < data.elements(); ++i)
    if (load(data->data(), data.dtype(), i) != first) return std::nullopt;
  return first;
}
// Returns numbers less a zero, of which all are the same; nullopt where they may differ.
std::optional<Integers> centred(Value numbers, Value scale, const Value& zero) {
  Integers all{std::move(numbers), std::move(scale), {}};
  if (!zero.defined()) return all;
  if (const std::optional<double> known = number_of(zero)) {
    if (*known != 0) all.zero = filled({DType::i32, {}}, *known);
    return all;
  }
  Value one = zero;
  while (one.elements() > 1 && (one->is("broadcast") || one->is("reshape"))) one = one->inputs[0];
  if (one.elements() != 1) return std::nullopt;
  all.zero = cast(reshape(one, {}), DType::i32);
  return all;
}

// Returns whether neighbours share a number of the scale along an axis that has several.
bool has_blocks(const Node& dequantize) {
  const Shape &numbers = dequantize.inputs[0].shape(), &scale = dequantize.inputs[1].shape();
  for (int i = 0; i < numbers.size(); ++i)
    if (scale[i] != 1 && scale[i] != numbers[i]) return true;
  return false;
}

bool adds_leading_ones(const Shape& from, const Shape& to) {
  const int more = to.size() - from.size();
  for (int i = 0; i < to.size(); ++i)
    if (more < 0 || to[i] != (i < more ? 1 : from[i - more])) return false;
  return true;
}

Value with_leading_ones(const Value& scale, int rank) {
  Shape shape = Dims::filled(rank - scale.rank(), 1);
  for (int64_t extent : scale.shape()) shape.push_back(extent);
  return reshape(scale, shape);
}

std::optional<Integers> integers_of(const Value& value);

// A movement of numbers moves their scales with them.
std::optional<Integers> moved(const Value& value) {
  std::optional<Integers> from = integers_of(value->inputs[0]);
  if (!from) return from;
  const Node& node = *value.node();
  Integers to{{}, {}, from->zero};
  const std::optional<double> zero = to.zero.defined() ? uniform_value(to.zero) : 0;
  const bool one_scale = !from->scale.defined() || from->scale.elements() == 1;
  if (value->is("pad")) {
    if (!one_scale || !zero || node.attrs.number("value") != 0) return std::nullopt;
    to.numbers = pad(from->numbers, node.attrs.dims("low"), node.attrs.dims("high"), *zero);
    to.scale = from->scale;
    return to;
  }
  to.numbers = rebuild(node, {from->numbers});
  if (!from->scale.defined()) return to;
  if (one_scale)
    to.scale = reshape(from->scale, Dims::filled(value.rank(), 1));
  else if (value->is("permute"))
    to.scale = rebuild(node, {from->scale});
  else if (adds_leading_ones(from->numbers.shape(), value.shape()))
    to.scale = with_leading_ones(from->scale, value.rank());
  else
    return std::nullopt;
  return to;
}

std::optional<Integers> integers_of(const Value& value) {
  const Node& node = *value.node();
  if (value->is("permute") || value->is("reshape") || value->is("pad")) return moved(value);
  const auto operand = [&](size_t i) { return i < node.inputs.size() ? node.inputs[i] : Value(); };
  if (value->is("dequantize") && is_byte(operand(0).dtype()) && value.dtype() == DType::f32)
    return has_blocks(node) ? std::nullopt : centred(operand(0), operand(1), operand(2));
  if (value.dtype() != DType::i32) return std::nullopt;
  if (value->is("cast") && is_byte(operand(0).dtype())) return Integers{operand(0), {}, {}};
  if (value->is("sub"))
    if (auto from = integers_of(operand(0)); from && !from->zero.defined())
      return centred(from->numbers, {}, operand(1));
  return std::nullopt;
}

class Products {
 public:
  Products(const Graph& graph, const PassOptions& options) : kernels_(options.library->kernels()) {
    for (const auto& [variable, value] : graph.assignments)
      assigned_.insert(variable->variable.get());
  }

  // Returns whether a value depends on variables alone that the step does not assign.
  bool is_fixed(const Value& value) {
    if (auto known = fixed_.find(value.node()); known != fixed_.end()) return known->second.second;
    const OpDef& op = *value->op;
    bool fixed = op.kind != OpKind::random && op.leaf != LeafKind::input;
    if (value->variable != nullptr) fixed = !assigned_.contains(value->variable.get());
    for (const Value& input : value->inputs) fixed = fixed && is_fixed(input);
    fixed_.emplace(value.node(), std::pair(value, fixed));
    return fixed;
  }

  // Returns the product of integers in place of that of `value`, or an empty Value.
  Value in_integers(const Value& value) {
    const bool is_conv = value->is("conv");
    if (!is_conv && !value->is("matmul")) return {};
    if (value.dtype() != DType::f32 && value.dtype() != DType::i32) return {};
    if (!is_fixed(value->inputs[1])) return {};
    auto x = integers_of(value->inputs[0]), w = integers_of(value->inputs[1]);
    if (!x || !w || w->zero.defined() || x->scale.defined() != w->scale.defined()) return {};
    const Value scale = is_conv ? conv_scale(*x, *w) : product_scale(*x, *w);
    if (x->scale.defined() && !scale.defined()) return {};
    const Value sums = is_conv ? convolved(*value.node(), *x, *w)
                               : make_node(op("matmul_mixed"), {x->numbers, w->numbers});
    if (!sums.defined() || !kernels_.choose(*sums.node(), dense(sums->inputs))) return {};
    const Value total = x->zero.defined() ? sums - weight_sums(*w, is_conv) * x->zero : sums;
    return scale.defined() ? cast(total, DType::f32) * scale : total;
  }

 private:
  // Returns the scale of each sum of x[.., M, K] w[.., K, N]; empty where it varies along K.
  static Value product_scale(const Integers& x, const Integers& w) {
    if (!x.scale.defined() || x.scale.dim(-1) != 1 || w.scale.dim(-2) != 1) return {};
    return x.scale * w.scale;
  }
  // Returns the scale of each sum of a convolution, [1, O, 1, 1]; empty where it varies within one.
  static Value conv_scale(const Integers& x, const Integers& w) {
    if (!x.scale.defined() || x.scale.elements() != 1) return {};
    const int64_t scales = w.scale.elements();
    if (scales != w.scale.dim(0)) return {};
    return reshape(x.scale, {1, 1, 1, 1}) * reshape(w.scale, {1, scales, 1, 1});
  }

  // Pads x by its zero, as kernels pad by 0; an empty Value where it is not known.
  static Value convolved(const Node& conv, const Integers& x, const Integers& w) {
    const Dims& padding = conv.attrs.dims("padding");
    if (!x.zero.defined() || padding == Dims{0, 0})
      return make_node(op("conv_mixed"), {x.numbers, w.numbers}, conv.attrs);
    const std::optional<double> zero = uniform_value(x.zero);
    if (!zero) return {};
    const Dims around{0, 0, padding[0], padding[1]};
    return make_node(op("conv_mixed"), {pad(x.numbers, around, around, *zero), w.numbers},
                     {{"stride", conv.attrs.dims("stride")},
                      {"padding", Dims{0, 0}},
                      {"dilation", conv.attrs.dims("dilation")},
                      {"groups", conv.attrs.integer("groups")}});
  }

  // Returns the sum of the weights behind each result.
  static Value weight_sums(const Integers& w, bool is_conv) {
    const Value wide = cast(w.numbers, DType::i32);
    const Value sums =
        is_conv ? reshape(sum(wide, {1, 2, 3}), {1, wide.dim(0), 1, 1}) : sum(wide, {-2}, true);
    return cast(sums, DType::i32);
  }

  const KernelChooser& kernels_;
  std::unordered_set<const VariableState*> assigned_;
  std::unordered_map<const Node*, std::pair<Value, bool>> fixed_;  // the value keeps its node alive
};

// Returns what a fake_quantize() is in integers, which all of its readers share. Numbers whose zero
// is at an end of their range become those of the other sign, without one.
Value in_numbers(const Node& fake) {
  auto dtype = static_cast<DType>(fake.attrs.integer("dtype"));
  const Value &x = fake.inputs[0], &scale = fake.inputs[1];
  Value zero = fake.inputs.size() > 2 ? fake.inputs[2] : Value();
  const std::optional<double> known = zero.defined() ? number_of(zero) : 0;
  if (known == (dtype == DType::i8 ? -128 : 128))
    dtype = dtype == DType::i8 ? DType::u8 : DType::i8, zero = {};
  if (known == 0) zero = {};
  return dequantize(quantize_affine(x, scale, zero, dtype), scale, zero);
}
}  // namespace

Graph multiply_integers(const Graph& graph, const PassOptions& options) {
  if (options.library == nullptr) return graph;
  Products products(graph, options);
  const Graph quantized = rewrite(graph, [&](const Value& value) -> Value {
    return is_fake(value) ? in_numbers(*value.node()) : Value();
  });
  bool found = false;
  Graph result = rewrite(quantized, [&](const Value& value) -> Value {
    Value product = products.in_integers(value);
    found |= product.defined();
    return product;
  });
  return found ? result : graph;
}

}  // namespace weft
