// Tests the cost of planning a deep model.
#include <memory>
#include <set>

#include <doctest/doctest.h>

#include "tests/support/allocations.h"
#include "weft/codegen/codegen.h"
#include "weft/device/gemm.h"
#include "weft/models/gpt.h"
#include "weft/models/model.h"
#include "weft/optim/adam.h"
#include "weft/optim/gradients.h"
#include "weft/optim/optimizer.h"
#include "weft/runtime/executable.h"
#include "weft/tensor/compile.h"
#include "weft/train/run/steps.h"

using namespace weft;
using namespace weft::testing;

namespace {
// DeepStep is a training step of a small GPT with gradient clipping, which makes every update
// depend on every gradient.
class DeepStep {
 public:
  explicit DeepStep(int64_t layers)
      : model_({.vocab_size = 65,
                .max_position_embeddings = 16,
                .hidden_size = 32,
                .num_hidden_layers = layers,
                .num_attention_heads = 4}),
        optimizer_(model_.parameters(), {.lr = 1e-3}),
        step_([this](std::span<const Tensor> in) { return train(in[0], in[1]); },
              {.device = "null"}) {}
  const Plan& plan() {
    Type tokens{DType::i64, {4, 16}};
    return step_.prepare(std::vector<Type>{tokens, tokens}).plan();
  }

 private:
  std::vector<Tensor> train(const Tensor& tokens, const Tensor& targets) {
    Tensor loss = cross_entropy(model_(tokens), targets);
    optim::Clipped clipped = optim::clip_grad_norm(grad(loss, model_.parameters()), 1.0);
    optimizer_.step(clipped.gradients);
    return {loss, clipped.norm};
  }

  nn::BuildScope no_weights_{{.initialize = false}};
  models::Gpt model_;
  optim::AdamW optimizer_;
  CompiledStep step_;
};

// Returns the number of distinct generated kernels.
size_t generated_kernels(int64_t layers) {
  DeepStep step(layers);
  std::set<std::shared_ptr<void>> kernels;
  for (const Launch& kernel : step.plan().launches)
    if (kernel.kind == Launch::Kind::fused) kernels.insert(compile_cpu(kernel).code);
  return kernels.size();
}
}  // namespace

TEST_CASE("allocations while planning grow linearly with the number of layers") {
  if (!can_watch_allocations()) return;
  auto planning = [](int64_t layers) {
    DeepStep step(layers);
    return allocations_of([&] { step.plan(); });
  };
  Allocations shallow = planning(8), deep = planning(64);
  CHECK(static_cast<double>(deep.own) < 8.5 * static_cast<double>(shallow.own));
  CHECK(deep.most_live < 64 * (size_t{8} << 20));  // keeps 126 layers below 1 GB
}

TEST_CASE("a model of 48 layers compiles as many kernels as one of 4") {
  size_t four = generated_kernels(4), all = generated_kernels(48);
  CAPTURE(four);
  CAPTURE(all);
  CHECK(all <= four + 4);
}

TEST_CASE("planning soon gives up on a limit that rematerialization cannot meet") {
  if (!can_watch_allocations()) return;
  nn::BuildScope no_weights({.initialize = false});
  auto model = make_model("resnet50", {}, {InputKind::images, {3, 224, 224}, 1000});
  auto planning = [&](size_t memory) {
    CompiledStep step(
        [&](std::span<const Tensor> in) -> std::vector<Tensor> {
          return grad(cross_entropy((*model)(in[0]), in[1]), model->parameters());
        },
        {.device = "null", .memory = memory});
    std::vector<Type> types{{DType::f32, {32, 3, 224, 224}}, {DType::i64, {32}}};
    return allocations_of([&] {
      if (memory == 0)
        step.prepare(types);
      else
        CHECK_THROWS_WITH(step.prepare(types), doctest::Contains("the step takes at least "));
    });
  };
  const auto whole = static_cast<double>(planning(0).own);
  CHECK(static_cast<double>(planning(1).own) < 10 * whole);
}

// The vocabulary of 50,257 tokens is no multiple of 8, so products over it are padded.
TEST_CASE("on CUDA the products of GPT-2 have extents that fit tensor cores") {
  for (const char* device : {"null:cuda:h100", "null:cuda:h200"})
    for (const char* model : {"gpt2", "gpt2-xl"}) {
      INFO(model << " on " << device);
      train::Recipe recipe = train::Recipe::parse(
          "data: {dataset: random-tokens, classes: 50257, seq_len: 1024}\n"
          "train: {steps: 10, global_batch_size: 8, precision: bf16-mixed}\n"
          "eval: {every: 5, batch_size: 8}\n"
          "model: {name: " +
              std::string(model) + ", config: {num_hidden_layers: 1}}\n",
          model);
      const train::Experiment experiment = train::make_experiment(recipe, {.initialize = false});
      train::Steps steps(experiment, device);
      int products = 0, padded = 0;
      for (const auto& [name, executable] : steps.executables())
        for (const Launch& launch : executable->plan().launches) {
          if (!launch.kernel.starts_with("cublaslt:")) continue;
          CAPTURE(name);
          const Gemm gemm = GemmLaunch(launch).gemm;
          for (const int64_t extent : {gemm.a.rows, gemm.b.rows, gemm.result.rows})
            CHECK(extent % 8 == 0);
          ++products;
          padded += launch.padded ? 1 : 0;
        }
      CHECK(products >= 15);
      CHECK(padded == 4);  // the logits (training, evaluation) and products of their gradient
    }
}
