#include "weft/backends/null/null.h"

#include <doctest/doctest.h>

#include "weft/backends/reference/reference.h"
#include "weft/ops/ops.h"

namespace weft::testing {
namespace {

TEST_CASE("the null library chooses as the one it stands for, and its kernels touch no memory") {
  const auto real = reference_library();
  const auto null = null_library(*real);
  const Value a = input({DType::f32, {4, 5}}, 0), b = input({DType::f32, {5, 6}}, 1);
  const Value product = matmul(a, b);
  const Placement operands[] = {{.strides = {5, 1}}, {.strides = {6, 1}}};
  CHECK(null->name() == "null");
  CHECK(null->generates() == real->generates());
  CHECK(null->choose(*product.node(), operands)->kernel ==
        real->choose(*product.node(), operands)->kernel);

  Step step{.kind = Step::Kind::library, .body = {product}};
  null->compile({}, step)->run(nullptr, nullptr, nullptr);
}
}  // namespace
}  // namespace weft::testing
