// Tests tensors that are created from elements of the program.
#include "weft/tensor/tensor.h"

#include <array>
#include <cmath>

#include <doctest/doctest.h>

#include "weft/base/memory/buffer.h"
#include "weft/base/memory/storage.h"
#include "weft/tensor/compile.h"

using namespace weft;

TEST_CASE("braced lists make tensors of PyTorch's shapes and types") {
  Tensor whole = tensor({1, -2, 3}, {3}), fractions = tensor({1.5, 0.1}, {2, 1});
  CHECK(whole.dtype() == DType::i64);
  CHECK(whole.to_doubles() == std::vector<double>{1, -2, 3});
  CHECK(fractions.dtype() == DType::f32);
  CHECK(fractions.shape() == Shape{2, 1});
  CHECK(fractions.to_doubles() == std::vector<double>{1.5, static_cast<double>(0.1f)});
  CHECK(tensor({1.0f}, {}).dtype() == DType::f32);
  CHECK(tensor({int64_t{1} << 60, int64_t{1}}, {2}).dtype() == DType::i64);
  CHECK(tensor({1, 2, 3}).shape() == Shape{3});
  CHECK(tensor({7}).shape() == Shape{1});
  const Tensor matrix = tensor({{1.0, 2.0}, {3.0, 4.0}, {5.0, 6.0}});
  CHECK(matrix.type() == Type{DType::f32, {3, 2}});
  CHECK(matrix.to_doubles() == std::vector<double>{1, 2, 3, 4, 5, 6});
  CHECK_THROWS_WITH_AS(tensor({{1, 2}, {3}}), doctest::Contains("[stack]"), Error);
}

TEST_CASE("a step's result takes as many bytes as its type") {
  CompiledStep doubled([](std::span<const Tensor> in) { return std::vector{in[0] * 2.0}; }, {});
  const Tensor result = doubled.run(std::array{tensor({1.0f, 2.0f, 3.0f}, {3})})[0];
  CHECK(result.to_doubles() == std::vector<double>{2, 4, 6});
  CHECK(result->storage->bytes() == 3 * sizeof(float));
}

TEST_CASE("doubles make a float64 tensor with all their digits or the requested dtype") {
  std::vector<double> digits = {0.1, 1e300, -1.0 / 3};
  Tensor all = tensor(digits, {3});
  CHECK(all.dtype() == DType::f64);
  CHECK(all.to_doubles() == digits);
  Tensor listed = tensor({0.1, 1e300, -1.0 / 3}, {3}, DType::f64);
  CHECK(listed.dtype() == DType::f64);
  CHECK(listed.to_doubles() == digits);
  CHECK(tensor({0.1, 2}, {2}, DType::bf16).dtype() == DType::bf16);
  CHECK((all * 3.0).dtype() == DType::f64);
}

TEST_CASE("an empty variable is refused and scalars of any integer type are operands") {
  const Variable none;
  CHECK(!none.defined());
  const std::string message = "[variable] this variable is empty";
  CHECK_THROWS_WITH_AS((void)none.name(), doctest::Contains(message.c_str()), Error);
  CHECK_THROWS_WITH_AS((void)none.type(), doctest::Contains(message.c_str()), Error);
  CHECK_THROWS_WITH_AS(none.freeze(), doctest::Contains(message.c_str()), Error);
  CHECK_THROWS_WITH_AS((void)none.bytes(), doctest::Contains(message.c_str()), Error);
  const Tensor x = tensor({6, 8}, {2}, DType::f32);
  for (const Tensor& half : {x / size_t{2}, x / 2U, x / 2LL, x / int16_t{2}, x / 2})
    CHECK(half.to_doubles() == std::vector<double>{3, 4});
}

TEST_CASE("the seed determines the random numbers of a compiled step") {
  const Tensor ones = full({1000}, 1.0);
  auto step = compile([](Tensor x) { return dropout(x, 0.5, next_random_key()); });
  auto masks = [&](int64_t seed) {
    manual_seed(seed);
    return std::vector{step(ones).to_doubles(), step(ones).to_doubles()};
  };
  const auto first = masks(5), other = masks(6), again = masks(5);
  manual_seed(0);
  CHECK(first == again);
  CHECK(first[0] != first[1]);
  CHECK(first[0] != other[0]);
}

namespace {
// Checks that a seed repeats each tensor of `draw` and that another seed changes it; returns them.
template <class Draw>
std::vector<Tensor> drawn_by_seed(Draw&& draw) {
  manual_seed(5);
  const std::vector<Tensor> first = draw();
  manual_seed(5);
  const std::vector<Tensor> again = draw();
  manual_seed(6);
  const std::vector<Tensor> other = draw();
  manual_seed(0);
  for (size_t i = 0; i < first.size(); ++i) {
    CHECK(first[i].to_doubles() == again[i].to_doubles());
    CHECK(first[i].to_doubles() != other[i].to_doubles());
  }
  return first;
}
}  // namespace

TEST_CASE("rand, randn and randint draw independent numbers that the seed repeats") {
  auto draw = [] {
    return std::vector{rand({1000}), rand({1000}), randn({1000}),
                       randint(-2, 3, {1000}).cast(DType::f32)};
  };
  const std::vector<Tensor> first = drawn_by_seed(draw);
  CHECK(first[0].to_doubles() != first[1].to_doubles());
  CHECK((first[0].min().item() >= 0 && first[0].max().item() < 1));
  // The mean of 1000 draws is off by less than 5 standard errors, e.g. 1 / sqrt(12 * 1000).
  CHECK(std::fabs(first[0].mean().item() - 0.5) < 5 / std::sqrt(12000.0));
  CHECK(std::fabs(first[2].mean().item()) < 5 / std::sqrt(1000.0));
  CHECK(std::fabs(variance(first[2]).item() - 1) < 5 * std::sqrt(2 / 1000.0));
  for (int64_t value : range(-2, 3)) {
    const double count = (first[3] == value).sum().item();
    CHECK(std::fabs(count - 200) < 5 * std::sqrt(160.0));
  }
  CHECK(randint(0, 1, {2, 3}).dtype() == DType::i64);
  CHECK_THROWS_WITH_AS(randint(3, 3, {1}), doctest::Contains("[randint] high must be above low"),
                       Error);
  CHECK_THROWS_WITH_AS(randint(0, (1 << 24) + 1, {1}), doctest::Contains("Got 0 and 16777217"),
                       Error);
}

TEST_CASE("bernoulli, randperm and dropout draw independent numbers that the seed repeats") {
  auto draw = [] {
    return std::vector{bernoulli(0.3, {1000}).cast(DType::f32), dropout(ones({1000}), 0.25),
                       dropout(ones({1000})), randperm(100).cast(DType::f32)};
  };
  const std::vector<Tensor> first = drawn_by_seed(draw);
  CHECK(bernoulli(0.3, {2, 3}).dtype() == DType::boolean);
  CHECK(std::fabs(first[0].mean().item() - 0.3) < 5 * std::sqrt(0.21 / 1000));
  // A quarter of the elements is zero, and the others are 4 / 3.
  CHECK(std::fabs((first[1] == 0).sum().item() - 250) < 5 * std::sqrt(1000 * 0.1875));
  CHECK(std::fabs(first[1].max().item() - 4.0 / 3) < 1e-6);
  CHECK(std::fabs((first[2] == 0).sum().item() - 500) < 5 * std::sqrt(250.0));
  CHECK(sort(first[3]).to_doubles() == arange(100).cast(DType::f32).to_doubles());
  CHECK(randperm(3).dtype() == DType::i64);
}

TEST_CASE("dropout without a key follows the mode as nn::Dropout does") {
  const Tensor x = ones({1000});
  auto drop = [](Tensor x) { return dropout(x, 0.5); };
  auto train = compile(drop);
  CHECK(train(x).min().item() == 0);
  CHECK(train(x).to_doubles() != train(x).to_doubles());
  CHECK(compile(drop, {.mode = Mode::eval})(x).to_doubles() == x.to_doubles());
  CHECK(dropout(x, 0).node() == x.node());
  // A scope within a step holds for what is captured while it lives.
  auto both = compile([](Tensor x) {
    const Tensor evaluated = [&] {
      const ModeScope inner(Mode::eval);
      return dropout(x, 0.5);
    }();
    return std::pair(evaluated, dropout(x, 0.5));
  });
  const auto [evaluated, trained] = both(x);
  CHECK(evaluated.to_doubles() == x.to_doubles());
  CHECK(trained.min().item() == 0);
  const ModeScope mode(Mode::eval);
  CHECK(dropout(x, 0.5).node() == x.node());
  CHECK_THROWS_WITH_AS(dropout(x, 1.5), doctest::Contains("[dropout] the probability must be in"),
                       Error);
}

TEST_CASE("rand in a step draws new numbers at each run") {
  CompiledStep step([](std::span<const Tensor>) { return std::vector{rand({8}), rand({8})}; }, {});
  auto drawn = [&] {
    const std::span<const Tensor> results = step.run({});
    return std::vector{results[0].to_doubles(), results[1].to_doubles()};
  };
  const auto first = drawn(), second = drawn();
  CHECK(first[0] != first[1]);
  CHECK(first[0] != second[0]);
}

TEST_CASE("a variable is indexed like a tensor") {
  Variable w("w", {DType::f32, {2, 3}});
  for (int i : {0, 1, 2, 3, 4, 5}) w.floats()[static_cast<size_t>(i)] = static_cast<float>(i);
  CHECK(w[1].to_doubles() == std::vector<double>{3, 4, 5});
  CHECK(w[{range(), -1}].to_doubles() == std::vector<double>{2, 5});
}

TEST_CASE("a variable has the methods of a tensor") {
  const Variable w("w", {DType::f32, {2, 3}});
  for (int i : {0, 1, 2, 3, 4, 5}) w.floats()[static_cast<size_t>(i)] = static_cast<float>(i);
  CHECK(w.dtype() == DType::f32);
  CHECK(w.rank() == 2);
  CHECK((w.dim(0) == 2 && w.dim(-1) == 3));
  CHECK(w.elements() == 6);
  CHECK(w.to_doubles() == std::vector<double>{0, 1, 2, 3, 4, 5});
  CHECK(w.to_vector<float>() == std::vector<float>{0, 1, 2, 3, 4, 5});
  CHECK(w.sum().item() == 15);
  CHECK(w.sum({0, -1}, true).shape() == Shape{1, 1});
  CHECK(w.mean(1).to_doubles() == std::vector<double>{1, 4});
  CHECK(w.prod(0).to_doubles() == std::vector<double>{0, 4, 10});
  CHECK((w.max().item() == 5 && w.min(0).to_doubles() == std::vector<double>{0, 1, 2}));
  CHECK(((w > 4).any().item() == 1 && (w > 4).all().item() == 0));
  CHECK(w.cast(DType::boolean).any(1).to_doubles() == std::vector<double>{1, 1});
  CHECK(w.cast(DType::boolean).all(1).to_doubles() == std::vector<double>{0, 1});
  CHECK(w.argmax(0).to_doubles() == std::vector<double>{1, 1, 1});
  CHECK(w.argmin(1).to_doubles() == std::vector<double>{0, 0});
  CHECK(w.argmin().item() == 0);
  CHECK(w.reshape({3, -1}).shape() == Shape{3, 2});
  CHECK(w.transpose().to_doubles() == std::vector<double>{0, 3, 1, 4, 2, 5});
  CHECK(w.permute({1, 0}).shape() == Shape{3, 2});
  CHECK(w.flatten().shape() == Shape{6});
  CHECK(w.unsqueeze(0).shape() == Shape{1, 2, 3});
  CHECK(w.broadcast_to({4, 2, 3}).shape() == Shape{4, 2, 3});
  const Variable one("one", {DType::f32, {1}});
  CHECK(one.squeeze(0).rank() == 0);
  CHECK(one.item() == 0);
  one.floats()[0] = 7;  // read anew
  CHECK(one.item() == 7);
  CHECK_THROWS_WITH_AS((void)Variable().sum(), doctest::Contains("[variable] this variable is"),
                       Error);
}

TEST_CASE("constants of one number have no gradient, and variables of such values do") {
  const Tensor constant = full({2, 3}, 2.0);
  const auto slope = [](const auto& x) { return grad(square(transpose(x)).sum(), x); };
  CHECK_THROWS_WITH_AS((void)slope(constant), doctest::Contains("[grad] f32[2, 3] of full()"),
                       Error);
  const Variable variable("w", constant.type());
  variable.assign(constant);
  const std::vector<float> expected(6, 4.0F);
  CHECK(slope(variable).to_vector<float>() == expected);
  CHECK(slope(variable.value()).to_vector<float>() == expected);
  auto step = compile([&](Tensor x) { return slope(x); });
  CHECK(step(constant).to_vector<float>() == expected);
}

TEST_CASE("a variable's methods in a step read the latest assignment and differentiate") {
  const Variable w("w", {DType::f32, {2}});
  w.assign(tensor({1.0, 3.0}, {2}));
  auto step = compile([&](Tensor x) {
    const Tensor slope = grad((w * x).sum() + w.mean(), std::vector<Variable>{w})[0];
    w.assign(w + 1);
    return std::vector{slope, w.sum()};
  });
  const std::vector<Tensor> results = step(tensor({2.0, 4.0}, {2}));
  CHECK(results[0].to_doubles() == std::vector<double>{2.5, 4.5});
  CHECK(results[1].item() == 6);
}
