// What a kernel needs at best: its products in the type of their operands, all else in float32.
#include <doctest/doctest.h>

#include "tests/support/near.h"
#include "weft/device/spec.h"
#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"

using namespace weft;
using weft::testing::near;

namespace {
const MachineSpec machine{
    .flops_per_s = 100, .bytes_per_s = 10, .f64_flops_per_s = 50, .bf16_flops_per_s = 1600};

Value leaf(DType dtype) { return input({dtype, {4, 4}}, 0); }
Step step_of(const Value& value) { return {.body = {value}, .flops = 800, .bytes = 20}; }
}  // namespace

TEST_CASE("the peak of a kernel is that of the type of its products") {
  auto product = [](DType dtype) { return step_of(matmul(leaf(dtype), leaf(dtype))); };
  CHECK(computed_in(product(DType::bf16)) == DType::bf16);
  CHECK(roofline(product(DType::f32), machine).compute == near(8));
  CHECK(roofline(product(DType::f64), machine).compute == near(16));
  CHECK(roofline(product(DType::bf16), machine).compute == near(0.5));
  const Value sums = leaf(DType::f32), factor = leaf(DType::bf16);
  CHECK(computed_in(step_of(make_node(op("matmul_add"), {sums, factor, factor}))) == DType::bf16);
  Step wide = step_of(matmul(leaf(DType::bf16), leaf(DType::bf16)));
  CHECK(roofline(wide, machine).memory == near(2));
  CHECK(!roofline(wide, machine).compute_bound());
}

TEST_CASE("what is no product is computed in float32, or in float64 where a value is") {
  CHECK(computed_in(step_of(exp(leaf(DType::bf16)))) == DType::f32);
  CHECK(computed_in(step_of(exp(leaf(DType::f64)))) == DType::f64);
  CHECK(computed_in({}) == DType::f32);
}

TEST_CASE("peaks that are not known are float32's; without those nothing is known") {
  CHECK(MachineSpec{.flops_per_s = 7}.flops_per_s_in(DType::bf16) == 7);
  CHECK(roofline(step_of(exp(leaf(DType::f32))), {}).seconds() == 0);
}

TEST_CASE("what the loops of a kernel read again takes time, but is no part of the roofline") {
  MachineSpec gpu = machine;
  gpu.sustained = Sustained{.rows = 0.5, .launch = 1};
  Step step = step_of(sum(leaf(DType::f32)));
  step.flops = 0;
  CHECK(likely_seconds(step, gpu) == near(20 / 10.0 / 0.5 + 1));
  step.reread = 10;
  CHECK(likely_seconds(step, gpu) == near(30 / 10.0 / 0.5 + 1));
  CHECK(roofline(step, gpu).seconds() == near(2));
}
