// Tutorial 3: the plan is known before the run. This program plans a step and never runs it.
#include <weft/runtime/executable.h>
#include <weft/weft.h>

using namespace weft;

int main() try {
  nn::BuildScope no_weights({.initialize = false});
  nn::Options config{{"hidden_size", int64_t{128}},
                     {"num_hidden_layers", int64_t{4}},
                     {"num_attention_heads", int64_t{4}},
                     {"max_position_embeddings", int64_t{64}}};
  auto model = make_model("gpt", config, {InputKind::tokens, {64}, 65});
  optim::AdamW optimizer(model->parameters(), {.lr = 1e-3});

  auto train_step = compile(
      [&](Tensor tokens, Tensor targets) {
        Tensor loss = cross_entropy((*model)(tokens), targets);
        optimizer.step(grad(loss, model->parameters()));
        return loss;
      },
      {.device = "null"});

  std::vector<Type> types{{DType::i64, {12, 64}}, {DType::i64, {12, 64}}};
  const Plan& plan = train_step.prepare(types).plan();
  print("{} kernels, {:.2f} GFLOP a step", plan.steps.size(), plan.flops() / 1e9);
  print("arena {} bytes; no order of frees could use fewer than {}", plan.arena_bytes,
        plan.live_peak_bytes);
  for (const Step& step : plan.steps)
    if (step.flops > 0.1 * plan.flops() / 4)
      print("  {:24} {:6.1f} MFLOP  {}", step.kernel, step.flops / 1e6, step.module);
} catch (...) {
  return weft::report_failure();
}
