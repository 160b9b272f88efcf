// Tests handles of variables that programs read outside of steps.
#include <doctest/doctest.h>

#include "weft/ir/graph.h"
#include "weft/tensor/tensor.h"

using namespace weft;

TEST_CASE("a variable read and assigned outside steps is freed with its last handle") {
  Variable w("w", {DType::f32, {2}});
  std::weak_ptr<VariableState> state = w.state();
  Tensor twice = w.value() * 2;
  w.assign(tensor(std::vector<float>{1, 2}, {2}));
  Tensor after = w.value();
  w = {};
  CHECK(!state.expired());  // `after` reads it
  after = {};
  CHECK(state.expired());
  CHECK(twice.to_doubles() == std::vector<double>{0, 0});
}
