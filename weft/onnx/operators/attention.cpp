// Maps ONNX's attention, rotary positions, and the state-space layers beside them.
#include <cmath>
#include <limits>

#include "weft/onnx/file/types.h"
#include "weft/onnx/net/interpreter.h"
#include "weft/onnx/operators/operators.h"

namespace weft::onnx {
namespace {
using Tensors = std::vector<Tensor>;

// Splits x[B, T, heads D] into [B, heads, T, D].
Tensor split_heads(const Call& call, const Tensor& x, int64_t heads) {
  if (x.rank() != 3 || heads < 1 || x.dim(2) % heads != 0)
    call.refuse("{} does not split into {} heads", to_string(x.type()), heads);
  return transpose(reshape(x, {x.dim(0), x.dim(1), heads, x.dim(2) / heads}), 1, 2);
}
Tensor join_heads(const Tensor& x) {
  return reshape(transpose(x, 1, 2), {x.dim(0), x.dim(2), x.dim(1) * x.dim(3)});
}
// Repeats each head of keys or values for the query heads that share it.
Tensor shared_heads(const Call& call, const Tensor& x, int64_t query_heads) {
  if (x.dim(1) == query_heads) return x;
  if (x.dim(1) < 1 || query_heads % x.dim(1) != 0)
    call.refuse("{} query heads do not share {} heads of keys", query_heads, x.dim(1));
  return repeat(x, query_heads / x.dim(1), 1);
}

// ---- attention

// Returns the node's mask, padded to the S keys of the scores [B, H, T, S].
Tensor mask_of(const Call& call, int64_t keys) {
  if (!call.has(3)) return {};
  Tensor mask = call[3];
  const bool is_bool = mask.dtype() == DType::boolean;
  if (mask.dim(-1) < keys) {
    Dims high = Dims::filled(mask.rank(), 0);
    high[mask.rank() - 1] = keys - mask.dim(-1);
    if (is_bool)
      mask = cast(pad(cast(mask, DType::i32), Dims::filled(mask.rank(), 0), high), DType::boolean);
    else
      mask = pad(mask, Dims::filled(mask.rank(), 0), high, -infinity);
  }
  return mask;
}

struct Heads {
  Tensor q, k, v, present_k, present_v;
  bool were_joined = false;
};
Heads heads_of(const Call& call) {
  Heads heads{.q = call[0], .k = call[1], .v = call[2]};
  if (heads.q.rank() == 3) {
    heads.were_joined = true;
    heads.q = split_heads(call, heads.q, call.integer("q_num_heads"));
    heads.k = split_heads(call, heads.k, call.integer("kv_num_heads"));
    heads.v = split_heads(call, heads.v, call.integer("kv_num_heads"));
  }
  if (call.has(4)) heads.k = concat({call[4], heads.k}, 2);
  if (call.has(5)) heads.v = concat({call[5], heads.v}, 2);
  heads.present_k = heads.k;
  heads.present_v = heads.v;
  return heads;
}

// Returns which keys each query attends to, by position: [B or 1, 1, T, S]; empty: all.
Tensor visible_keys(const Call& call, int64_t queries, int64_t keys) {
  const bool causal = call.flag("is_causal");
  const int64_t left = call.integer("left_window_size", -1),
                right = call.integer("right_window_size", -1);
  const Shape shape{1, 1, queries, keys};
  Tensor visible;
  const auto also = [&](const Tensor& condition) {
    visible = visible.defined() ? logical_and(visible, condition) : condition;
  };
  const Tensor key = iota(shape, 3);
  Tensor lengths;  // keys of each row before its padding
  if (call.has(6)) lengths = reshape(cast(call[6], DType::i64), {call[6].elements(), 1, 1, 1});
  if (causal || left >= 0 || right >= 0) {
    // The last query is at the last key: after the past keys, or at the row's last key before
    // padding.
    Tensor query = iota(shape, 2);
    if (call.has(4))
      query = query + call[4].dim(2);
    else if (lengths.defined())
      query = query + (lengths - queries);
    if (causal) also(less_equal(key, query));
    if (left >= 0) also(less_equal(query - key, left));
    if (right >= 0) also(less_equal(key - query, right));
  }
  if (lengths.defined()) also(less(key, lengths));
  return visible;
}

Tensors attention_operator(const Call& call) {
  const Heads heads = heads_of(call);
  const DType dtype = heads.q.dtype();
  const int64_t queries = heads.q.dim(2), keys = heads.k.dim(2);
  const double scale = call.number("scale", 1 / std::sqrt(static_cast<double>(heads.q.dim(3))));
  const double softcap = call.number("softcap", 0.0);
  const bool is_plain = !call.wants(3) && !call.has(3) && !call.has(4) && !call.has(6) &&
                        call.integer("left_window_size", -1) < 0 &&
                        call.integer("right_window_size", -1) < 0;
  if (is_plain) {
    const Tensor y =
        attention(heads.q, heads.k, heads.v,
                  {.causal = call.flag("is_causal"), .scale = scale, .softcap = softcap});
    return {heads.were_joined ? join_heads(y) : y, heads.present_k, heads.present_v};
  }
  // Queries and keys are each multiplied by the root of the scale.
  const Tensor root = scalar(std::sqrt(scale), dtype);
  const Tensor k = shared_heads(call, heads.k, heads.q.dim(1));
  const Tensor v = shared_heads(call, heads.v, heads.q.dim(1));
  Tensor scores = matmul(heads.q * root, transpose(k * root));
  Tensor observed = scores;
  const int64_t mode = call.integer("qk_matmul_output_mode", 0);
  if (softcap > 0) {
    scores = tanh(scores / softcap) * softcap;
    if (mode == 1) observed = scores;
  }
  // All masks combined, in the type of the scores. A row that is all -inf hides all keys.
  Tensor bias;
  if (Tensor mask = mask_of(call, keys); mask.defined())
    bias = mask.dtype() == DType::boolean ? select(mask, scalar(0, dtype), scalar(-infinity, dtype))
                                          : mask;
  if (const Tensor visible = visible_keys(call, queries, keys); visible.defined()) {
    const Tensor hidden = scalar(-infinity, dtype);
    bias =
        bias.defined() ? select(visible, bias, hidden) : select(visible, scalar(0, dtype), hidden);
  }
  if (bias.defined()) scores = scores + bias;
  if (mode == 2) observed = scores;
  Tensor wide = scores;
  if (call.has("softmax_precision"))
    wide = cast(scores, call.type_of(call.integer("softmax_precision")).dtype);
  Tensor weights = softmax(wide, -1);
  if (bias.defined()) {
    const Tensor all_hidden = equal(max(bias, {.axes = {-1}, .keepdim = true}), -infinity);
    weights = select(all_hidden, zeros_like(weights), weights);
  }
  if (mode == 3) observed = weights;
  const Tensor y = matmul(cast(weights, dtype), v);
  return {heads.were_joined ? join_heads(y) : y, heads.present_k, heads.present_v,
          cast(observed, dtype)};
}

// The node's own graphs score_mod and prob_mod map the scores and the weights.
Tensors flex_attention(const Call& call) {
  const Tensor& q = call[0];
  const Tensor k = shared_heads(call, call[1], q.dim(1)), v = shared_heads(call, call[2], q.dim(1));
  const double scale = call.number("scale", 1 / std::sqrt(static_cast<double>(q.dim(3))));
  const Tensor root = scalar(std::sqrt(scale), q.dtype());
  DType precision = computes_wider(q.dtype()) ? DType::f32 : q.dtype();
  if (call.has("softmax_precision"))
    precision = call.type_of(call.integer("softmax_precision")).dtype;
  const auto modified = [&](const char* attribute, const Tensor& x) {
    if (!call.has(attribute)) return x;
    return cast(call.interpreter().run_inside(call.graph(attribute), {x}, call)[0], precision);
  };
  const Tensor scores = cast(matmul(q * root, transpose(k * root)), precision);
  const Tensor weights = modified("prob_mod", softmax(modified("score_mod", scores), -1));
  return {cast(matmul(weights, cast(v, precision)), v.dtype())};
}

// ---- rotary positions (Su et al. 2021)

Tensors rotary_embedding(const Call& call) {
  const Tensor& input = call[0];
  const bool is_split = input.rank() == 4;
  // [B, T, heads, D]
  Tensor x;
  if (is_split) {
    x = transpose(input, 1, 2);
  } else {
    const int64_t heads = call.integer("num_heads", 0);
    if (input.rank() != 3 || heads < 1 || input.dim(2) % heads != 0)
      call.refuse("{} does not split into {} heads", to_string(input.type()), heads);
    x = reshape(input, {input.dim(0), input.dim(1), heads, input.dim(2) / heads});
  }
  const int64_t given = call.integer("rotary_embedding_dim", 0);
  const int64_t rotated = given == 0 ? x.dim(3) : given;
  if (rotated % 2 != 0 || rotated > x.dim(3))
    call.refuse("it rotates {} of {} numbers", rotated, x.dim(3));
  const auto cache = [&](size_t operand) {
    const Tensor angles = call.has(3) ? gather(call[operand], call[3], 0) : call[operand];
    return unsqueeze(angles, 2);
  };
  const Tensor cosine = cache(1), sine = cache(2);
  const Tensor part = slice(x, 3, 0, rotated);
  const bool interleaved = call.flag("interleaved");
  const Tensor first = interleaved ? slice(part, 3, 0, rotated, 2) : slice(part, 3, 0, rotated / 2);
  const Tensor second =
      interleaved ? slice(part, 3, 1, rotated, 2) : slice(part, 3, rotated / 2, rotated);
  const Tensor real = cosine * first - sine * second, imaginary = sine * first + cosine * second;
  Tensor y = interleaved ? reshape(stack({real, imaginary}, 4), part.shape())
                         : concat({real, imaginary}, 3);
  if (rotated < x.dim(3)) y = concat({y, slice(x, 3, rotated, x.dim(3))}, 3);
  return {is_split ? transpose(y, 1, 2) : reshape(y, input.shape())};
}

// ---- layers with a state

// Convolves x[B, C, T] by channel; operand `past_state` holds the elements before the first.
Tensors causal_conv_with_state(const Call& call) {
  const Tensor &x = call[0], &weight = call[1];
  if (x.rank() != 3 || weight.rank() != 3)
    call.refuse("its operands have three axes. Got {} and {}", to_string(x.type()),
                to_string(weight.type()));
  const int64_t before = weight.dim(2) - 1;
  Dims low{0, 0, before};
  const Tensor whole = call.has(3) ? concat({call[3], x}, 2) : pad(x, low, {0, 0, 0});
  Tensor y = conv(whole, weight, call.optional(2), {.groups = x.dim(1)});
  const std::string activation = call.text("activation", "none");
  if (activation == "silu" || activation == "swish")
    y = silu(y);
  else if (activation != "none")
    call.refuse("its activation '{}' is not known", activation);
  return {y, slice(whole, 2, whole.dim(2) - before, whole.dim(2))};
}

// Computes the recurrent form of linear attention: a state [D, E] by head is decayed, corrected
// (delta rule, Schlag et al. 2021), and read by the queries, step by step.
Tensors linear_attention(const Call& call) {
  const int64_t query_heads = call.integer("q_num_heads"), heads = call.integer("kv_num_heads");
  const std::string rule = call.text("update_rule", "gated_delta");
  const bool gates = rule == "gated" || rule == "gated_delta";
  const bool corrects = rule == "delta" || rule == "gated_delta";
  if (!gates && !corrects && rule != "linear")
    call.refuse("its update_rule '{}' is not known", rule);
  if (gates != call.has(4) || corrects != call.has(5))
    call.refuse("its update_rule '{}' does not go with its operands decay and beta", rule);
  const DType dtype = call[0].dtype();
  const auto wide = [](const Tensor& x) { return cast(x, DType::f32); };
  const Tensor q = wide(split_heads(call, call[0], query_heads));
  const Tensor k = wide(split_heads(call, call[1], heads)),
               v = wide(split_heads(call, call[2], heads));
  const int64_t batch = q.dim(0), steps = q.dim(2), keys = k.dim(3), values = v.dim(3);
  const auto by_step = [&](size_t operand) {  // [B, heads or 1, T, 1 or D]
    const Tensor& x = call[operand];
    if (x.dim(2) == heads * keys && keys > 1) return wide(split_heads(call, x, heads));
    return wide(unsqueeze(transpose(x, 1, 2), 3));
  };
  const Tensor decay = gates ? by_step(4) : Tensor(), beta = corrects ? by_step(5) : Tensor();
  Tensor state = call.has(3) ? wide(call[3]) : zeros({batch, heads, keys, values}, DType::f32);
  const double given = call.number("scale", 0.0);
  const double scale = given == 0 ? 1 / std::sqrt(static_cast<double>(keys)) : given;
  const auto at = [](const Tensor& x, int64_t t) { return slice(x, 2, t, t + 1); };
  std::vector<Tensor> outputs;
  for (int64_t t = 0; t < steps; ++t) {
    const Tensor key = transpose(at(k, t));  // [B, heads, D, 1]
    Tensor value = at(v, t);                 // [B, heads, 1, E]
    if (gates) state = state * transpose(exp(at(decay, t)));
    if (corrects) value = at(beta, t) * (value - sum(state * key, {.axes = {2}, .keepdim = true}));
    state = state + key * value;
    const Tensor read = shared_heads(call, state, query_heads);
    outputs.push_back(matmul(at(q, t), read) * scale);
  }
  const Tensor y = join_heads(concat(outputs, 2));
  return {cast(y, dtype), cast(state, call.has(3) ? call[3].dtype() : dtype)};
}

const Operator attention_rows[] = {
    {"Attention",
     "@23 6 7@24 -> 4: is_causal kv_num_heads left_window_size@25 q_num_heads "
     "qk_matmul_output_mode right_window_size@25 scale softcap softmax_precision",
     attention_operator},
    {"CausalConvWithState", "@27 4 -> 2: activation", causal_conv_with_state},
    {"FlexAttention", "3 -> 1: prob_mod scale score_mod softmax_precision", flex_attention,
     "ai.onnx.preview"},
    {"LinearAttention", "@27 6 -> 2: chunk_size kv_num_heads q_num_heads scale update_rule",
     linear_attention},
    {"RotaryEmbedding", "@23 4 -> 1: interleaved num_heads rotary_embedding_dim", rotary_embedding},
};
}  // namespace

std::span<const Operator> attention_operators() { return attention_rows; }

}  // namespace weft::onnx
