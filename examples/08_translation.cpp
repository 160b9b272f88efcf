// Tutorial 8 trains a translation transformer (Vaswani et al. 2017), from sequences of two to five
// digits to their reversal. tests/docs/pytorch/08_translation.py is the same program in PyTorch.
#include <weft/weft.h>

using namespace weft;

constexpr int64_t padding = 0, begin = 11, end = 12, tokens = 13, longest = 5;

struct Translator : nn::Module {
  nn::Embedding embed{*this, "embed", tokens, 32, {.padding_idx = padding}};
  Variable position = parameter("position", {longest + 1, 32}, nn::Init::normal(0, 0.1));
  nn::Transformer transformer{
      *this, "transformer", 32, 4, 1, 1, {.dim_feedforward = 64, .dropout = 0}};
  nn::Linear head{*this, "head", 32, tokens};

  // [B, S], [B, T] -> [B, T, tokens]
  Tensor operator()(const Tensor& source, const Tensor& target) const {
    const nn::AttentionMasks seen{.key_padding_mask = source == padding};
    return head(transformer(place(source), place(target),
                            {.src = seen, .tgt = {.is_causal = true}, .memory = seen}));
  }
  Tensor place(const Tensor& x) const { return embed(x) + position[range(0, x.dim(1))]; }
};

std::pair<Tensor, Tensor> batch(int64_t size) {
  Tensor length = randint(2, longest + 1, {size, 1}), place = arange(longest + 1);
  Tensor digits = randint(1, 11, {size, longest + 1});
  Tensor source = where(place < length, digits, padding);
  Tensor reverse = take_along_axis(source, length - 1 - place, 1);
  Tensor target = where(place < length, reverse, where(place == length, end, padding));
  return {source[{range(), range(longest)}], target};
}

Tensor translate(const Translator& net, const Tensor& source) {
  Tensor target = full({source.dim(0), 1}, begin, DType::i64);
  for (int i = 0; i <= longest; ++i) {
    Tensor token = net(source, target)[{range(), -1}].argmax(-1, true);
    target = concat({target, token}, 1);
  }
  return target[{range(), range(1, to_end)}];
}

int main() try {
  Translator net;
  optim::AdamW optimizer(net.parameters(), {.lr = 3e-3});

  auto train_step = compile([&] {
    auto [source, target] = batch(64);
    Tensor first = full({64, 1}, begin, DType::i64);
    Tensor logits = net(source, concat({first, target[{range(), range(longest)}]}, 1));
    Tensor loss = cross_entropy(logits, target, {.ignore_index = padding});
    optimizer.step(grad(loss, net.parameters()));
    return loss;
  });
  for (int step : range(501)) {
    Tensor loss = train_step();
    if (step % 100 == 0) print("step {:3}  loss {:.4f}", step, loss.item());
  }

  auto evaluate = compile(
      [&] {
        auto [source, target] = batch(200);
        return mean(all((translate(net, source) == target) | (target == padding), 1));
      },
      {.mode = Mode::eval});
  double right = evaluate().item();
  print("right {:.3f}", right);
  return right > 0.9 ? 0 : 1;
} catch (...) {
  return weft::report_failure();
}
