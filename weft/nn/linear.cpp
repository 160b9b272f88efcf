#include <algorithm>
#include <cstddef>
#include <span>

#include "weft/base/numbers/block_format.h"
#include "weft/nn/block_activations.h"
#include "weft/nn/layers.h"
#include "weft/nn/lora.h"
#include "weft/tensor/blocks.h"

namespace weft::nn {

Linear::Linear(Module& parent, std::string name, int64_t in_features, int64_t out_features,
               const LinearOptions& options)
    : Layer(parent, std::move(name)),
      in_features_(in_features),
      blocks_(weight_blocks(*this, in_features)),
      transposed_(options.transposed && blocks_ == nullptr) {
  if (blocks_ != nullptr)
    weight = stored("weight",
                    {DType::u8, {out_features, in_features / blocks_->numbers, blocks_->bytes}});
  else
    weight = parameter(
        "weight", transposed_ ? Shape{in_features, out_features} : Shape{out_features, in_features},
        options.init.value_or(Init::fan_in(in_features)));
  if (options.bias)
    bias = parameter("bias", {out_features},
                     options.init ? Init::constant(0) : Init::fan_in(in_features));
}

Linear::~Linear() = default;

Tensor Linear::matrix() const {
  if (blocks_ != nullptr) return dequantize_blocks(weight.value(), blocks_->name);
  return transposed_ ? transpose(weight.value()) : weight.value();
}

Tensor Linear::forward(const Tensor& x) const {
  WEFT_CHECK(x.rank() > 0 && x.dim(-1) == in_features_,
             "[linear] \"{}\" takes {} features in the last axis. Got {}.", path(), in_features_,
             to_string(x.type()));
  Tensor y;
  if (blocks_ == nullptr)
    y = linear(x, matrix(), bias.defined() ? bias.value() : Tensor());
  else
    y = matmul_blocks(x, weight.value(), blocks_->name,
                      {.activations = BlockActivations::current()});
  if (blocks_ != nullptr && bias.defined()) y = y + bias.value();
  return adapter_ == nullptr ? y : adapter_->adapted(*this, x, y);
}

void Linear::set_adapter(std::unique_ptr<Lora> adapter) { adapter_ = std::move(adapter); }

Embedding::Embedding(Module& parent, std::string name, int64_t count, int64_t dimension,
                     const EmbeddingOptions& options)
    : Layer(parent, std::move(name)),
      blocks_(weight_blocks(*this, dimension)),
      dtype_(parameter_dtype()),
      padding_idx_(options.padding_idx) {
  if (blocks_ != nullptr) {
    WEFT_CHECK(!padding_idx_, "[embedding] \"{}\" has a padding_idx, and cannot be in blocks.",
               path());
    weight = stored("weight", {DType::u8, {count, dimension / blocks_->numbers, blocks_->bytes}});
    return;
  }
  weight = parameter("weight", {count, dimension}, options.init);
  if (!padding_idx_) return;
  WEFT_CHECK(*padding_idx_ >= 0 && *padding_idx_ < count,
             "[embedding] \"{}\" needs a padding_idx from 0 to {}. Got {}.", path(), count - 1,
             *padding_idx_);
  const std::span<std::byte> bytes = weight.bytes();
  const size_t row = bytes.size() / static_cast<size_t>(count);
  std::ranges::fill(bytes.subspan(static_cast<size_t>(*padding_idx_) * row, row), std::byte{0});
}

Tensor Embedding::forward(const Tensor& indices) const {
  WEFT_CHECK(is_integer(indices.dtype()), "[embedding] \"{}\" takes integers. Got {}.", path(),
             to_string(indices.type()));
  if (blocks_ != nullptr)
    return dequantize_blocks(gather(weight.value(), indices, 0), blocks_->name, dtype_);
  if (!padding_idx_) return embedding(indices, weight.value());
  // Looks padding up at index -1, so that it gets no gradient, and reads the padding row apart,
  // because a file may have filled it with values other than 0.
  const Tensor padded = indices == *padding_idx_;
  const Tensor row = stop_gradient(slice(weight.value(), 0, *padding_idx_, *padding_idx_ + 1));
  const Tensor others = embedding(where(padded, -1, cast(indices, DType::i64)), weight.value());
  return where(unsqueeze(padded, -1), reshape(row, {-1}), others);
}

Tensor Embedding::transposed_product(const Tensor& x) const {
  if (blocks_ != nullptr)
    return matmul_blocks(x, weight.value(), blocks_->name,
                         {.activations = BlockActivations::current()});
  return linear(x, weight.value());
}

}  // namespace weft::nn
