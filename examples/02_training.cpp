// Tutorial 2 has a module, an optimizer, and a step that is compiled once and runs many times.
#include <cmath>
#include <numbers>

#include <weft/weft.h>

using namespace weft;

struct Mlp : nn::Module {
  nn::Linear hidden{*this, "hidden", 2, 32};
  nn::Linear head{*this, "head", 32, 2};
  Tensor operator()(const Tensor& x) const { return head(tanh(hidden(x))); }
};

// Returns two spirals that no straight line separates.
std::pair<Tensor, Tensor> spirals(int points) {
  std::vector<float> places;
  std::vector<int64_t> labels;
  for (int i = 0; i < points; ++i) {
    double radius = 0.2 + 0.8 * i / points, angle = 3 * radius + (i % 2) * std::numbers::pi;
    places.push_back(static_cast<float>(radius * std::cos(angle)));
    places.push_back(static_cast<float>(radius * std::sin(angle)));
    labels.push_back(i % 2);
  }
  return {tensor(places, {points, 2}), tensor(labels, {points})};
}

int main() try {
  Mlp model;
  optim::AdamW optimizer(model.parameters(),
                         {.lr = optim::cosine(3e-2, {.warmup = 10, .total = 300})});

  // The whole step - forward, backward, update - is one plan with one arena.
  auto train_step = compile([&](Tensor places, Tensor labels) {
    Tensor loss = cross_entropy(model(places), labels);
    optimizer.step(grad(loss, model.parameters()));
    return loss;
  });
  auto accuracy = compile(
      [&](Tensor places, Tensor labels) { return mean(argmax(model(places), -1) == labels); },
      {.mode = Mode::eval});

  auto [places, labels] = spirals(256);
  for (int step = 0; step < 300; ++step) {
    Tensor loss = train_step(places, labels);
    if (step % 100 == 0) print("step {:3}  loss {:.4f}", step, loss.item());
  }
  double reached = accuracy(places, labels).item();
  print("accuracy {:.3f}", reached);
  return reached > 0.95 ? 0 : 1;
} catch (...) {
  return weft::report_failure();
}
