// Prints the median milliseconds of a training step (784-256-10, AdamW, 128 images) in a program
// that links the library without calling weft::main. Usage: linked_program [STEPS]
#include <algorithm>
#include <chrono>
#include <cstdlib>

#include <weft/weft.h>

using namespace weft;

namespace {
struct Mlp : nn::Module {
  nn::Linear hidden{*this, "hidden", 784, 256};
  nn::Linear head{*this, "head", 256, 10};
  Tensor operator()(const Tensor& x) const { return head(relu(hidden(x))); }
};

double median_seconds_of_a_step(int steps) {
  Mlp model;
  optim::AdamW optimizer(model.parameters(), {.lr = 1e-3});
  auto train_step = compile([&](Tensor images, Tensor labels) {
    Tensor loss = cross_entropy(model(images), labels);
    optimizer.step(grad(loss, model.parameters()));
    return loss;
  });
  const Tensor images = tensor(std::vector<float>(size_t{128} * 784, 0.5f), {128, 784});
  const Tensor labels = tensor(std::vector<int64_t>(128, 7), {128});
  std::vector<double> times;
  for (int i = 0; i < steps; ++i) {
    auto start = std::chrono::steady_clock::now();
    train_step(images, labels).item();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    times.push_back(took.count());
  }
  std::ranges::nth_element(times, times.begin() + steps / 2);
  return times[static_cast<size_t>(steps) / 2];
}
}  // namespace

int main(int argc, char** argv) try {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 1000;
  WEFT_CHECK(steps > 0, "linked_program takes a number of steps. Got '{}'.", argv[1]);
  print("{:.3f} ms a step", 1e3 * median_seconds_of_a_step(steps));
} catch (...) {
  return weft::report_failure();
}
