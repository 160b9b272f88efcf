// Declares layers under PyTorch's names, with PyTorch's defaults and initial values; B is the
// batch. Every layer is constructed from (parent, name, ...). Parameters have the dtype of the
// enclosing BuildScope (f32 without one); inputs must have the same dtype, and results get it.
// Layers throw Error(usage) with the user's line for extents below 1, a member of the same name, an
// input whose rank, width or dtype does not fit, and options outside the stated range. It is one
// header because it is the list of all layers.
#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/nn/layer.h"
#include "weft/nn/rope.h"

namespace weft::nn {

// ---- linear.cpp

class Lora;  // weft/nn/lora.h

struct LinearOptions {
  bool bias = true;
  std::optional<Init> init = {};  // initial values of the weight, bias 0; empty: PyTorch's for both
  bool transposed = false;        // the weight is [in, out], as GPT-2's published ones are
};
class Linear : public Layer {  // [..., in] -> [..., out]
 public:
  Linear(Module& parent, std::string name, int64_t in_features, int64_t out_features,
         const LinearOptions& options = {});
  ~Linear() override;
  Variable weight;  // [out, in], or [in, out] if transposed; in blocks u8 [out, blocks, bytes]
  Variable bias;    // [out], or empty
  bool transposed() const { return transposed_; }
  const BlockFormat* blocks() const { return blocks_; }  // format of the weight; null: numbers
  int64_t in_features() const { return in_features_; }
  Tensor matrix() const;  // the numbers of the weight, [out, in]
  // Makes forward() add the adapter's result for x to the layer's result; null removes the adapter.
  void set_adapter(std::unique_ptr<Lora> adapter);
  const Lora* adapter() const { return adapter_.get(); }

 protected:
  Tensor forward(const Tensor& x) const override;

 private:
  int64_t in_features_;
  const BlockFormat* blocks_;
  bool transposed_;
  std::unique_ptr<Lora> adapter_;
};

struct EmbeddingOptions {
  Init init = Init::normal(0, 1);
  std::optional<int64_t> padding_idx = {};  // a row in [0, count) that begins as zeros and gets no
                                            // gradient
};
class Embedding : public Layer {  // integers [...] -> [..., dimension]; zeros outside [0, count)
 public:
  Embedding(Module& parent, std::string name, int64_t count, int64_t dimension,
            const EmbeddingOptions& options = {});
  Variable weight;  // [count, dimension]; in blocks u8 [count, blocks, bytes]

  const BlockFormat* blocks() const { return blocks_; }  // format of the weight; null: numbers
  DType dtype() const { return dtype_; }                 // type of the result
  // Returns x [.., dimension] times the transpose of the weight, for heads that are tied to it.
  Tensor transposed_product(const Tensor& x) const;

 protected:
  Tensor forward(const Tensor& indices) const override;

 private:
  const BlockFormat* blocks_;
  DType dtype_;
  std::optional<int64_t> padding_idx_;
};

// ---- conv.cpp

// PerAxis is one number for every spatial axis, or one per axis.
struct PerAxis {
  PerAxis(int value) : values{value} {}
  PerAxis(int64_t value) : values{value} {}
  PerAxis(std::initializer_list<int64_t> list) : values(list) {}
  PerAxis(const Dims& dims) : values(dims) {}
  Dims over(int axes, std::string_view what) const;

  Dims values;
};

struct ConvLayerOptions {
  PerAxis stride = 1, padding = 0, dilation = 1;
  int64_t groups = 1;  // divides in and out
  bool bias = true;
  std::optional<Init> init = {};  // initial values of the weight, bias 0; empty: PyTorch's for both
};
// ConvLayer holds the parameters of a convolution, or of a transposed one.
class ConvLayer : public Layer {
 public:
  Variable weight;  // Conv: [out, in / groups, kernel...]; ConvTranspose: [in, out / groups, ...]
  Variable bias;    // [out], or empty

 protected:
  ConvLayer(Module& parent, std::string name, const Shape& shape, int64_t out_channels,
            bool has_bias, const std::optional<Init>& init);
};
class Conv : public ConvLayer {
 protected:
  Conv(Module& parent, std::string name, int axes, int64_t in_channels, int64_t out_channels,
       const PerAxis& kernel_size, const ConvLayerOptions& options);
  Tensor forward(const Tensor& x) const override;

 private:
  ConvOptions options_;
};
class Conv1d : public Conv {  // [B, in, L] -> [B, out, L']
 public:
  Conv1d(Module& parent, std::string name, int64_t in_channels, int64_t out_channels,
         const PerAxis& kernel_size, const ConvLayerOptions& options = {})
      : Conv(parent, std::move(name), 1, in_channels, out_channels, kernel_size, options) {}
};
class Conv2d : public Conv {  // [B, in, H, W] -> [B, out, H', W']
 public:
  Conv2d(Module& parent, std::string name, int64_t in_channels, int64_t out_channels,
         const PerAxis& kernel_size, const ConvLayerOptions& options = {})
      : Conv(parent, std::move(name), 2, in_channels, out_channels, kernel_size, options) {}
};
class Conv3d : public Conv {  // [B, in, D, H, W] -> [B, out, D', H', W']
 public:
  Conv3d(Module& parent, std::string name, int64_t in_channels, int64_t out_channels,
         const PerAxis& kernel_size, const ConvLayerOptions& options = {})
      : Conv(parent, std::move(name), 3, in_channels, out_channels, kernel_size, options) {}
};

struct ConvTransposeLayerOptions {
  PerAxis stride = 1, padding = 0, output_padding = 0, dilation = 1;
  int64_t groups = 1;  // divides in and out
  bool bias = true;
  std::optional<Init> init = {};  // initial values of the weight, bias 0; empty: PyTorch's for both
};
class ConvTranspose : public ConvLayer {
 protected:
  ConvTranspose(Module& parent, std::string name, int axes, int64_t in_channels,
                int64_t out_channels, const PerAxis& kernel_size,
                const ConvTransposeLayerOptions& options);
  Tensor forward(const Tensor& x) const override;

 private:
  ConvTransposeOptions options_;
};
class ConvTranspose1d : public ConvTranspose {  // [B, in, L] -> [B, out, L']
 public:
  ConvTranspose1d(Module& parent, std::string name, int64_t in_channels, int64_t out_channels,
                  const PerAxis& kernel_size, const ConvTransposeLayerOptions& options = {})
      : ConvTranspose(parent, std::move(name), 1, in_channels, out_channels, kernel_size, options) {
  }
};
class ConvTranspose2d : public ConvTranspose {  // [B, in, H, W] -> [B, out, H', W']
 public:
  ConvTranspose2d(Module& parent, std::string name, int64_t in_channels, int64_t out_channels,
                  const PerAxis& kernel_size, const ConvTransposeLayerOptions& options = {})
      : ConvTranspose(parent, std::move(name), 2, in_channels, out_channels, kernel_size, options) {
  }
};

class ConvTranspose3d : public ConvTranspose {  // [B, in, D, H, W] -> [B, out, D', H', W']
 public:
  ConvTranspose3d(Module& parent, std::string name, int64_t in_channels, int64_t out_channels,
                  const PerAxis& kernel_size, const ConvTransposeLayerOptions& options = {})
      : ConvTranspose(parent, std::move(name), 3, in_channels, out_channels, kernel_size, options) {
  }
};

struct PoolLayerOptions {
  std::optional<PerAxis> stride = {};  // empty: the kernel
  PerAxis padding = 0;
  bool count_include_pad = true;  // average only
};
class Pool : public Layer {
 protected:
  Pool(Module& parent, std::string name, int axes, const PerAxis& kernel_size,
       const PoolLayerOptions& options);
  void check_axes(const Tensor& x) const;
  PoolOptions options_;
};
class MaxPool : public Pool {
 protected:
  using Pool::Pool;
  Tensor forward(const Tensor& x) const override;
};
class AvgPool : public Pool {
 protected:
  using Pool::Pool;
  Tensor forward(const Tensor& x) const override;
};
class MaxPool2d : public MaxPool {  // [B, C, H, W] -> [B, C, H', W']
 public:
  MaxPool2d(Module& parent, std::string name, const PerAxis& kernel_size,
            const PoolLayerOptions& options = {})
      : MaxPool(parent, std::move(name), 2, kernel_size, options) {}
};
class MaxPool3d : public MaxPool {  // [B, C, D, H, W] -> [B, C, D', H', W']
 public:
  MaxPool3d(Module& parent, std::string name, const PerAxis& kernel_size,
            const PoolLayerOptions& options = {})
      : MaxPool(parent, std::move(name), 3, kernel_size, options) {}
};
class AvgPool2d : public AvgPool {  // [B, C, H, W] -> [B, C, H', W']
 public:
  AvgPool2d(Module& parent, std::string name, const PerAxis& kernel_size,
            const PoolLayerOptions& options = {})
      : AvgPool(parent, std::move(name), 2, kernel_size, options) {}
};
class AvgPool3d : public AvgPool {  // [B, C, D, H, W] -> [B, C, D', H', W']
 public:
  AvgPool3d(Module& parent, std::string name, const PerAxis& kernel_size,
            const PoolLayerOptions& options = {})
      : AvgPool(parent, std::move(name), 3, kernel_size, options) {}
};
class GlobalAvgPool2d : public Layer {  // [B, C, H, W] -> [B, C, 1, 1]
 public:
  using Layer::Layer;

 protected:
  Tensor forward(const Tensor& x) const override;
};

// ---- norm.cpp

struct NormOptions {
  double eps = 1e-5;
  bool bias = true;
};
class LayerNorm : public Layer {  // over the last axis
 public:
  LayerNorm(Module& parent, std::string name, int64_t features, const NormOptions& options = {});
  Variable weight, bias;  // [features]; the bias may be empty

 protected:
  Tensor forward(const Tensor& x) const override;

 private:
  double eps_;
};
struct RMSNormOptions {
  double eps = 1e-6;
  // Rows are scaled by weight + offset; the weight begins at 1 - offset. Gemma's is 1.
  double offset = 0;
};
class RMSNorm : public Layer {  // over the last axis
 public:
  RMSNorm(Module& parent, std::string name, int64_t features, const RMSNormOptions& options = {});
  Variable weight;  // [features]

 protected:
  Tensor forward(const Tensor& x) const override;

 private:
  RMSNormOptions options_;
};
class GroupNorm : public Layer {  // [B, C, ...], over groups of channels; groups divides C
 public:
  GroupNorm(Module& parent, std::string name, int64_t groups, int64_t channels, double eps = 1e-5);
  Variable weight, bias;  // [channels]

 protected:
  Tensor forward(const Tensor& x) const override;

 private:
  int64_t groups_;
  double eps_;
};
struct BatchNormOptions {
  double eps = 1e-5;
  double momentum = 0.1;  // weight of the new value: running += momentum * (batch - running)
};
// Normalizes [B, C, ...]: in train mode by the batch's statistics, which update the running
// statistics (variance over n - 1), in eval mode by the running statistics.
class BatchNorm : public Layer {
 public:
  BatchNorm(Module& parent, std::string name, int64_t channels,
            const BatchNormOptions& options = {});
  Variable weight, bias, running_mean, running_var;  // [channels]

 protected:
  Tensor forward(const Tensor& x) const override;

 private:
  BatchNormOptions options_;
};

// ---- activation.cpp

class Dropout : public Layer {  // off in eval mode; probability in [0, 1]
 public:
  Dropout(Module& parent, std::string name, double probability = 0.5);

 protected:
  Tensor forward(const Tensor& x) const override;

 private:
  double probability_;
};
class Flatten : public Layer {  // [B, ...] -> [B, rest]
 public:
  using Layer::Layer;

 protected:
  Tensor forward(const Tensor& x) const override;
};

using ActivationFunction = Tensor (*)(const Tensor&);
// Returns "relu", "gelu", "gelu_tanh", ... or, by its name in Hugging Face, "gelu_new", ... Throws
// Error(usage) that begins with `owner` and lists the known names.
ActivationFunction activation_function(std::string_view name, std::string_view owner);
std::vector<std::string_view> activation_names();
class Activation : public Layer {
 public:
  Activation(Module& parent, std::string name, std::string_view function);

 protected:
  Tensor forward(const Tensor& x) const override;

 private:
  ActivationFunction function_;
};

// ---- recurrent.cpp

struct RecurrentOptions {
  int64_t num_layers = 1;
  bool bias = true;
  double dropout = 0;  // between the layers
  bool bidirectional = false;
};
// RecurrentInputs has the optional inputs of a recurrent layer besides the sequence.
struct RecurrentInputs {
  Tensor h = {},
         c = {};        // states before the first step, shaped as RecurrentResult::h; empty: zeros
  Tensor lengths = {};  // integers [B]: time steps of each sequence, from 0 to T; empty: all T
};
// RecurrentResult is the result of a recurrent layer. h and c (LSTM only) are the states after the
// last time step of each sequence, [num_layers * directions, B, H]. Time steps beyond a sequence's
// length change no state, and y is 0 there, as for PyTorch's packed sequences.
struct RecurrentResult {
  Tensor y;  // [B, T, H * directions]
  Tensor h, c;
};
// Recurrent maps [B, T, in] to [B, T, H * directions] with PyTorch's equations, parameter names and
// initial values. Each layer reads both directions of the layer below, forward first.
class Recurrent : public Layer {
 public:
  ~Recurrent() override;
  RecurrentResult run(const Arg& x, const RecurrentInputs& inputs = {}) const;

 protected:
  Recurrent(Module& parent, std::string name, int gates, int64_t input_size, int64_t hidden_size,
            const RecurrentOptions& options);
  Tensor forward(const Tensor& x) const override { return run(x).y; }

 private:
  struct Weights {
    Variable input, state, input_bias, state_bias;  // biases may be empty
  };
  struct States {
    Tensor h, c;
  };
  // Runs one layer in one direction, x[T, B, in] -> [T, B, H].
  States layer(const Tensor& x, const Weights& weights, const States& before) const;
  RecurrentResult over_time(const Tensor& x, const RecurrentInputs& inputs) const;

  int gates_;  // 4: LSTM, 3: GRU
  int64_t hidden_size_;
  int directions_;
  std::vector<Weights> weights_;  // one per layer and direction
  Dropout dropout_;
};
class LSTM : public Recurrent {
 public:
  LSTM(Module& parent, std::string name, int64_t input_size, int64_t hidden_size,
       const RecurrentOptions& options = {})
      : Recurrent(parent, std::move(name), 4, input_size, hidden_size, options) {}
};
class GRU : public Recurrent {
 public:
  GRU(Module& parent, std::string name, int64_t input_size, int64_t hidden_size,
      const RecurrentOptions& options = {})
      : Recurrent(parent, std::move(name), 3, input_size, hidden_size, options) {}
};

// ---- attention.cpp

// SelfAttention projects to q, k and v by one linear layer, as GPT does. MultiheadAttention in
// weft/nn/transformer.h is PyTorch's, with masks and cross-attention.
struct SelfAttentionOptions {
  bool causal = false;
  bool bias = true;
  double dropout = 0;  // dropout rate of the result, before it joins the residual stream
  std::optional<Init> init = {}, out_init = {};  // for the qkv and out weights, as in LinearOptions
  std::string qkv_name = "qkv", out_name = "out";
};
// SelfAttention maps [B, T, width] to the same shape. The qkv weight [3 width, width] has rows for
// q, k, v, each of `heads` contiguous parts; heads divides width.
class SelfAttention : public Layer {
 public:
  SelfAttention(Module& parent, std::string name, int64_t width, int64_t heads,
                const SelfAttentionOptions& options = {});
  Linear qkv, out;

 protected:
  Tensor forward(const Tensor& x) const override;

 private:
  Dropout dropout_;
  int64_t heads_;
  bool causal_;
};

}  // namespace weft::nn
