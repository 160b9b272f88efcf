// Scaled dot product attention (Vaswani et al. 2017), with grouped heads (Ainslie et al. 2023).
// Query heads that share a key head are folded into rows of one product, so that keys and values
// are not repeated.
#include <cmath>
#include <limits>

#include "weft/ir/axis_map.h"
#include "weft/ops/apply.h"
#include "weft/ops/wide.h"

namespace weft {
namespace {
// Scores of hidden keys. Masked ones are finite, so that a row that sees no key is not NaN.
constexpr double masked_score = -1e30, future_score = -std::numeric_limits<double>::infinity();

// Shapes: B batch, H query heads, G key heads, T queries, S keys.
struct Parts {
  Tensor q, k, v, mask;  // mask may be empty
  double scale;
  bool causal;
  explicit Parts(const Node& node, const Tensor& mask = {})
      : q(node.inputs[0]),
        k(node.inputs[1]),
        v(node.inputs[2]),
        mask(mask),
        scale(node.attrs.number("scale")),
        causal(node.attrs.integer("causal") != 0) {}

  // fold() and unfold() map [B, H, T, X] <-> [B, G, H / G * T, X].
  Tensor fold(const Tensor& x) const {
    return reshape(x, {q.dim(0), k.dim(1), q.dim(1) / k.dim(1) * q.dim(2), x.dim(3)});
  }
  Tensor unfold(const Tensor& x) const {
    return reshape(x, {q.dim(0), q.dim(1), q.dim(2), x.dim(3)});
  }

  bool boolean_mask() const { return mask.defined() && mask.dtype() == DType::boolean; }
  // Returns which keys each query may attend to, broadcast to [B, H, T, S]; empty means all.
  Tensor visible() const {
    Tensor seen = boolean_mask() ? mask : Tensor();
    if (!causal) return seen;
    // The comparison has the full shape, so that it fuses into its consumer and is never stored.
    Shape scores{q.dim(0), q.dim(1), q.dim(2), k.dim(2)};
    Tensor past = iota(scores, 2, DType::i32) >= iota(scores, 3, DType::i32);
    return seen.defined() ? logical_and(seen, past) : past;
  }
  // Returns [B, H, T, S] in float32 at least. Without a mask -inf is safe: every query sees a key.
  Tensor scores(const Tensor& seen) const {
    Tensor all = scale * unfold(wide_matmul(fold(q), transpose(k)));
    if (mask.defined() && !boolean_mask()) all = all + widen(mask);
    return seen.defined() ? select(seen, all, boolean_mask() ? masked_score : future_score) : all;
  }
  // Sums the values by weights[B, H, T, S] to [B, H, T, E].
  Tensor mix(const Tensor& weights) const {
    return unfold(matmul(fold(narrow_to(weights, q.dtype())), v));
  }
  // Returns rows that sum to one, or are zero where a bool mask hides all keys.
  Tensor probabilities() const {
    Tensor seen = visible(), p = softmax(scores(seen));
    return boolean_mask() ? select(seen, p, 0.0) : p;
  }
};

Tensor mask_of(const Node& attention) {
  return attention.inputs.size() > 3 ? attention.inputs[3] : Tensor();
}

Tensor attend(const Node& node) {
  Parts parts(node, mask_of(node));
  return parts.mix(parts.probabilities());
}

// Returns the gradients of q, k, v and a floating point mask, given that of the result.
Gradients gradients_of(const Parts& parts, const Tensor& dy) {
  DType dtype = dy.dtype();
  Tensor p = parts.probabilities(), rows = parts.fold(dy);
  Tensor dv = matmul(transpose(parts.fold(narrow_to(p, dtype))), rows);
  Tensor dp = parts.unfold(wide_matmul(rows, transpose(parts.v)));
  Tensor dscores = p * (dp - sum(dp * p, {.axes = {3}, .keepdim = true}));
  Tensor dproducts = parts.fold(narrow_to(parts.scale * dscores, dtype));
  Tensor dq = parts.unfold(matmul(dproducts, parts.k));
  Tensor dk = matmul(transpose(dproducts), parts.fold(parts.q));
  if (!parts.mask.defined()) return {dq, dk, dv};
  if (parts.boolean_mask()) return {dq, dk, dv, {}};
  return {dq, dk, dv, narrow_to(sum_to(dscores, parts.mask.shape()), parts.mask.dtype())};
}

Type stacked_gradients(std::span<const Tensor> inputs, const Attrs&) {
  Shape shape{3};
  for (int64_t extent : inputs[0].shape()) shape.push_back(extent);
  return {inputs[0].dtype(), shape};
}

// A kernel that never stores the scores computes these values in its forward pass. It stores them
// beside the result, one per row, so that the backward pass need not recompute them.
const OpDef& attention_logsumexp_def = define({
    .name = "attention_logsumexp",
    .arity = 3,
    .doc = "logarithm of the sum of the exponentials of each row of attention's scores, float32",
    .infer = [](std::span<const Tensor> inputs, const Attrs&) -> Type {
      Shape rows = inputs[0].shape();
      rows[3] = 1;
      return {inputs[0].dtype() == DType::f64 ? DType::f64 : DType::f32, rows};
    },
    .decompose = [](const Node& node) -> Tensor {
      Parts parts(node);
      return logsumexp(parts.scores(parts.visible()), {.axes = {3}, .keepdim = true});
    },
    // The cost is that of the rows alone: the kernel of attention has their scores.
    .family = OpFamily::attention,
    .role = Role::statistics,
    .flops = [](const Node& node) { return 2.0 * static_cast<double>(node.type.elements()); },
});

// Operands y and attention_logsumexp follow from q, k and v: kernels that have them read them, the
// decomposition does without.
const OpDef& attention_backward_def = define({
    .name = "attention_backward",
    .arity = 6,
    .doc = "attention_gradient; of q, k, v, the gradient of y, y and attention_logsumexp",
    .infer = stacked_gradients,
    .decompose = [](const Node& node) -> Tensor {
      return stack(gradients_of(Parts(node), node.inputs[3]), 0);
    },
    // The axes hold for the decomposition and for kernels that read y and attention_logsumexp.
    .family = OpFamily::attention,
    .role = Role::backward,
    .axes =
        [](const Node& node) {
          AxisMap map(node);
          constexpr int batch = 0, heads = 1;
          for (int axis = 0; axis < node.type.shape.size(); ++axis) {
            const bool parts = axis == 1 + batch || axis == 1 + heads;
            std::vector<AxisMap::Place> places{{AxisMap::of_result, axis}};
            for (int i = 0; axis > 0 && i < static_cast<int>(node.inputs.size()); ++i)
              places.push_back({i, axis - 1});
            map.relate(node,
                       {.size = node.type.shape[axis],
                        .relation = parts ? Relation::plain : Relation::whole},
                       places);
          }
          return map;
        },
});

// Expresses the gradient by results of the forward pass, which simplify merges with those there.
Tensor with_forward(const Node& gradient) {
  std::vector<Tensor> inputs = gradient.inputs;
  const std::vector<Tensor> forward(inputs.begin(), inputs.begin() + 3);
  inputs.push_back(make_node(op("attention"), forward, gradient.attrs));
  inputs.push_back(make_node(attention_logsumexp_def, forward, gradient.attrs));
  return make_node(attention_backward_def, std::move(inputs), gradient.attrs);
}

// attention_gradient is all gradients in one value, for q, k, v of one shape without a mask.
const OpDef& attention_gradient_def = define({
    .name = "attention_gradient",
    .arity = 4,
    .doc = "gradients of attention by q, k and v, stacked; of q, k, v and the gradient of y",
    .infer = stacked_gradients,
    .decompose = with_forward,
    // The cost excludes the forward pass, whose nodes are shared.
    .family = OpFamily::attention,
    .role = Role::gradient,
    .flops = [](const Node& node) { return flops(*with_forward(node).node()); },
    .narrows = true,
});

Gradients attention_gradient(const Tensor& y, const Tensor& dy) {
  const std::vector<Tensor>& inputs = y->inputs;
  const Shape& shape = inputs[0].shape();
  if (inputs.size() > 3 || inputs[1].shape() != shape || inputs[2].shape() != shape)
    return gradients_of(Parts(*y.node(), mask_of(*y.node())), dy);
  Tensor all =
      make_node(attention_gradient_def, {inputs[0], inputs[1], inputs[2], dy},
                {{"causal", y->attrs.integer("causal")}, {"scale", y->attrs.number("scale")}});
  Gradients gradients;
  for (int64_t i = 0; i < 3; ++i) gradients.push_back(reshape(slice(all, 0, i, i + 1), shape));
  return gradients;
}

const OpDef& attention_def = define({
    .name = "attention",
    .arity = -1,
    .doc = "softmax(scale q k' + mask) v over the last two axes",
    .infer = [](std::span<const Tensor> inputs, const Attrs&) -> Type {
      Shape shape = inputs[0].shape();
      shape[3] = inputs[2].shape()[3];
      return {inputs[0].dtype(), shape};
    },
    .gradient = attention_gradient,
    .decompose = attend,
    .family = OpFamily::attention,
    .narrows = true,
});

void check_shapes(const Tensor& q, const Tensor& k, const Tensor& v) {
  WEFT_CHECK(q.rank() == 4 && k.rank() == 4 && v.rank() == 4,
             "[attention] needs q[B, H, T, D], k[B, G, S, D], v[B, G, S, E]. Got {}, {} and {}.",
             to_string(q.shape()), to_string(k.shape()), to_string(v.shape()));
  bool fits = k.dim(0) == q.dim(0) && v.dim(0) == q.dim(0) && k.dim(3) == q.dim(3) &&
              v.dim(1) == k.dim(1) && v.dim(2) == k.dim(2);
  WEFT_CHECK(fits,
             "[attention] needs q[B, H, T, D], k[B, G, S, D], v[B, G, S, E]. Got {}, {} and {}.",
             to_string(q.shape()), to_string(k.shape()), to_string(v.shape()));
  WEFT_CHECK(k.dim(1) > 0 && q.dim(1) % k.dim(1) == 0,
             "[attention] key heads must divide query heads. Got {} and {}.", k.dim(1), q.dim(1));
  WEFT_CHECK(is_float(q.dtype()) && q.dtype() == k.dtype() && q.dtype() == v.dtype(),
             "[attention] q, k and v must share a floating point type. Got {}, {} and {}.",
             name(q.dtype()), name(k.dtype()), name(v.dtype()));
}
}  // namespace

Tensor attention(Arg q, Arg k, Arg v, const AttentionOptions& options) {
  CallSite here(q.where);
  check_shapes(q.value, k.value, v.value);
  std::vector<Tensor> inputs{q.value, k.value, v.value};
  if (options.mask.defined()) {
    Shape scores{q.value.dim(0), q.value.dim(1), q.value.dim(2), k.value.dim(2)};
    WEFT_CHECK(broadcast_shapes(options.mask.shape(), scores, "attention") == scores,
               "[attention] the mask must broadcast to {}. Got {}.", to_string(scores),
               to_string(options.mask.shape()));
    WEFT_CHECK(!is_integer(options.mask.dtype()),
               "[attention] the mask must be bool or floating point. Got {}.",
               name(options.mask.dtype()));
    inputs.push_back(options.mask);
  }
  double scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(q.value.dim(3))));
  Tensor y = make_node(attention_def, std::move(inputs),
                       {{"causal", int64_t{options.causal}}, {"scale", scale}});
  if (options.dropout == 0) return y;
  Parts parts(*y.node(), options.mask);
  return parts.mix(dropout(parts.probabilities(), options.dropout, options.key));
}
}  // namespace weft
