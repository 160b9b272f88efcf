#include "weft/nn/moe.h"

#include <algorithm>
#include <iterator>

#include "weft/base/numbers/block_format.h"
#include "weft/nn/block_activations.h"
#include "weft/tensor/blocks.h"
#include "weft/tensor/wide.h"

namespace weft::nn {
namespace {
// Routing has the token of each of the T k rows, which are sorted by expert.
struct Routing {
  Tensor token;   // i64 [T k]
  Tensor weight;  // [T k, 1], factor of the row in its token's sum
  Tensor counts;  // i64 [E], rows of each expert
};

// Routes by scores [T, E]. Sorting is stable: an expert's rows have the order of their tokens.
Routing route(const Tensor& scores, int64_t k, bool norm_topk_prob) {
  const int64_t rows = scores.dim(0) * k;
  TopK top = topk(scores, k);
  if (norm_topk_prob)
    top.values = in_wide(top.values, [](const Tensor& values) {
      return values / sum(values, {.axes = {-1}, .keepdim = true});
    });
  const Tensor expert = reshape(top.indices, {rows}), order = argsort(expert);
  return {.token = floor_divide(order, k),
          .weight = gather(reshape(top.values, {rows, 1}), order),
          .counts = sum(one_hot(expert, scores.dim(1), DType::i64), {.axes = {0}})};
}
}  // namespace

SparseMoe::Experts::Experts(Module& parent, int64_t hidden_size, int64_t intermediate_size,
                            const SparseMoeOptions& options)
    : Module(parent, "experts") {
  const Shape inner{options.num_experts, intermediate_size, hidden_size};
  const Shape outer{options.num_experts, hidden_size, intermediate_size};
  w1 = make("w1", inner, options, blocks_[0]);
  w2 = make("w2", outer, options, blocks_[1]);
  w3 = make("w3", inner, options, blocks_[2]);
}

Variable SparseMoe::Experts::make(const char* name, const Shape& shape,
                                  const SparseMoeOptions& options, const BlockFormat*& blocks) {
  const int64_t row = shape.back();
  blocks = weight_blocks(*this, row, name);
  if (blocks == nullptr) return parameter(name, shape, options.init.value_or(Init::fan_in(row)));
  return stored(name, {DType::u8, {shape[0], shape[1], row / blocks->numbers, blocks->bytes}});
}

SparseMoe::SparseMoe(Module& parent, std::string name, int64_t hidden_size,
                     int64_t intermediate_size, const SparseMoeOptions& options)
    : Layer(parent, std::move(name)),
      gate(*this, "gate", hidden_size, options.num_experts, {.bias = false, .init = options.init}),
      experts(*this, hidden_size, intermediate_size, options),
      num_experts_per_tok_(options.num_experts_per_tok),
      norm_topk_prob_(options.norm_topk_prob),
      activation_(activation_function(options.activation, "sparse_moe")) {
  WEFT_CHECK(num_experts_per_tok_ >= 1 && num_experts_per_tok_ <= options.num_experts,
             "[sparse_moe] num_experts_per_tok must be from 1 to num_experts ({}). Got {}.",
             options.num_experts, num_experts_per_tok_);
}
SparseMoe::~SparseMoe() = default;

Tensor SparseMoe::forward(const Tensor& x) const {
  const int64_t width = gate.in_features();
  WEFT_CHECK(x.rank() > 0 && x.dim(-1) == width,
             "[sparse_moe] \"{}\" takes {} features in the last axis. Got {}.", path(), width,
             to_string(x.type()));
  const Tensor tokens = reshape(x, {x.elements() / width, width});
  const Tensor logits = gate(tokens);
  const bool narrow = computes_wider(logits.dtype());
  const Routing routing = route(softmax(narrow ? cast(logits, DType::f32) : logits),
                                num_experts_per_tok_, norm_topk_prob_);
  auto by_experts = [&](const Tensor& rows, const Experts::Weight& weight) {
    const Tensor matrices = weight.variable.value();
    if (weight.blocks == nullptr) return grouped_matmul(rows, transpose(matrices), routing.counts);
    return matmul_blocks(rows, matrices, weight.blocks->name,
                         {.activations = BlockActivations::current(), .counts = routing.counts});
  };
  const Tensor rows = gather(tokens, routing.token);
  const auto [gates, down, up] = experts.weights();
  const Tensor hidden = activation_(by_experts(rows, gates)) * by_experts(rows, up);
  const Tensor results = by_experts(hidden, down) * cast(routing.weight, x.dtype());
  return reshape(scatter_add(zeros(tokens.shape(), x.dtype()), routing.token, results), x.shape());
}

std::vector<const SparseMoe*> mixtures_of(const Module& model) {
  std::vector<const SparseMoe*> mixtures;
  if (const auto* mixture = dynamic_cast<const SparseMoe*>(&model)) mixtures.push_back(mixture);
  for (const Module* child : model.children())
    std::ranges::copy(mixtures_of(*child), std::back_inserter(mixtures));
  return mixtures;
}

}  // namespace weft::nn
