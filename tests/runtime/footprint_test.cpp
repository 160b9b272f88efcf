#include "weft/runtime/footprint.h"

#include <vector>

#include <doctest/doctest.h>

#include "weft/ops/ops.h"

using namespace weft;

namespace {
// Returns a kernel launch with a result of `elements` numbers.
Launch kernel(Launch::Kind kind, int64_t elements) {
  Launch launch;
  launch.kind = kind;
  launch.kernel = "tanh";
  launch.results.push_back({input({DType::f32, {elements}}, 0), {}});
  return launch;
}
size_t bytes_of(int threads, const std::vector<Launch>& launches) {
  Plan plan;
  plan.launches = launches;
  const Plan* const plans[] = {&plan};
  return runtime_bytes(threads, plans);
}
}  // namespace

TEST_CASE("the compiler's estimated memory grows with distinct kernels") {
  const Launch small = kernel(Launch::Kind::fused, 8), large = kernel(Launch::Kind::fused, 9);
  const size_t none = bytes_of(2, {}), one = bytes_of(2, {small});
  const size_t alike = bytes_of(2, {small, small}), unlike = bytes_of(2, {small, large});
  CHECK(none < one);
  CHECK(one < alike);
  CHECK(alike < unlike);
  CHECK(unlike - none == 2 * (one - none));
}

TEST_CASE("a library kernel's estimated memory grows with the library's objects") {
  auto with = [](int objects) {
    Launch launch = kernel(Launch::Kind::library, 8);
    launch.objects = objects;
    return bytes_of(2, {launch}) - bytes_of(2, {});
  };
  CHECK(with(1) > with(0));
  CHECK(with(64) - with(0) == 64 * (with(1) - with(0)));
  CHECK(bytes_of(64, {}) > bytes_of(16, {}));
}
