// A sparse mixture of experts (Mixtral: Jiang et al. 2024, "Mixtral of Experts"): a router sends
// each token to a few of the experts, which are gated feed-forward nets, and sums their results by
// the router's weights. All shapes are static: T tokens with k experts each are T k rows, sorted by
// expert and multiplied by grouped_matmul(), so that no token is dropped and the weights of experts
// without tokens are not read.
//
//   nn::SparseMoe moe{*this, "block_sparse_moe", 4096, 14336};
//
// The experts' weights are stacked. Published files have a tensor for each expert; load them by
//
//   io::load(net, file, {.stack = {{"*experts.{}.w1.weight", "*experts.w1"},
//                                  {"*experts.{}.w2.weight", "*experts.w2"},
//                                  {"*experts.{}.w3.weight", "*experts.w3"}}});
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "weft/nn/layers.h"

namespace weft::nn {

struct SparseMoeOptions {
  int64_t num_experts = 8;               // E
  int64_t num_experts_per_tok = 2;       // k, from 1 to E
  bool norm_topk_prob = true;            // divides the weights of a token's experts by their sum
  std::string_view activation = "silu";  // or another of activation_names()
  std::optional<Init> init = {};         // initial values of all weights; empty: Linear's
};

// SparseMoe maps [.., H] to [.., H]. With p = softmax(gate(x)), in float32 for narrower types, a
// token's result is the sum of p w2(activation(w1(x)) * w3(x)) over the k experts of the greatest p
// (of equal p, the first experts). Errors are those of weft/nn/layers.h.
class SparseMoe : public Layer {
 public:
  SparseMoe(Module& parent, std::string name, int64_t hidden_size, int64_t intermediate_size,
            const SparseMoeOptions& options = {});
  ~SparseMoe() override;

  struct Experts : Module {
    Experts(Module& parent, int64_t hidden_size, int64_t intermediate_size,
            const SparseMoeOptions& options);
    // The weights are gate [E, I, H], down [E, H, I] and up [E, I, H], where I is
    // intermediate_size. Weights in blocks are u8 [E, rows, blocks, bytes].
    Variable w1, w2, w3;

    struct Weight {
      const char* name;
      Variable variable;
      const BlockFormat* blocks;  // null: plain numbers
    };
    std::array<Weight, 3> weights() const {
      return {Weight{"w1", w1, blocks_[0]}, {"w2", w2, blocks_[1]}, {"w3", w3, blocks_[2]}};
    }

   private:
    Variable make(const char* name, const Shape& shape, const SparseMoeOptions& options,
                  const BlockFormat*& blocks);
    std::array<const BlockFormat*, 3> blocks_{};
  };
  Linear gate;  // the router, without bias: weight [E, H]
  Experts experts;

 protected:
  Tensor forward(const Tensor& x) const override;

 private:
  int64_t num_experts_per_tok_;
  bool norm_topk_prob_;
  ActivationFunction activation_;
};

// Returns the SparseMoe modules of a model, in the order of its modules.
std::vector<const SparseMoe*> mixtures_of(const Module& model);

}  // namespace weft::nn
