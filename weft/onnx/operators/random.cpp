// Maps ONNX's operators that draw random numbers. weft's generator draws them, from the seed of the
// run: the specification fixes no generator, and a node's own seed is ignored.
#include "weft/onnx/file/types.h"
#include "weft/onnx/operators/operators.h"

namespace weft::onnx {
namespace {
using Tensors = std::vector<Tensor>;

DType drawn_type(const Call& call, DType otherwise) {
  if (!call.has("dtype")) return otherwise;
  const int64_t wanted = call.integer("dtype");
  const ElementType type = call.type_of(wanted);
  if (type.bits > 0) call.refuse("weft has no type {}", onnx_type_name(wanted));
  return type.dtype;
}
// Returns attribute "shape", or the shape of the operand.
Shape drawn_shape(const Call& call) {
  if (call.size() > 0) return call[0].shape();
  const std::vector<int64_t> extents = call.integers("shape");
  if (std::ssize(extents) > max_rank)
    call.refuse("a shape has at most {} axes. Got {}", max_rank, extents.size());
  for (int64_t extent : extents)
    if (extent < 0) call.refuse("a shape has no negative extents. Got {}", extent);
  return Shape(extents);
}
DType default_type(const Call& call) { return call.size() > 0 ? call[0].dtype() : DType::f32; }

Tensors draw_uniform(const Call& call) {
  const double low = call.number("low", 0.0), high = call.number("high", 1.0);
  return {cast(rand(drawn_shape(call)) * (high - low) + low, drawn_type(call, default_type(call)))};
}
Tensors draw_normal(const Call& call) {
  const double mean = call.number("mean", 0.0), scale = call.number("scale", 1.0);
  return {cast(randn(drawn_shape(call)) * scale + mean, drawn_type(call, default_type(call)))};
}
Tensors draw_bernoulli(const Call& call) {
  const Tensor& probability = call[0];
  const Tensor drawn = less(rand(probability.shape()), cast(probability, DType::f32));
  return {cast(drawn, drawn_type(call, probability.dtype()))};
}
// Draws classes [B, samples] from unnormalized log probabilities [B, C]: the argmax after Gumbel
// noise is added (Maddison et al. 2014).
Tensors draw_multinomial(const Call& call) {
  const Tensor& x = call[0];
  const int64_t samples = call.integer("sample_size", 1);
  if (x.rank() != 2 || samples < 1 || samples > int64_t{1} << 24)
    call.refuse("its operand is [B, C]. Got {} for {} samples", to_string(x.type()), samples);
  const Shape shape{x.dim(0), samples, x.dim(1)};
  const Tensor noise = -log(-log(maximum(rand(shape), 1e-20)));
  const Tensor classes = argmax(cast(unsqueeze(x, 1), DType::f32) + noise, 2);
  return {cast(classes, drawn_type(call, DType::i32))};
}

const Operator random_rows[] = {
    {"Bernoulli", "@15 1 -> 1: dtype seed", draw_bernoulli},
    {"Multinomial", "1 -> 1: dtype sample_size seed", draw_multinomial},
    {"RandomNormal", "0 -> 1: dtype mean scale seed shape", draw_normal},
    {"RandomNormalLike", "1 -> 1: dtype mean scale seed", draw_normal},
    {"RandomUniform", "0 -> 1: dtype high low seed shape", draw_uniform},
    {"RandomUniformLike", "1 -> 1: dtype high low seed", draw_uniform},
};
}  // namespace

std::span<const Operator> random_operators() { return random_rows; }

}  // namespace weft::onnx
