// Defines the matrix products. In the graph both operands have equal rank; batch axes of extent 1
// broadcast.
#include "weft/ir/axis_map.h"
#include "weft/ops/apply.h"
#include "weft/ops/wide.h"

namespace weft {
namespace {
Tensor last_two_swapped(const Tensor& x) { return transpose(x, -2, -1); }

// Returns a product summed over the axes along which `shape` has extent 1, rounded once.
Tensor product_to(const Tensor& a, const Tensor& b, const Shape& shape) {
  const Tensor y = matmul(a, b);
  return y.shape() == shape ? y : narrow_to(sum_to(wide_matmul(a, b), shape), y.dtype());
}

bool is_transposed(const Tensor& x) { return (x->is("reshape") ? x->inputs[0] : x)->is("permute"); }

// Infers [B.., M, K] x [B.., K, N] -> [B.., M, N]; batch extents are equal or 1.
Type matmul_type(std::span<const Tensor> inputs, const Attrs& attrs) {
  check_numeric(inputs[0].dtype(), "matmul");
  const Shape &a = inputs[0].shape(), &b = inputs[1].shape();
  const int rank = a.size();
  bool fits = rank >= 2 && b.size() == rank && a[rank - 1] == b[rank - 2];
  for (int i = 0; fits && i < rank - 2; ++i) fits = a[i] == b[i] || a[i] == 1 || b[i] == 1;
  WEFT_ASSERT(fits, "a product of {} and {}", to_string(a), to_string(b));
  Shape shape = a;
  for (int i = 0; i < rank - 2; ++i) shape[i] = a[i] == 1 ? b[i] : a[i];
  shape[rank - 1] = b[rank - 1];
  return {product_dtype(inputs[0].dtype(), attrs), shape};
}

// Relates ([b.., m, k], [b.., k, n]) -> [b.., m, n]; `a` and `b` are the factors' operand numbers.
AxisMap product_axes(const Node& node, int a, int b) {
  AxisMap map(node);
  const Shape& x = node.inputs[static_cast<size_t>(a)].shape();
  const int m = x.size() - 2, n = x.size() - 1;
  auto relate = [&](Factor factor, std::vector<AxisMap::Place> places) {
    if (a > 0 && factor.relation == Relation::plain)  // operand 0 of matmul_add: the sums so far
      places.push_back({0, places.front().axis});
    map.relate(node, factor, places);
  };
  constexpr int result = AxisMap::of_result;
  const Shape& y = node.type.shape;
  for (int axis = 0; axis < m; ++axis)
    relate({.size = y[axis]}, {{result, axis}, {a, axis}, {b, axis}});
  relate({.size = y[m]}, {{result, m}, {a, m}});
  relate({.size = y[n]}, {{result, n}, {b, n}});
  relate({.size = x[n], .relation = Relation::reduced}, {{a, n}, {b, m}});
  return map;
}

const OpDef& matmul_def = define({
    .name = "matmul",
    .kind = OpKind::contraction,
    .arity = 2,
    .doc = "[.., M, K] x [.., K, N] -> [.., M, N]",
    .infer = matmul_type,
    .gradient = [](const Tensor& y, const Tensor& upstream) -> Gradients {
      const Tensor &a = y->inputs[0], &b = y->inputs[1], dy = narrow_to(upstream, a.dtype());
      int rank = a.rank();
      bool shared_b = true;  // one matrix for the whole batch: a weight
      for (int i = 0; i < rank - 2; ++i) shared_b &= b.shape()[i] == 1;
      Tensor da = product_to(dy, last_two_swapped(b), a.shape());
      if (!shared_b) return {da, product_to(last_two_swapped(a), dy, b.shape())};
      // One product over all rows replaces one per batch element and their sum.
      bool batches_differ = false;
      for (int i = 0; i < rank - 2; ++i) batches_differ |= a.shape()[i] != dy.shape()[i];
      Tensor whole = batches_differ ? broadcast_to(a,
                                                   [&] {
                                                     Shape shape = dy.shape();
                                                     shape[rank - 1] = a.shape()[rank - 1];
                                                     return shape;
                                                   }())
                                    : a;
      Tensor rows = reshape(whole, {-1, a.dim(-1)}), grads = reshape(dy, {-1, dy.dim(-1)});
      // The gradient of a transposed weight gets the weight's layout, so that the update reads it
      // contiguously.
      Tensor db = is_transposed(b) ? last_two_swapped(matmul(last_two_swapped(grads), rows))
                                   : matmul(last_two_swapped(rows), grads);
      return {da, reshape(db, b.shape())};
    },
    .family = OpFamily::product,
    .flops = product_flops,
    .axes = [](const Node& node) { return product_axes(node, 0, 1); },
    .narrows = true,
    .test = {.integers = true},
});

// matmul_add continues the sums of another product, so that a product can be split along K.
const OpDef& matmul_add_def = define({
    .name = "matmul_add",
    .arity = 3,
    .doc = "so_far [.., M, N] + [.., M, K] x [.., K, N], in the type that products are summed in",
    .infer = [](std::span<const Tensor> inputs, const Attrs&) -> Type {
      Type sums = matmul_type(inputs.subspan(1), {});
      if (is_float(sums.dtype)) sums.dtype = accumulator(sums.dtype);
      WEFT_CHECK(inputs[0].type() == sums, "[matmul_add] sums must be {}. Got {}.", to_string(sums),
                 to_string(inputs[0].type()));
      return sums;
    },
    .decompose = [](const Node& node) -> Tensor {
      return node.inputs[0] + wide_matmul(node.inputs[1], node.inputs[2]);
    },
    .family = OpFamily::product,
    .axes = [](const Node& node) { return product_axes(node, 1, 2); },
    .test = {.integers = true},
});

// matmul_mixed multiplies factors of two types in a common type that holds the numbers of both
// exactly. Kernels that read the factors as they are stored override it.
const OpDef& matmul_mixed_def = define({
    .name = "matmul_mixed",
    .arity = 2,
    .doc = "[.., M, K] x [.., K, N] -> [.., M, N] of two types, in the wider one",
    .infer = [](std::span<const Tensor> inputs, const Attrs&) -> Type {
      return {mixed_product_dtype(inputs[0].dtype(), inputs[1].dtype()),
              matmul_type(inputs, {}).shape};
    },
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      const Tensor &a = y->inputs[0], &b = y->inputs[1];
      // An integer factor has no gradient; the other factor's gradient reads the integers as
      // stored.
      Gradients gradients(2);
      if (is_float(a.dtype()))
        gradients[0] = narrow_to(product_to(dy, last_two_swapped(b), a.shape()), a.dtype());
      if (is_float(b.dtype()))
        gradients[1] = narrow_to(product_to(last_two_swapped(a), dy, b.shape()), b.dtype());
      return gradients;
    },
    .decompose = [](const Node& node) -> Tensor {
      const DType dtype = node.type.dtype;
      return matmul(narrow_to(node.inputs[0], dtype), narrow_to(node.inputs[1], dtype));
    },
    .family = OpFamily::product,
    .axes = [](const Node& node) { return product_axes(node, 0, 1); },
    .test = {.integers = true, .stored = true},
});

Tensor with_rank(const Tensor& x, int rank) {
  Shape shape = Dims::filled(rank - x.rank(), 1);
  for (int64_t extent : x.shape()) shape.push_back(extent);
  return reshape(x, shape);
}
}  // namespace

Tensor matmul(Arg left, Arg right) {
  CallSite here(left.where);
  Tensor a = left.value, b = right.value;
  WEFT_CHECK(a.rank() > 0 && b.rank() > 0,
             "[matmul] operands must have at least one axis. Got {} and {}.", to_string(a.type()),
             to_string(b.type()));
  bool vector_a = a.rank() == 1, vector_b = b.rank() == 1;
  if (vector_a) a = unsqueeze(a, 0);
  if (vector_b) b = unsqueeze(b, 1);
  WEFT_CHECK(a.dim(-1) == b.dim(-2), "[matmul] inner extents must match. Got {} and {}: {} and {}.",
             to_string(left.value.shape()), to_string(right.value.shape()), a.dim(-1), b.dim(-2));
  int rank = std::max(a.rank(), b.rank());
  a = with_rank(a, rank);
  b = with_rank(b, rank);
  Shape batch_a, batch_b;
  for (int i = 0; i < rank - 2; ++i) {
    batch_a.push_back(a.shape()[i]);
    batch_b.push_back(b.shape()[i]);
  }
  broadcast_shapes(batch_a, batch_b, "matmul");
  const bool mixed = a.dtype() != b.dtype() || info(a.dtype()).stored_only;
  Tensor y = make_node(mixed ? matmul_mixed_def : matmul_def, {a, b});
  if (vector_a) y = squeeze(y, -2);
  if (vector_b) y = squeeze(y, -1);
  return y;
}

DType mixed_product_dtype(DType a, DType b) {
  for (DType dtype : {a, b}) {
    check_numeric(dtype, "matmul");
    WEFT_CHECK(info(dtype).numbers == 1,
               "[matmul] an element of {} holds {} numbers. Got factors of {} and {}. Hint: "
               "dequantize(x, scale).",
               name(dtype), info(dtype).numbers, name(a), name(b));
  }
  if (!is_float(a) && !is_float(b))
    return std::max(whole_bits(a), whole_bits(b)) > whole_bits(DType::i32) ? DType::i64
                                                                           : DType::i32;
  // Types that only store, and 8-bit integers, rank below every float that computes.
  const auto least = [](DType dtype) { return info(dtype).stored_only || !is_float(dtype); };
  for (DType dtype : {a, b})
    WEFT_CHECK(is_float(dtype) || info(dtype).bits == 8,
               "[matmul] a float's other factor is a float or an integer of 8 bits. Got {} and {}. "
               "Hint: cast(x, DType::f32).",
               name(a), name(b));
  if (least(a) && least(b)) return DType::f32;
  if (least(a) || least(b)) return least(a) ? b : a;
  return size_of(a) == size_of(b) && a != b ? DType::f32 : size_of(a) > size_of(b) ? a : b;
}

namespace {
Tensor widened_product(const Tensor& y) {
  if (!computes_wider(y.dtype())) return y;
  if (y->op == &matmul_def) return make_node(matmul_def, y->inputs, {{"wide", int64_t{1}}});
  if (y->op->kind == OpKind::movement)  // vectors lose their axis again
    return rebuild(*y.node(), {widened_product(y->inputs[0])});
  return cast(y, DType::f32);
}
}  // namespace

Tensor wide_matmul(const Tensor& a, const Tensor& b) { return widened_product(matmul(a, b)); }

Tensor linear(Arg x, Arg weight, const Tensor& bias) {
  CallSite here(x.where);
  WEFT_CHECK(
      weight.value.rank() == 2 && x.value.rank() > 0 && x.value.dim(-1) == weight.value.dim(1),
      "[linear] x{} and weight{} do not match. Hint: x is [.., in], weight [out, in].",
      to_string(x.value.shape()), to_string(weight.value.shape()));
  Tensor y = matmul(x, transpose(weight));
  return bias.defined() ? y + bias : y;
}
}  // namespace weft
