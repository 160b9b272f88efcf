// Tutorial 7 trains a vision transformer (Dosovitskiy et al. 2020) that classifies four directions
// of stripes. tests/docs/pytorch/07_vit.py is the same program in PyTorch.
#include <numbers>

#include <weft/weft.h>

using namespace weft;

struct Vit : nn::Module {
  nn::Conv2d patches{*this, "patches", 1, 32, 4, {.stride = 4}};
  Variable token = parameter("token", {1, 1, 32}, nn::Init::constant(0));
  Variable position = parameter("position", {1, 17, 32}, nn::Init::normal(0, 0.02));
  nn::TransformerEncoder encoder{
      *this, "encoder",
      2,     32,
      4,     {.dim_feedforward = 64, .activation = "gelu", .norm_first = true, .norm = true}};
  nn::Linear head{*this, "head", 32, 4};

  Tensor operator()(const Tensor& images) const {  // [B, 1, 16, 16] -> [B, 4]
    Tensor x = patches(images).flatten(2).transpose(1, 2);
    x = concat({broadcast_to(token, {x.dim(0), 1, 32}), x}, 1);
    return head(encoder(x + position)[{range(), 0}]);
  }
};

std::pair<Tensor, Tensor> batch(int64_t size) {
  Tensor labels = randint(0, 4, {size});
  Tensor angle = labels.reshape({-1, 1, 1, 1}) * (std::numbers::pi / 4);
  Tensor phase = rand({size, 1, 1, 1}) * (2 * std::numbers::pi);
  Tensor x = arange(16, DType::f32), y = x.reshape({16, 1});
  Tensor stripes = sin(x * cos(angle) + y * sin(angle) + phase);
  return {stripes + 0.5 * randn({size, 1, 16, 16}), labels};
}

int main() try {
  Vit net;
  optim::AdamW optimizer(net.parameters(), {.lr = 1e-3});

  auto train_step = compile([&] {
    auto [images, labels] = batch(64);
    Tensor loss = cross_entropy(net(images), labels);
    optimizer.step(grad(loss, net.parameters()));
    return loss;
  });
  for (int step : range(121)) {
    Tensor loss = train_step();
    if (step % 40 == 0) print("step {:3}  loss {:.4f}", step, loss.item());
  }

  auto evaluate = compile(
      [&] {
        auto [images, labels] = batch(500);
        return mean(net(images).argmax(1) == labels);
      },
      {.mode = Mode::eval});
  double accuracy = evaluate().item();
  print("accuracy {:.3f}", accuracy);
  return accuracy > 0.9 ? 0 : 1;
} catch (...) {
  return weft::report_failure();
}
