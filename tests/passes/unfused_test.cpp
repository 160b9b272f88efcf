// Tests each reason why fusion leaves a value in memory between two kernels, on the smallest graph
// that has it.
#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "tests/passes/graphs.h"
#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"
#include "weft/passes/passes.h"

using namespace weft;
using namespace weft::testing;

namespace {
struct Drawn {
  std::vector<Value> inputs = {};
  Value in(const Shape& shape) {
    inputs.push_back(input({DType::f32, shape}, static_cast<int>(inputs.size())));
    return inputs.back();
  }
  Plan plan(std::vector<Value> outputs, const std::vector<std::string>& skip = {}) const {
    const PlanningLibrary library;
    return make_plan({.inputs = inputs, .outputs = std::move(outputs)},
                     {.library = &library, .threads = 1, .step = {.skip = skip}, .verify = true});
  }
};

// Maps kernels that read another kernel's result to the reason; each reads one such value.
std::map<std::string, FusionRefusal> reasons(const Plan& plan) {
  std::map<std::string, FusionRefusal> all;
  for (const Launch& launch : plan.launches)
    for (const auto& [operand, reason] : launch.unfused) {
      CHECK(std::ranges::any_of(launch.operands, [operand](const Access& access) {
        return access.value->id == operand;
      }));
      all.emplace(launch.kernel, reason);
    }
  return all;
}
using Reasons = std::map<std::string, FusionRefusal>;
}  // namespace

TEST_CASE("a value with a second reader is stored by the first kernel") {
  Drawn of;
  const Value sum = of.in({64, 64}) + of.in({64, 64});
  const Value product = matmul(exp(sum), of.in({64, 64}));
  CHECK(reasons(of.plan({neg(product) * sum})) == Reasons{{"neg.mul", FusionRefusal::stored}});
}

TEST_CASE("a fusion that would make a cycle is refused") {
  Drawn of;
  const Value sum = of.in({64, 64}) + of.in({64, 64});
  CHECK(reasons(of.plan({exp(sum) + matmul(sum, sum)})) ==
        Reasons{{"exp.add", FusionRefusal::cycle}});
}

TEST_CASE("a kernel does not gather from a value that it stores itself") {
  Drawn of;
  const Value sum = of.in({64, 64}) + of.in({64, 64}), order = input({DType::i64, {64}}, 2);
  of.inputs.push_back(order);
  CHECK(reasons(of.plan({sum * gather(sum, order)})) ==
        Reasons{{"gather.mul", FusionRefusal::gathered}});
}

TEST_CASE("a cycle through a kernel with nodes before and after its target is refused") {
  // `late` stores `early`, which `sum` reads: with `base` inside, `sum` would feed the products on
  // which `late` waits. The quick search ends at `late`'s product, which is after `sum`.
  Drawn of;
  const Value base = of.in({64, 64}) * of.in({64, 64});
  const Value product = matmul(base, of.in({64, 64}));
  const Value early = exp(of.in({64, 64}));
  const Value sum = base + transpose(early);
  const Value late = early + matmul(product, of.in({64, 64}));
  const Plan plan = of.plan({sum, late});
  CHECK(plan.launches.size() == 5);
  CHECK(reasons(plan) == Reasons{{"add", FusionRefusal::cycle}});
}

TEST_CASE("a fusion of loops over other axes is refused") {
  Drawn of;
  const Value sum = of.in({64, 32}) + of.in({64, 32});
  CHECK(reasons(of.plan({neg(transpose(sum))})) == Reasons{{"neg", FusionRefusal::other_axes}});
  const Value both = of.in({64, 64}) + of.in({64, 64});
  CHECK(reasons(of.plan({both * transpose(both)})) == Reasons{{"mul", FusionRefusal::other_axes}});
  const Value columns =
      weft::sum(of.in({64, 32}) * of.in({64, 32}), {.axes = {0}, .keepdim = true});
  CHECK(reasons(of.plan({weft::sum(columns * of.in({1, 32}), {.axes = {1}})})) ==
        Reasons{{"mul.sum", FusionRefusal::other_axes}});
}

TEST_CASE("a fusion that exceeds the largest kernel is refused") {
  Drawn of;
  Value sum = of.in({8});
  for (int i = 0; i < 70; ++i) sum = sum + of.in({8});
  const Reasons found = reasons(of.plan({sum}));
  REQUIRE(found.size() == 1);
  CHECK(found.begin()->second == FusionRefusal::too_large);
}

TEST_CASE("an operand that is gathered by index is stored and not fused") {
  Drawn of;
  const Value sum = of.in({8, 8}) + of.in({8, 8});
  CHECK(reasons(of.plan({neg(pad(sum, {1, 0}, {0, 0}))})) ==
        Reasons{{"pad.neg", FusionRefusal::gathered}});
}

TEST_CASE("a compressed activation is computed in the kernel of its operand") {
  Drawn of;
  const Value sum = of.in({8, 8}) + of.in({8, 8});
  const Value kept = make_node(op("cast"), {sum}, {{"dtype", static_cast<int64_t>(DType::bf16)}},
                               {.compressed = true});
  CHECK(reasons(of.plan({exp(cast(kept, DType::f32))})) ==
        Reasons{{"cast.exp", FusionRefusal::compressed}});
}

TEST_CASE("a value that a kernel needs in another layout is copied") {
  Drawn of;
  const Value sum = of.in({64, 32}) + of.in({64, 32});
  CHECK(reasons(of.plan({matmul(transpose(sum), of.in({64, 16}))})) ==
        Reasons{{"copy", FusionRefusal::copied}});
}

TEST_CASE("a plan without the fusion pass has no refusals and inputs need none") {
  Drawn of;
  const Value sum = of.in({64, 64}) + of.in({64, 64});
  CHECK(reasons(of.plan({exp(sum)})).empty());
  CHECK(reasons(of.plan({exp(sum)}, {"fuse"})) == Reasons{{"exp", FusionRefusal::none}});
}
