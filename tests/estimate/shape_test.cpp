// Compares the parameters of shapes with those that were published.
#include <doctest/doctest.h>

#include "weft/estimate/job.h"

using weft::estimate::Shape;

TEST_CASE("shapes have the published number of parameters, but for norms and biases") {
  const Shape gpt2{.name = "GPT-2 124M",
                   .layers = 12,
                   .hidden = 768,
                   .heads = 12,
                   .kv_heads = 12,
                   .head_width = 64,
                   .ffn = 3072,
                   .vocabulary = 50'257,
                   .positions = 1024,
                   .tied = true,
                   .convolutions = {}};
  CHECK(gpt2.parameters() == doctest::Approx(124'439'808).epsilon(1e-3));
  const Shape llama{.name = "Llama 3 8B",
                    .layers = 32,
                    .hidden = 4096,
                    .heads = 32,
                    .kv_heads = 8,
                    .head_width = 128,
                    .ffn = 14'336,
                    .gated = true,
                    .vocabulary = 128'256,
                    .convolutions = {}};
  CHECK(llama.parameters() == doctest::Approx(8'030'261'248).epsilon(1e-4));
  const Shape mixtral{.name = "Mixtral 8x7B",
                      .layers = 32,
                      .hidden = 4096,
                      .heads = 32,
                      .kv_heads = 8,
                      .head_width = 128,
                      .gated = true,
                      .vocabulary = 32'000,
                      .experts = 8,
                      .experts_per_token = 2,
                      .expert_ffn = 14'336,
                      .convolutions = {}};
  CHECK(mixtral.parameters() == doctest::Approx(46'702'792'704).epsilon(1e-4));
}
