#include <limits>
#include <utility>

#include "weft/base/error.h"
#include "weft/nn/transformer.h"
#include "weft/tensor/compile.h"

namespace weft::nn {
namespace {
// Checks a mask before it is reshaped, so that the error shows it as the user wrote it.
void check_mask(const Tensor& mask, bool fits, std::string_view what, const std::string& path,
                const std::string& shapes) {
  WEFT_CHECK(fits && !is_integer(mask.dtype()),
             "[attention] \"{}\" takes {} as bool or floating point {}. Got {}.", path, what,
             shapes, to_string(mask.type()));
}

struct Scores {
  int64_t batch, heads, queries, keys;
  DType dtype;
};

// Joins both masks into one for attention(): bool (true: attend) or added; empty without masks.
Tensor joined(const AttentionMasks& masks, const Scores& scores, const std::string& path) {
  Tensor attn = masks.attn_mask, padding = masks.key_padding_mask;
  const auto [batch, heads, queries, keys, dtype] = scores;
  if (attn.defined()) {
    const Shape one{queries, keys}, each{batch * heads, queries, keys};
    check_mask(attn, attn.shape() == one || attn.shape() == each, "attn_mask", path,
               to_string(one) + " or " + to_string(each));
    attn =
        reshape(attn, {attn.rank() == 2 ? 1 : batch, attn.rank() == 2 ? 1 : heads, queries, keys});
  }
  if (padding.defined()) {
    const Shape shape{batch, keys};
    check_mask(padding, padding.shape() == shape, "key_padding_mask", path, to_string(shape));
    padding = reshape(padding, {batch, 1, 1, keys});
  }
  auto is_bool = [](const Tensor& mask) { return !mask.defined() || !is_float(mask.dtype()); };
  if (is_bool(attn) && is_bool(padding)) {
    if (!attn.defined()) return padding.defined() ? !padding : Tensor();
    return padding.defined() ? !(attn | padding) : !attn;
  }
  auto added = [&](const Tensor& mask) {
    if (!is_bool(mask)) return cast(mask, dtype);
    constexpr double never = -std::numeric_limits<double>::infinity();
    return where(mask, scalar(never, dtype), scalar(0, dtype));
  };
  if (!attn.defined()) return added(padding);
  return padding.defined() ? added(attn) + added(padding) : added(attn);
}

// Maps [B, T, heads * width] to [B, heads, T, width].
Tensor split_heads(const Tensor& x, int64_t width) {
  return permute(reshape(x, {x.dim(0), x.dim(1), -1, width}), {0, 2, 1, 3});
}
}  // namespace

MultiheadAttention::MultiheadAttention(Module& parent, std::string name, int64_t embed_dim,
                                       int64_t num_heads, const MultiheadAttentionOptions& options)
    : Module(parent, std::move(name)),
      out_proj(*this, "out_proj", embed_dim, embed_dim,
               {.bias = options.bias, .init = options.out_init.value_or(Init::fan_in(embed_dim))}),
      num_heads_(num_heads),
      num_kv_heads_(options.num_kv_heads == 0 ? num_heads : options.num_kv_heads),
      head_dim_(num_heads > 0 ? embed_dim / num_heads : 0),
      dropout_(options.dropout) {
  WEFT_CHECK(num_heads > 0 && embed_dim % num_heads == 0,
             "[attention] \"{}\" needs heads that divide the width. Got {} heads, width {}.",
             path(), num_heads, embed_dim);
  WEFT_CHECK(num_kv_heads_ > 0 && num_heads % num_kv_heads_ == 0,
             "[attention] \"{}\" needs num_kv_heads that divide the {} heads. Got {}.", path(),
             num_heads, num_kv_heads_);
  WEFT_CHECK(dropout_ >= 0 && dropout_ <= 1,
             "[attention] \"{}\" needs a dropout between 0 and 1. Got {}.", path(), dropout_);
  const int64_t kdim = options.kdim == 0 ? embed_dim : options.kdim;
  const int64_t vdim = options.vdim == 0 ? embed_dim : options.vdim;
  const int64_t kv_width = num_kv_heads_ * head_dim_, rows = embed_dim + 2 * kv_width;
  auto matrix = [&](const std::string& its_name, int64_t out, int64_t in) {
    return parameter(its_name, {out, in}, Init::xavier(in, out));
  };
  if (kdim == embed_dim && vdim == embed_dim) {
    in_proj_weight = matrix("in_proj_weight", rows, embed_dim);
  } else {
    q_proj_weight = matrix("q_proj_weight", embed_dim, embed_dim);
    k_proj_weight = matrix("k_proj_weight", kv_width, kdim);
    v_proj_weight = matrix("v_proj_weight", kv_width, vdim);
  }
  if (options.bias) in_proj_bias = parameter("in_proj_bias", {rows}, Init::constant(0));
}

MultiheadAttention::Projected MultiheadAttention::project(const Tensor& query, const Tensor& key,
                                                          const Tensor& value) const {
  const int64_t width = num_heads_ * head_dim_, kv_width = num_kv_heads_ * head_dim_;
  // Applies rows [from, to) of the input projection to x.
  auto by_rows = [&](const Tensor& x, int64_t from, int64_t to) {
    const Tensor bias =
        in_proj_bias.defined() ? slice(in_proj_bias.value(), 0, from, to) : Tensor();
    if (in_proj_weight.defined())
      return linear(x, slice(in_proj_weight.value(), 0, from, to), bias);
    const Variable& weight = from == 0       ? q_proj_weight
                             : from == width ? k_proj_weight
                                             : v_proj_weight;
    return linear(x, weight.value(), bias);
  };
  // Inputs that are the same tensor are projected by one product.
  const bool packed = in_proj_weight.defined(), same_keys = packed && key.node() == value.node();
  if (same_keys && query.node() == key.node()) {
    const Tensor all = by_rows(query, 0, width + 2 * kv_width);
    std::vector<Tensor> parts = split(all, {width, kv_width, kv_width}, 2);
    return {parts[0], parts[1], parts[2]};
  }
  const Tensor q = by_rows(query, 0, width);
  if (same_keys) {
    std::vector<Tensor> parts = split(by_rows(key, width, width + 2 * kv_width), kv_width, 2);
    return {q, parts[0], parts[1]};
  }
  return {q, by_rows(key, width, width + kv_width),
          by_rows(value, width + kv_width, width + 2 * kv_width)};
}

Tensor MultiheadAttention::operator()(const Arg& query, const Tensor& key, const Tensor& value,
                                      const AttentionMasks& masks) const {
  OriginScope scope(path(), query.where);
  const Tensor& x = query.value;
  const int64_t width = num_heads_ * head_dim_;
  const int64_t kdim = in_proj_weight.defined() ? width : k_proj_weight.shape()[1];
  const int64_t vdim = in_proj_weight.defined() ? width : v_proj_weight.shape()[1];
  WEFT_CHECK(x.defined() && key.defined() && value.defined(), "[attention] \"{}\" takes tensors.",
             path());
  auto fits = [](const Tensor& each, int64_t its_width) {
    return each.rank() == 3 && each.dim(2) == its_width;
  };
  WEFT_CHECK(fits(x, width) && fits(key, kdim) && fits(value, vdim) && key.dim(0) == x.dim(0) &&
                 value.dim(0) == x.dim(0) && value.dim(1) == key.dim(1),
             "[attention] \"{}\" takes query[B, T, {}], key[B, S, {}], value[B, S, {}]. Got {}, {} "
             "and {}.",
             path(), width, kdim, vdim, to_string(x.type()), to_string(key.type()),
             to_string(value.type()));
  const Tensor mask =
      joined(masks, {x.dim(0), num_heads_, x.dim(1), key.dim(1), x.dtype()}, path());
  AttentionOptions options{.causal = masks.is_causal, .mask = mask};
  if (dropout_ > 0 && current_mode() == Mode::train) {
    options.dropout = dropout_;
    options.key = next_random_key();
  }
  const auto [q, k, v] = project(x, key, value);
  const Tensor y = attention(split_heads(q, head_dim_), split_heads(k, head_dim_),
                             split_heads(v, head_dim_), options);
  return out_proj(flatten(permute(y, {0, 2, 1, 3}), 2));
}

}  // namespace weft::nn
