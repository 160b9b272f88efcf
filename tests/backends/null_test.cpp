#include "weft/backends/null/null.h"

#include <doctest/doctest.h>

#include "weft/backends/reference/reference.h"
#include "weft/ops/ops.h"

namespace weft::testing {
namespace {

TEST_CASE("the null library chooses the kernels of the library it wraps and touches no memory") {
  const auto real = reference_library();
  const auto null = null_library(*real);
  const Value a = input({DType::f32, {4, 5}}, 0), b = input({DType::f32, {5, 6}}, 1);
  const Value product = matmul(a, b);
  const Placement operands[] = {{.strides = {5, 1}}, {.strides = {6, 1}}};
  CHECK(null->name() == "null");
  CHECK(null->only_plans());
  CHECK(!real->only_plans());
  CHECK(null->compiler().generates() == real->compiler().generates());
  CHECK(null->kernels().choose(*product.node(), operands)->kernel ==
        real->kernels().choose(*product.node(), operands)->kernel);

  Launch launch{.kind = Launch::Kind::library, .body = {product}};
  null->compiler().compile({}, launch)->run(nullptr, nullptr, nullptr);
}

TEST_CASE("a device without graph capture replays a recorded launch sequence on each run") {
  int runs = 0;
  const auto recorded = reference_library()->compiler().record([&] { ++runs; });
  CHECK(runs == 0);
  recorded->run(nullptr, nullptr, nullptr);
  recorded->run(nullptr, nullptr, nullptr);
  CHECK(runs == 2);
}

TEST_CASE("the empty library offers and compiles no kernel") {
  const Value product = matmul(input({DType::f32, {4, 5}}, 0), input({DType::f32, {5, 6}}, 1));
  CHECK(!no_library().kernels().choose(*product.node(), {}));
  CHECK(!no_library().compiler().generates());
  CHECK_THROWS_AS(no_library().compiler().compile({}, {.kernel = "add"}), InternalError);
}
}  // namespace
}  // namespace weft::testing
