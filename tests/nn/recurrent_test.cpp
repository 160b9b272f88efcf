#include <cmath>

#include <doctest/doctest.h>

#include "weft/ir/plan.h"
#include "weft/nn/nn.h"
#include "weft/runtime/executable.h"
#include "weft/tensor/compile.h"

using namespace weft;

namespace {
struct Root : nn::Module {};

Tensor wave(const Shape& shape, double speed) {
  std::vector<double> values(static_cast<size_t>(element_count(shape)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(speed * static_cast<double>(i));
  return tensor(values, shape);
}
double distance(const Tensor& a, const Tensor& b) { return max(abs(a - b)).item(); }

template <class R>
void check_states(bool cells) {
  nn::BuildScope scope({.dtype = DType::f64});
  Root root;
  R both(root, "both", 3, 4, {.num_layers = 2, .bidirectional = true});
  Tensor x = wave({2, 5, 3}, 1);
  nn::RecurrentResult all = both.run(x);
  CHECK(all.y.shape() == Shape{2, 5, 8});
  CHECK(all.h.shape() == Shape{4, 2, 4});
  CHECK(all.c.defined() == cells);
  // In the upper layer, forward states end at the last time step, backward states at the first.
  Tensor last = reshape(slice(slice(all.y, 1, 4, 5), 2, 0, 4), {1, 2, 4});
  Tensor first = reshape(slice(slice(all.y, 1, 0, 1), 2, 4, 8), {1, 2, 4});
  CHECK(distance(slice(all.h, 0, 2, 3), last) == 0);
  CHECK(distance(slice(all.h, 0, 3, 4), first) == 0);

  R forward(root, "forward", 3, 4, {.num_layers = 2});
  nn::RecurrentResult whole = forward.run(x), begin = forward.run(slice(x, 1, 0, 2));
  nn::RecurrentResult end = forward.run(slice(x, 1, 2, 5), {.h = begin.h, .c = begin.c});
  CHECK(distance(concat({begin.y, end.y}, 1), whole.y) < 1e-15);
  CHECK(distance(end.h, whole.h) < 1e-15);
  if (cells) CHECK(distance(end.c, whole.c) < 1e-15);
}

struct Count {
  int products = 0, kernels = 0;
};
// Counts the kernels of a training step of one layer over `length` time steps.
template <class R>
Count training_kernels(int64_t length) {
  Root root;
  R rnn(root, "rnn", 16, 32);
  auto step = compile(
      [&](Tensor x) {
        std::vector<Tensor> results = grad(mean(square(rnn(x))), rnn.parameters());
        return results;
      },
      {.device = "null"});
  Type type{DType::f32, {8, length, 16}};
  Count count;
  for (const Launch& kernel : step.prepare(std::span(&type, 1)).plan().launches) {
    ++count.kernels;
    count.products += kernel.kernel.find("matmul") != std::string::npos;
  }
  return count;
}
}  // namespace

TEST_CASE("an LSTM returns its last states and continues a sequence from them") {
  check_states<nn::LSTM>(true);
}
TEST_CASE("a GRU returns its last states and continues a sequence from them") {
  check_states<nn::GRU>(false);
}

TEST_CASE("a recurrent net has one product per time step for states and one for all inputs") {
  for (auto kernels : {training_kernels<nn::LSTM>, training_kernels<nn::GRU>}) {
    Count few = kernels(10), many = kernels(20);
    // A time step has a product forward and one backward; the number of others is constant.
    CHECK(many.products - few.products == 2 * 10);
    CHECK(few.products <= 2 * 10 + 3);
    // A time step adds a forward kernel, a backward one for each gate and one that joins the gates.
    CHECK(many.kernels - few.kernels <= (2 + 6) * 10);
  }
}

TEST_CASE("a recurrent layer refuses inputs and states of other shapes") {
  Root root;
  nn::LSTM rnn(root, "rnn", 3, 4);
  using doctest::Contains;
  CHECK_THROWS_WITH_AS(rnn(zeros({2, 5, 4})),
                       Contains("[recurrent] \"rnn\" takes [batch, time, 3]. Got f32[2, 5, 4]."),
                       Error);
  CHECK_THROWS_WITH_AS(rnn.run(zeros({2, 5, 3}), {.h = zeros({1, 3, 4})}),
                       Contains("[recurrent] \"rnn\" begins with states [1, 2, 4]. Got [1, 3, 4]."),
                       Error);
}
