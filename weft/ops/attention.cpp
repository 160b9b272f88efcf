// Defines scaled dot product attention (Vaswani et al. 2017), with grouped heads (Ainslie et al.
// 2023). Query heads that share a key head are folded into rows of one product, so that keys and
// values are not repeated.
#include <cmath>
#include <limits>

#include "weft/ir/axis_map.h"
#include "weft/ops/apply.h"
#include "weft/ops/wide.h"

namespace weft {
namespace {
// Hidden keys have these scores. Masked ones are finite, so that a row that sees no key is not NaN.
constexpr double masked_score = -1e30, future_score = -std::numeric_limits<double>::infinity();

// Shapes: B batch, H query heads, G key heads, T queries, S keys.
struct Parts {
  Tensor q, k, v, mask, start;  // mask and start may be empty
  double scale, softcap;
  bool causal;
  int64_t window;
  // Takes a node of attention, of its gradient or of its statistics. Attributes "mask" and "start"
  // say that the node has these operands, in this order, after all others.
  explicit Parts(const Node& node)
      : q(node.inputs[0]),
        k(node.inputs[1]),
        v(node.inputs[2]),
        scale(node.attrs.number("scale")),
        softcap(node.attrs.has("softcap") ? node.attrs.number("softcap") : 0),
        causal(node.attrs.integer("causal") != 0),
        window(node.attrs.has("window") ? node.attrs.integer("window") : 0) {
    const bool has_start = node.attrs.has("start");
    if (node.attrs.has("mask")) mask = node.inputs[node.inputs.size() - (has_start ? 2 : 1)];
    if (has_start) start = node.inputs.back();
  }

  // fold() and unfold() map [B, H, T, X] <-> [B, G, H / G * T, X].
  Tensor fold(const Tensor& x) const {
    return reshape(x, {q.dim(0), k.dim(1), q.dim(1) / k.dim(1) * q.dim(2), x.dim(3)});
  }
  Tensor unfold(const Tensor& x) const {
    return reshape(x, {q.dim(0), q.dim(1), q.dim(2), x.dim(3)});
  }

  bool boolean_mask() const { return mask.defined() && mask.dtype() == DType::boolean; }
  // Returns which keys each query may attend to, broadcast to [B, H, T, S]; empty means all. A
  // floating point mask hides keys by -inf.
  Tensor visible() const {
    Tensor seen = mask;
    if (mask.defined() && !boolean_mask()) seen = mask != -std::numeric_limits<double>::infinity();
    if (!causal) return seen;
    // The comparison has the full shape, so that it fuses into its consumer and is never stored.
    Shape scores{q.dim(0), q.dim(1), q.dim(2), k.dim(2)};
    Tensor query = iota(scores, 2, DType::i32), key = iota(scores, 3, DType::i32);
    if (start.defined()) query = query + reshape(cast(start, DType::i32), {q.dim(0), 1, 1, 1});
    Tensor past = query >= key;
    if (window > 0) past = logical_and(past, query - key < window);
    return seen.defined() ? logical_and(seen, past) : past;
  }
  // Returns [B, H, T, S] in float32 at least, scaled.
  Tensor products() const { return scale * unfold(wide_matmul(fold(q), transpose(k))); }
  Tensor capped(const Tensor& products) const { return tanh(products / softcap); }
  // Without a mask and a start -inf is safe: every query sees a key.
  Tensor scores(const Tensor& seen) const {
    Tensor all = products();
    if (softcap > 0) all = softcap * capped(all);
    if (mask.defined() && !boolean_mask()) all = all + widen(mask);
    const bool may_see_none = mask.defined() || start.defined();
    return seen.defined() ? select(seen, all, may_see_none ? masked_score : future_score) : all;
  }
  // Sums the values by weights[B, H, T, S] to [B, H, T, E].
  Tensor mix(const Tensor& weights) const {
    return unfold(matmul(fold(narrow_to(weights, q.dtype())), v));
  }
  // Returns rows that sum to one, or are zero where a mask hides all keys.
  Tensor probabilities() const {
    Tensor seen = visible(), p = softmax(scores(seen));
    return mask.defined() ? select(seen, p, 0.0) : p;
  }
};

Tensor attend(const Node& node) {
  Parts parts(node);
  return parts.mix(parts.probabilities());
}

// Returns the gradients of q, k, v and a floating point mask, given that of the result.
Gradients gradients_of(const Parts& parts, const Tensor& dy) {
  DType dtype = dy.dtype();
  Tensor p = parts.probabilities(), rows = parts.fold(dy);
  Tensor dv = matmul(transpose(parts.fold(narrow_to(p, dtype))), rows);
  Tensor dp = parts.unfold(wide_matmul(rows, transpose(parts.v)));
  Tensor dscores = p * (dp - sum(dp * p, {.axes = {3}, .keepdim = true}));
  Tensor dcapped = dscores;
  if (parts.softcap > 0) dcapped = dscores * (1 - square(parts.capped(parts.products())));
  Tensor dproducts = parts.fold(narrow_to(parts.scale * dcapped, dtype));
  Tensor dq = parts.unfold(matmul(dproducts, parts.k));
  Tensor dk = matmul(transpose(dproducts), parts.fold(parts.q));
  Gradients all{dq, dk, dv};
  if (parts.boolean_mask())
    all.push_back({});
  else if (parts.mask.defined())
    all.push_back(narrow_to(sum_to(dscores, parts.mask.shape()), parts.mask.dtype()));
  if (parts.start.defined()) all.push_back({});
  return all;
}

// together() and apart() map [3, B, H, T, D] <-> [B, 3 H, T, D]. With an axis of their own, the
// gradients of q, k and v line up with the gradient of one product that computed q, k and v at
// once.
Tensor together(const Tensor& x) {
  const Shape& s = x.shape();
  return reshape(permute(x, {1, 0, 2, 3, 4}), {s[1], s[0] * s[2], s[3], s[4]});
}
Tensor apart(const Tensor& x) {
  const Shape& s = x.shape();
  return permute(reshape(x, {s[0], 3, s[1] / 3, s[2], s[3]}), {1, 0, 2, 3, 4});
}

// Infers the type of the gradients of q, k and v as one value [B, H + 2 G, T, D]: heads of q, then
// of k, then of v.
Type joined_gradients(std::span<const Tensor> inputs, const Attrs&) {
  Shape shape = inputs[0].shape();
  shape[1] += 2 * inputs[1].dim(1);
  return {inputs[0].dtype(), shape};
}

// A kernel that never stores the scores computes these values in its forward pass. It stores them
// beside the result, one per row, so that the backward pass need not recompute them.
const OpDef& attention_logsumexp_def = define({
    .name = "attention_logsumexp",
    .arity = -1,
    .doc = "logsumexp of each row of attention's scores, float32; of attention's operands",
    .infer = [](std::span<const Tensor> inputs, const Attrs&) -> Type {
      Shape rows = inputs[0].shape();
      rows[3] = 1;
      return {inputs[0].dtype() == DType::f64 ? DType::f64 : DType::f32, rows};
    },
    .decompose = [](const Node& node) -> Tensor {
      Parts parts(node);
      return logsumexp(parts.scores(parts.visible()), {.axes = {3}, .keepdim = true});
    },
    // The cost is only that of the rows, as the kernel of attention computes the scores anyway.
    .family = OpFamily::attention,
    .role = Role::statistics,
    .flops = [](const Node& node) { return 2.0 * static_cast<double>(node.type.elements()); },
});

// Operands y and attention_logsumexp follow from q, k and v. Kernels that are given them read them;
// the decomposition ignores them.
const OpDef& attention_backward_def = define({
    .name = "attention_backward",
    .arity = -1,
    .doc = "attention_gradient; of q, k, v, the gradient of y, y, attention_logsumexp and a mask",
    .infer = joined_gradients,
    .decompose = [](const Node& node) -> Tensor {
      Gradients all = gradients_of(Parts(node), node.inputs[3]);
      all.resize(3);  // the mask has no gradient
      return all[0].shape() == all[1].shape() ? together(stack(all, 0)) : concat(all, 1);
    },
    // The axes hold for the decomposition and for kernels that read y and attention_logsumexp.
    .family = OpFamily::attention,
    .role = Role::backward,
    .axes =
        [](const Node& node) {
          AxisMap map(node);
          constexpr int batch = 0, heads = 1, depth = 3, k = 1, v = 2, matrices = 6;
          const bool masked = node.attrs.has("mask");  // the mask is the operand after the matrices
          const int64_t key_heads = node.inputs[k].dim(heads);
          const bool shared = node.inputs[0].dim(heads) != key_heads;
          // Heads of the result are [3, H] where each head of q has its own k and v.
          if (!shared)
            map.relate(node, {.size = 3, .relation = Relation::whole},
                       {{AxisMap::of_result, heads}});
          for (int axis = 0; axis < node.type.shape.size(); ++axis) {
            const bool apart = axis == heads && shared;
            std::vector<AxisMap::Place> places;
            for (int i = 0; i < matrices; ++i)
              if (!apart || (i != k && i != v)) places.push_back({i, axis});
            if (masked && axis != depth) places.push_back({matrices, axis});
            if (!apart) places.push_back({AxisMap::of_result, axis});
            const bool parts = axis == batch || (axis == heads && !shared);
            map.relate(node,
                       {.size = node.inputs[0].dim(axis),
                        .relation = parts ? Relation::plain : Relation::whole},
                       places);
          }
          if (masked)
            map.relate(node,
                       {.size = node.inputs[matrices].dim(depth), .relation = Relation::whole},
                       {{matrices, depth}});
          if (!shared) return map;
          map.relate(node, {.size = key_heads, .relation = Relation::whole},
                     {{k, heads}, {v, heads}});
          map.relate(node, {.size = node.type.shape[heads], .relation = Relation::whole},
                     {{AxisMap::of_result, heads}});
          return map;
        },
});

// Expresses the gradient by nodes of the forward pass, which simplify merges with the forward pass
// itself.
Tensor with_forward(const Node& gradient) {
  std::vector<Tensor> inputs(gradient.inputs.begin(), gradient.inputs.begin() + 4);
  std::vector<Tensor> forward(inputs.begin(), inputs.begin() + 3);
  const std::span<const Tensor> mask = std::span(gradient.inputs).subspan(4);
  forward.insert(forward.end(), mask.begin(), mask.end());
  inputs.push_back(make_node(op("attention"), forward, gradient.attrs));
  inputs.push_back(make_node(attention_logsumexp_def, forward, gradient.attrs));
  inputs.insert(inputs.end(), mask.begin(), mask.end());
  return make_node(attention_backward_def, std::move(inputs), gradient.attrs);
}

// attention_gradient joins all gradients in one value. q, k and v have one shape but for the number
// of heads; there is no mask, or a bool one.
const OpDef& attention_gradient_def = define({
    .name = "attention_gradient",
    .arity = -1,
    .doc = "gradients of attention by q, k and v, joined along heads; of q, k, v, that of y and a "
           "mask",
    .infer = joined_gradients,
    .decompose = with_forward,
    // The cost excludes the forward pass, whose nodes are shared.
    .family = OpFamily::attention,
    .role = Role::gradient,
    .flops = [](const Node& node) { return flops(*with_forward(node).node()); },
    .narrows = true,
});

Gradients attention_gradient(const Tensor& y, const Tensor& dy) {
  const std::vector<Tensor>& inputs = y->inputs;
  const Parts parts(*y.node());
  const bool is_joined = !parts.start.defined() && parts.softcap == 0 &&
                         (!parts.mask.defined() || parts.boolean_mask());
  const int64_t heads = inputs[0].dim(1), key_heads = inputs[1].dim(1);
  Shape keys = inputs[0].shape();
  keys[1] = key_heads;
  if (!is_joined || inputs[1].shape() != keys || inputs[2].shape() != keys)
    return gradients_of(parts, dy);
  std::vector<Tensor> operands{inputs[0], inputs[1], inputs[2], dy};
  if (parts.mask.defined()) operands.push_back(parts.mask);
  const Tensor all = make_node(attention_gradient_def, std::move(operands), y->attrs);
  Gradients gradients;
  if (key_heads != heads) {
    gradients = {slice(all, 1, 0, heads), slice(all, 1, heads, heads + key_heads),
                 slice(all, 1, heads + key_heads, all.dim(1))};
  } else {
    const Tensor parts_of_all = apart(all);
    for (int64_t i = 0; i < 3; ++i)
      gradients.push_back(reshape(slice(parts_of_all, 0, i, i + 1), keys));
  }
  gradients.resize(inputs.size());  // the mask has no gradient
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
  double scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(q.value.dim(3))));
  Attrs attrs{{"causal", int64_t{options.causal}}, {"scale", scale}};
  if (options.mask.defined()) {
    Shape scores{q.value.dim(0), q.value.dim(1), q.value.dim(2), k.value.dim(2)};
    WEFT_CHECK(broadcast_shapes(options.mask.shape(), scores, "attention") == scores,
               "[attention] the mask must broadcast to {}. Got {}.", to_string(scores),
               to_string(options.mask.shape()));
    WEFT_CHECK(!is_integer(options.mask.dtype()),
               "[attention] the mask must be bool or floating point. Got {}.",
               name(options.mask.dtype()));
    Shape aligned = Dims::filled(4, 1);  // kernels know masks of the scores' rank
    for (int i = 1; i <= options.mask.rank(); ++i) aligned[4 - i] = options.mask.dim(-i);
    inputs.push_back(reshape(options.mask, aligned));
    attrs = attrs.with({"mask", int64_t{1}});
  }
  WEFT_CHECK(options.causal || (options.window == 0 && !options.start.defined()),
             "[attention] a window or a start needs .causal = true.");
  WEFT_CHECK(options.window >= 0 && options.softcap >= 0,
             "[attention] window and softcap must be at least 0. Got {} and {}.", options.window,
             options.softcap);
  // A window at least as long as all queries hides no key, and is left out.
  const bool all_seen = !options.start.defined() && options.window >= q.value.dim(2);
  if (options.window > 0 && !all_seen) attrs = attrs.with({"window", options.window});
  if (options.softcap > 0) attrs = attrs.with({"softcap", options.softcap});
  if (options.start.defined()) {
    WEFT_CHECK(
        is_integer(options.start.dtype()) && options.start.shape() == (Shape{q.value.dim(0)}),
        "[attention] start is integers [{}]. Got {}.", q.value.dim(0),
        to_string(options.start.type()));
    attrs = attrs.with({"start", int64_t{1}});
    inputs.push_back(options.start);
  }
  Tensor y = make_node(attention_def, std::move(inputs), attrs);
  if (options.dropout == 0) return y;
  Parts parts(*y.node());
  return parts.mix(dropout(parts.probabilities(), options.dropout, options.key));
}
}  // namespace weft
