// Tutorial 3: the plan is known before the run. Here nothing is ever allocated or run.
#include <weft/weft.h>

using namespace weft;

namespace {
double mebibytes(size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

void show(const PlanSummary& plan) {
  print("{}: {} kernels, {:.2f} GFLOP, {:.0f} MB of traffic", plan.device, plan.launches,
        plan.flops / 1e9, plan.bytes / 1e6);
  print(
      "  {:.1f} MiB of state, an arena of {:.1f} MiB; no order of frees could use fewer than "
      "{:.1f}",
      mebibytes(plan.state_bytes), mebibytes(plan.arena_bytes), mebibytes(plan.live_peak_bytes));
  if (plan.expected_seconds() > 0) print("  {:.2f} ms", 1e3 * plan.expected_seconds());
}
}  // namespace

int main() try {
  nn::BuildScope no_weights({.initialize = false});
  nn::Options config{{"hidden_size", int64_t{128}},
                     {"num_hidden_layers", int64_t{4}},
                     {"num_attention_heads", int64_t{4}},
                     {"max_position_embeddings", int64_t{64}}};
  auto model = make_model("gpt", config, {InputKind::tokens, {64}, 65});
  optim::AdamW optimizer(model->parameters(), {.lr = 1e-3});
  auto train = [&](Tensor tokens, Tensor targets) {
    Tensor loss = cross_entropy((*model)(tokens), targets);
    optimizer.step(grad(loss, model->parameters()));
    return loss;
  };

  // The plans say what inputs of these types would take on this machine, and on a GPU that need not
  // be here. A CPU's time is known once `weft devices --measure` has measured it.
  const Type tokens{DType::i64, {12, 64}};
  auto step = compile(train, {.device = "cpu"});
  show(step.plan(tokens, tokens));
  show(step.plan_on("h100", tokens, tokens));

  // Blocks that compute their activations again for the backward pass take less memory for more
  // work; a limit of memory would choose by itself what runs again.
  auto smaller = compile(train, {.device = "cpu", .rematerialize = {"h.*"}});
  show(smaller.plan(tokens, tokens));
} catch (...) {
  return weft::report_failure();
}
