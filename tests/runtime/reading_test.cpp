// Tests evaluated values, and gradients through them.
#include <array>
#include <cmath>
#include <memory>
#include <vector>

#include <doctest/doctest.h>

#include "weft/base/error.h"
#include "weft/base/memory/buffer.h"
#include "weft/ir/graph.h"
#include "weft/tensor/tensor.h"

using namespace weft;

namespace {
using Doubles = std::vector<double>;

Doubles slope(const Tensor& loss, const Tensor& x) {
  return grad(loss, std::array{x})[0].to_doubles();
}
}  // namespace

TEST_CASE("a loss that was read has the same gradient") {
  const Tensor x = tensor({0.5, -1.25, 2.0}, {3});
  const auto loss_of = [&] { return sum(exp(x) * x * x); };
  const Doubles unread = slope(loss_of(), x);
  CHECK(unread[0] == doctest::Approx(std::exp(0.5) * (0.25 + 1)));  // e^x (x^2 + 2 x)
  const Tensor loss = loss_of();
  (void)loss.item();
  CHECK(slope(loss, x) == unread);
  CHECK(slope(loss, x) == unread);
}

TEST_CASE("first and second gradients pass through intermediate values that were read") {
  const Tensor x = tensor({0.5, 2.0}, {2});
  const Tensor square = x * x;
  (void)square.to_doubles();
  const Tensor loss = sum(square * square);
  (void)loss.item();
  const Tensor first = grad(loss, std::array{x})[0];
  CHECK(first.to_doubles() == Doubles{0.5, 32});  // 4 x^3
  CHECK(slope(sum(first), x) == Doubles{3, 48});  // 12 x^2
  CHECK(slope(loss, square) == Doubles{0.5, 8});  // 2 square
}

TEST_CASE("parameters keep their gradients however often they were read") {
  const Variable w("w", {DType::f32, {}});
  const Tensor handle = w.value(), loss = square(handle - 1);
  for (int i = 0; i < 3; ++i) CHECK(w.value().item() == 0);
  const Tensor younger = w.value();
  CHECK(younger.item() == 0);
  CHECK(loss.item() == 1);
  CHECK(grad(loss, std::array{w})[0].item() == -2);
  CHECK(slope(loss, handle) == Doubles{-2});
  CHECK(slope(loss, younger) == Doubles{-2});
}

TEST_CASE("a held tensor keeps its gradient whatever was read before") {
  Tensor x = tensor({3.0, 4.0}, {2});
  Tensor held = x * 2;
  (void)held.to_doubles();
  x = {};
  const Tensor square = held * held;
  (void)square.to_doubles();
  const Tensor loss = sum(square);
  (void)loss.item();
  CHECK(slope(loss, held) == Doubles{12, 16});
}

TEST_CASE("an eager loop that reads its loss and its parameter trains") {
  const Variable w("w", {DType::f32, {}});
  Doubles losses;
  for (int step = 0; step < 4; ++step) {
    const Tensor loss = square(w.value() - 1);
    losses.push_back(loss.item());
    (void)w.value().item();
    w.assign(w.value() - 0.25 * grad(loss, std::array{w})[0]);
  }
  CHECK(losses == Doubles{1, 0.25, 0.0625, 0.015625});
  CHECK(w.value().item() == 1 - 0.0625);
}

TEST_CASE("values without a possible gradient keep nothing alive") {
  std::weak_ptr<Node> first;
  Tensor x = tensor({1.0, 2.0}, {2});
  first = x.shared();
  x = x * 2;
  CHECK(x.to_doubles() == Doubles{2, 4});
  CHECK(first.expired());  // no handle is left to name it

  const Variable w("w", {DType::f32, {}});
  Tensor h = w.value() + 1;
  (void)h.item();
  first = h.shared();
  h = argmax(stop_gradient(reshape(h, {1})) * 3.0);
  (void)h.item();
  CHECK(first.expired());
}

TEST_CASE("stop_gradient in a loop's state releases earlier iterations") {
  const Variable w("w", {DType::f32, {}});
  Tensor h = w.value() + 1;
  std::vector<std::weak_ptr<Node>> states;
  for (int i = 0; i < 5; ++i) {
    h = stop_gradient(h) * w.value();
    (void)h.item();
    states.emplace_back(h.shared());
  }
  CHECK(states[0].expired());
  CHECK(states[2].expired());
  CHECK(grad(h, std::array{w})[0].item() == 0);  // stop_gradient(h) is zero
}

TEST_CASE("a running mean of losses does not keep the parameters of past steps") {
  const Variable w("w", {DType::f32, {}});
  Tensor mean = scalar(0);
  std::vector<std::weak_ptr<Node>> means;
  for (int step = 0; step < 5; ++step) {
    mean = 0.5 * mean + square(w.value() - 1);
    (void)mean.item();
    means.emplace_back(mean.shared());
    w.assign(w.value() + 0.1);
  }
  CHECK(means[0].expired());
  CHECK(means[2].expired());
  CHECK(!means[4].expired());
}

TEST_CASE("a long chain of reads is cut and a gradient through the cut is refused") {
  const Variable w("w", {DType::f32, {}});
  Tensor h = w.value();
  std::weak_ptr<Node> early;
  for (int i = 0; i < 1000; ++i) {
    h = h + w.value();
    (void)h.item();
    if (i == 10) early = h.shared();
  }
  CHECK(!early.expired());
  CHECK(grad(h, std::array{w})[0].item() == 1001);
  h = h + w.value();
  (void)h.item();
  CHECK(early.expired());
  const Tensor loss = h * 2;
  CHECK_THROWS_WITH_AS(
      grad(loss, std::array{w}),
      doctest::Contains("[grad] the gradient passes through a f32[] at the end of a chain"), Error);
  CHECK(slope(loss, h) == Doubles{2});
  CHECK(grad(stop_gradient(h) * w.value(), std::array{w})[0].item() == 0);  // w and h are zero
}
