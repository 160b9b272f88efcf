// Computes attention and its gradient by cuDNN's flash engines, in float16 and bfloat16: unmasked
// or causal, for head sizes of up to 128 in multiples of 8.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "weft/backends/cuda/cudnn_graph.h"
#include "weft/backends/gpu/device.h"
#include "weft/device/attention_heads.h"
#include "weft/device/choice.h"

namespace weft::cuda::cudnn {

std::optional<KernelChoice> choose_attention(const Node& node, std::span<const Placement> operands);
// Chooses for attention that also stores attention_logsumexp.
std::optional<KernelChoice> choose_attention_with(std::span<const Value> body,
                                                  std::span<const Value> results,
                                                  std::span<const Placement> operands);
std::unique_ptr<Kernel> compile_attention(gpu::Device& device, const Launch& launch);

struct Heads : AttentionHeads {
  explicit Heads(const Node& node) : AttentionHeads(node), dtype(node.type.dtype) {}
  DType dtype;

  Shape q() const { return {batch, heads, queries, depth}; }
  Shape k() const { return {batch, key_heads, keys, depth}; }
  Shape v() const { return {batch, key_heads, keys, width}; }
  Shape y() const { return {batch, heads, queries, width}; }
  Shape rows() const { return {batch, heads, queries, 1}; }
};

// AttentionStrides are in elements; the innermost is 1, the others are multiples of 8.
struct AttentionStrides {
  Dims q, k, v, y;
};
// The gradient is computed in parts of the batch, because engines store the score matrix of all
// queries and keys. The parts are the fewest that fit and keep the statistics aligned.
struct GradientScratch {
  explicit GradientScratch(const Heads& heads);
  static constexpr size_t engine_bytes = size_t{1} << 20;
  int64_t batch;        // sequences of each part
  size_t dots, engine;  // bytes; `dots` holds each row's dot product of dy and y
  size_t bytes() const { return dots + engine; }
};

// The tensors in memory are q, k, v, y and, with `statistics`, each row's log-sum-exp,
// f32[B, H, T, 1].
Graph attention_graph(const Heads& heads, const AttentionStrides& strides, bool statistics);
// The tensors in memory are q, k, v, y, the statistics, dy, scratch of their size, dq, dk, dv.
Graph attention_gradient_graph(const Heads& heads, const AttentionStrides& strides, const Dims& dy,
                               const Dims& gradient);

}  // namespace weft::cuda::cudnn
