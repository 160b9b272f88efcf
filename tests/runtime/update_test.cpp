// Tests state that a step updates in part, at a position known at run time.
#include <algorithm>
#include <array>
#include <vector>

#include <doctest/doctest.h>

#include "weft/ir/plan.h"
#include "weft/runtime/executable.h"
#include "weft/tensor/compile.h"

using namespace weft;

TEST_CASE("update_at of a variable is in place without a copy of the state in the arena") {
  const Variable cache("cache", {DType::f32, {4, 100, 8}}, Category::buffer_state);
  auto put = compile(
      [&](Tensor rows, Tensor place) { cache.assign(update_at(cache.value(), 1, place, rows)); });
  const std::array types{Type{DType::f32, {4, 2, 8}}, Type{DType::i64, {}}};
  const Plan& plan = put.prepare(types).plan();
  CHECK(plan.launches.size() == 1);
  CHECK(plan.arena_bytes < cache.type().bytes() / 4);
  const Launch& last = plan.launches.back();
  CHECK(last.kernel == "weft:update_at");  // writes the updates alone where both are one
  CHECK(last.results.front().at.slot == last.operands.front().at.slot);

  std::vector<double> expected(4 * 100 * 8);
  for (const int64_t place : {0, 2, 4, 98, 99, 50, -1}) {
    const Tensor rows = full({4, 2, 8}, static_cast<double>(place + 10));
    put(rows, tensor({place}, {}));
    for (int64_t i = 0; i < 4; ++i)
      for (int64_t j = std::max<int64_t>(place, 0); j < std::min<int64_t>(place + 2, 100); ++j)
        for (int64_t k = 0; k < 8; ++k)
          expected[static_cast<size_t>((i * 100 + j) * 8 + k)] = static_cast<double>(place + 10);
    CHECK(cache.value().to_doubles() == expected);
  }
}

TEST_CASE("custom_gradient holds in compiled steps and for values that were read") {
  const Variable x("x", {DType::f32, {3}});
  x.assign(tensor({0.2, 0.7, 5.0}, {3}));
  const auto through = [](const Tensor& value) {
    return custom_gradient(round(value), {value},
                           [](const Tensor& dy) { return std::vector{clamp(dy, -1, 1)}; });
  };
  auto step =
      compile([&](Tensor w) { return grad(sum(w * through(x.value() * 2)), std::span(&x, 1)); });
  const Tensor w = tensor({0.25, -7.0, 3.0}, {3});
  const std::vector<double> expected{0.5, -2, 2};
  CHECK(step(w).front().to_doubles() == expected);
  const Tensor read = through(x.value() * 2);
  CHECK(read.to_doubles() == std::vector<double>{0, 1, 10});
  CHECK(grad(sum(w * read), std::span(&x, 1)).front().to_doubles() == expected);
}
