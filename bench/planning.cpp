// Prints the seconds to capture and plan a training step of GPT by depth: in total and per layer.
#include <weft/base/host/stopwatch.h>
#include <weft/runtime/executable.h>
#include <weft/weft.h>

using namespace weft;

int main() {
  nn::BuildScope no_weights({.initialize = false});
  print("{:>6} {:>9} {:>9} {:>12}", "layers", "kernels", "seconds", "ms a layer");
  for (int64_t layers : {12, 96, 126, 384}) {
    Stopwatch watch;
    nn::Options config{{"hidden_size", int64_t{128}},
                       {"num_hidden_layers", layers},
                       {"num_attention_heads", int64_t{4}}};
    auto model = make_model("gpt", config, {InputKind::tokens, {64}, 65});
    optim::AdamW optimizer(model->parameters(), {.lr = 1e-3});
    auto train_step = compile(
        [&](Tensor tokens, Tensor targets) {
          Tensor loss = cross_entropy((*model)(tokens), targets);
          auto [gradients, norm] = optim::clip_grad_norm(grad(loss, model->parameters()), 1.0);
          optimizer.step(gradients);
          return loss;
        },
        {.device = "null"});
    std::vector<Type> types{{DType::i64, {12, 64}}, {DType::i64, {12, 64}}};
    size_t kernels = train_step.prepare(types).plan().launches.size();
    double seconds = watch.milliseconds() / 1000;
    print("{:>6} {:>9} {:>9.2f} {:>12.2f}", layers, kernels, seconds,
          1000 * seconds / static_cast<double>(layers));
  }
}
