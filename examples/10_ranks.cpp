// Tutorial 10 trains a net of one's own on several ranks, each with a part of every batch:
//
//   weft launch -n 2 -- build/release/examples/10_ranks
//
// Without a launcher it is one rank.
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
  const Parallel parallel;
  Mlp model;  // the same values on every rank
  optim::AdamW optimizer(model.parameters(), {.lr = 1e-2});
  parallel.share_out(optimizer.state());

  // The step is written for the whole batch: the loss is the mean over all of its rows.
  auto train_step = compile(
      [&](Tensor places, Tensor labels) {
        Tensor loss = cross_entropy(model(places), labels);
        optimizer.step(grad(loss, model.parameters()));
        return loss;
      },
      {.mesh = parallel.mesh()});
  auto accuracy = compile(
      [&](Tensor places, Tensor labels) { return mean(argmax(model(places), -1) == labels); },
      {.mode = Mode::eval, .mesh = parallel.mesh()});

  auto [places, labels] = spirals(256);
  const Tensor my_places = parallel.rows(places), my_labels = parallel.rows(labels);
  for (int step = 0; step < 500; ++step) {
    Tensor loss = train_step(my_places, my_labels);
    if (step % 100 == 0 && parallel.rank() == 0) print("step {:3}  loss {:.6f}", step, loss.item());
  }
  const double reached = accuracy(my_places, my_labels).item();
  if (parallel.rank() == 0) print("accuracy {:.3f} on {} ranks", reached, parallel.ranks());
  return reached > 0.95 ? 0 : 1;
} catch (...) {
  return weft::report_failure();
}
