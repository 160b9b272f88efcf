#include "weft/optim/loss_scale.h"

#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "tests/support/values.h"
#include "weft/optim/optim.h"
#include "weft/tensor/compile.h"

using namespace weft;

TEST_CASE(
    "a loss scale grows after good steps, shrinks after a bad one and stays above its floor") {
  optim::LossScale scale({.initial = 8, .floor = 2, .interval = 3});
  auto update = compile([&](Tensor finite) { scale.update(finite); });
  auto now = [&] { return scale.state()[0].value().item(); };
  const Tensor good = ones({}, DType::boolean), bad = zeros({}, DType::boolean);
  for (double expected : {8, 8, 16, 16}) {
    update(good);
    CHECK(now() == expected);
  }
  for (double expected : {8, 4, 2, 2}) {
    update(bad);
    CHECK(now() == expected);
  }
  CHECK(scale.may_shrink().item() == 0);
  for (double expected : {2, 2, 4}) {  // the count of good steps was reset
    update(good);
    CHECK(now() == expected);
  }
}

TEST_CASE("scaling and unscaling are inverse") {
  optim::LossScale scale({.initial = 1024});
  CHECK(scale.scaled(tensor(std::vector<float>{3}, {1})).item() == 3072);
  CHECK(scale.unscaled(std::vector{tensor(std::vector<float>{3072}, {1})})[0].item() == 3);
}

TEST_CASE("a skipped step changes neither parameters nor moments") {
  for (const char* name : {"adamw", "sgd"}) {
    Variable parameter("w", {DType::f32, {2}});
    parameter.assign(tensor(std::vector<float>{1, -2}, {2}));
    optim::OptimizerSettings settings{.lr = 0.1};
    if (std::string_view(name) == "sgd") settings.momentum = 0.9;
    auto optimizer = optim::make_optimizer(name, {parameter}, settings);
    auto step = compile(
        [&](Tensor gradient, Tensor wanted) { optimizer->step(std::vector{gradient}, wanted); });
    auto all = [&] {
      std::vector<double> values = parameter.value().to_doubles();
      for (size_t i = 1; i < optimizer->state().size(); ++i)
        for (double value : optimizer->state()[i].value().to_doubles()) values.push_back(value);
      return values;
    };
    const Tensor gradient = tensor(std::vector<float>{0.5f, 0.25f}, {2});
    const float infinity = std::numeric_limits<float>::infinity();
    const Tensor overflown = tensor(std::vector<float>{infinity, NAN}, {2});
    step(gradient, ones({}, DType::boolean));
    const std::vector<double> after_one = all();
    CHECK(after_one[0] < 1);
    step(overflown, zeros({}, DType::boolean));
    CHECK(all() == after_one);
    CHECK(optimizer->step_count().value().item() == 2);
    step(gradient, ones({}, DType::boolean));
    CHECK(all() != after_one);
  }
}

TEST_CASE("impossible options of a loss scale are refused") {
  CHECK_THROWS_AS(optim::LossScale({.initial = 1, .floor = 2}), Error);
  CHECK_THROWS_AS(optim::LossScale({.initial = 1, .floor = 0}), Error);
  CHECK_NOTHROW(optim::LossScale({.initial = 1, .floor = 1}));
  CHECK_THROWS_AS(optim::LossScale({.interval = 0}), Error);
}
