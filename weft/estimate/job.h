// Describes a job to estimates: the shape of a model, a step of training or of generation, and how
// devices share it. Nothing of it is a graph: a shape of 126 layers takes as long as one of two.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weft/estimate/device.h"

namespace weft::estimate {

// A ConvolutionShape is one convolution of a network, by images of `size` x `size` that it makes.
struct ConvolutionShape {
  int64_t size = 0, inputs = 0, outputs = 0, kernel = 1, count = 1;
};

// A Shape is what a model's time and memory depend on.
struct Shape {
  std::string name;
  int64_t layers = 0, hidden = 0;
  int64_t heads = 0, kv_heads = 0, head_width = 0;
  int64_t ffn = 0;
  bool gated = false;  // the MLP has a gate beside its up projection
  int64_t vocabulary = 0, positions = 0;
  bool tied = false;  // the head shares the embedding's weight
  bool causal = true;
  double scored = 1;  // the share of positions that the head reads (BERT's masked ones: 0.15)
  // A mixture of experts: `dense_layers` come first, without experts.
  int64_t experts = 0, experts_per_token = 0, expert_ffn = 0, shared_ffn = 0, dense_layers = 0;
  std::vector<ConvolutionShape> convolutions;  // of a convolutional network, which has no layers

  int64_t query_width() const { return heads * head_width; }
  int64_t qkv_width() const { return (heads + 2 * kv_heads) * head_width; }
  double attention_parameters() const;         // of one layer
  double mlp_parameters(int64_t width) const;  // of an MLP, an expert or the shared expert
  double parameters() const;                   // of the whole model
  double routed_layers() const;                // layers that have experts
};

enum class Recompute : uint8_t { none, attention, products, full };
std::string_view name(Recompute recompute);

enum class Method : uint8_t { full, lora };

// StateBytes are what a device keeps for each parameter that it updates. Weights that a method
// freezes keep `frozen` instead.
struct StateBytes {
  double weights = 4, gradients = 4, master = 0, moments = 8;
  double frozen = 2;
};

// A Layout says how devices share a step. Their number is the product of all but `interleave`.
struct Layout {
  int64_t replicas = 1;    // data parallel, each with whole weights
  int64_t shards = 1;      // data parallel with parts of weights, gathered ahead of use
  int zero = 0;            // what replicas divide among them: 1 state, 2 gradients, 3 weights
  int64_t tensor = 1;      // rows and columns of products
  int64_t pipeline = 1;    // stages of layers
  int64_t interleave = 1;  // chunks of layers that each stage has
  int64_t context = 1;     // parts of a sequence
  int64_t expert = 1;      // parts of the experts; divides replicas * shards * context
  int per_host = 8;

  int64_t data() const { return replicas * shards; }
};

struct TrainingJob {
  Shape shape;
  int64_t sequence = 0;      // tokens
  double micro_batch = 1;    // samples of one device at once
  int64_t accumulation = 1;  // micro-batches of a step
  Number products = Number::bf16;
  double weight_bytes = 2;      // of an element that products read and gathers carry
  double gradient_bytes = 2;    // of an element that sums carry
  double optimizer_bytes = 30;  // that an update reads and writes for each element
  Recompute recompute = Recompute::none;
  Method method = Method::full;
  StateBytes state;
  int64_t adapter_rank = 8;           // of lora
  bool adapts_mlp = true;             // lora has adapters beside the products of the MLP, too
  bool updates_in_backward = false;   // each gradient is gone before the next is there
  bool tiles_loss = false;            // logits are made, and are gone, in tiles
  bool offloads_activations = false;  // those between layers are in the host's memory
};

// Throws Error (usage) where a layout does not divide a shape.
void check(const Shape& shape, const Layout& layout);
// Return the parameters that a device has in one layer, or in its stage, unless data parallel
// devices divide them.
double layer_parameters(const Shape& shape, const Layout& layout, bool routed);
double stage_parameters(const Shape& shape, const Layout& layout);  // without embedding and head
double adapter_parameters(const TrainingJob& job, const Layout& layout);

}  // namespace weft::estimate
