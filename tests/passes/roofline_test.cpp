// In the roofline, products run at the peak of their operands' type, all else at float32's.
#include <limits>

#include <doctest/doctest.h>

#include "tests/support/near.h"
#include "weft/device/catalogue.h"
#include "weft/device/device.h"
#include "weft/device/registry.h"
#include "weft/device/spec.h"
#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"
#include "weft/passes/memory/launches.h"

using namespace weft;
using weft::testing::near;

namespace {
const MachineSpec machine{
    .flops_per_s = 100, .bytes_per_s = 10, .f64_flops_per_s = 50, .bf16_flops_per_s = 1600};

Value matrix(DType dtype) { return input({dtype, {4, 4}}, 0); }
Launch step_of(const Value& value) { return {.body = {value}, .flops = 800, .bytes = 20}; }
}  // namespace

TEST_CASE("the peak of a kernel is that of its products' type") {
  auto product = [](DType dtype) { return step_of(matmul(matrix(dtype), matrix(dtype))); };
  CHECK(computed_in(product(DType::bf16)) == DType::bf16);
  CHECK(roofline(product(DType::f32), machine).compute == near(8));
  CHECK(roofline(product(DType::f64), machine).compute == near(16));
  CHECK(roofline(product(DType::bf16), machine).compute == near(0.5));
  const Value sums = matrix(DType::f32), factor = matrix(DType::bf16);
  CHECK(computed_in(step_of(make_node(op("matmul_add"), {sums, factor, factor}))) == DType::bf16);
  Launch wide = step_of(matmul(matrix(DType::bf16), matrix(DType::bf16)));
  CHECK(roofline(wide, machine).memory == near(2));
  CHECK(!roofline(wide, machine).compute_bound());
}

TEST_CASE("kernels without products count as float32, or float64 where a value has it") {
  CHECK(computed_in(step_of(exp(matrix(DType::bf16)))) == DType::f32);
  CHECK(computed_in(step_of(exp(matrix(DType::f64)))) == DType::f64);
  CHECK(computed_in({}) == DType::f32);
}

TEST_CASE("measured peaks replace those of the data sheet where both are known") {
  CHECK(!machine.was_measured());
  MachineSpec measured = machine;
  measured.measured_half_flops_per_s = 800;
  CHECK(measured.was_measured());
  const Launch product = step_of(matmul(matrix(DType::bf16), matrix(DType::bf16)));
  CHECK(roofline(product, measured).compute == near(0.5));  // times follow the data sheet
  CHECK(roofline(product, as_measured(measured)).compute == near(1));
  CHECK(roofline(product, as_measured(measured)).memory == near(2));
  CHECK(as_measured(measured).f16_flops_per_s == 0);  // the device has no cores for float16
  measured.measured_bytes_per_s = 5;
  CHECK(roofline(product, measured).memory == near(2));
  CHECK(roofline(product, as_measured(measured)).memory == near(4));
}

TEST_CASE("costs on the host and on unknown machines follow a generic processor's spec") {
  const MachineSpec host = library("cpu").meters().spec();
  CHECK(host.known());
  CHECK(host.name.empty());
  CHECK(library("reference").meters().spec().flops_per_s == host.flops_per_s);
  Launch product = step_of(matmul(matrix(DType::f32), matrix(DType::f32)));
  for (const MachineSpec& of : {host, MachineSpec{}}) {
    CHECK(cost(product, of) == 80);  // 800 operations at 10 operations per byte
    product.bytes = 300;
    CHECK(cost(product, of) == 300);
    product.bytes = 20;
  }
}

TEST_CASE("likely times of kernels agree with published times of an H100 and an H200") {
  for (const char* gpu : {"h100", "h200"}) {
    CAPTURE(gpu);
    const MachineSpec spec = spec_of(*find_gpu(gpu));
    // Products with K = 768 reach 610 to 670 TFLOP/s.
    constexpr int64_t m = 65536, k = 768, n = 3072;
    const Value product = matmul(input({DType::bf16, {m, k}}, 0), input({DType::bf16, {k, n}}, 1));
    Launch launch{.body = {product},
                  .results = {{product, {.strides = {n, 1}}}},
                  .flops = 2.0 * m * k * n,
                  .bytes = 2.0 * (m * k + k * n + m * n)};
    const double products = launch.flops / likely_seconds(launch, spec) / 1e12;
    CHECK(products > 610);
    CHECK(products < 670);
    // Tensor cores are slow on rows that are no multiple of 16 bytes.
    launch.results[0].value =
        matmul(input({DType::bf16, {m, k}}, 0), input({DType::bf16, {k, n + 1}}, 1));
    launch.results[0].at.strides = {n + 1, 1};
    CHECK(launch.flops / likely_seconds(launch, spec) / 1e12 < 400);
    // Attention with heads of 64 reaches about 290 TFLOP/s (Shah et al. 2024, "FlashAttention-3").
    const Value heads = input({DType::bf16, {64, 12, 1024, 64}}, 0);
    const Launch attend{.body = {attention(heads, heads, heads)},
                        .flops = 4.0 * 64 * 12 * 1024 * 1024 * 64,
                        .bytes = 4.0 * 2 * 64 * 12 * 1024 * 64};
    const double attention_rate = attend.flops / likely_seconds(attend, spec) / 1e12;
    CHECK(attention_rate > 275);
    CHECK(attention_rate < 305);
    // Its backward pass has five products instead of two and reaches 260 to 350 TFLOP/s (ibid.).
    const Value gradients =
        make_node(op("attention_backward"),
                  {heads, heads, heads, heads, heads,
                   make_node(op("attention_logsumexp"), {heads, heads, heads}, {{"causal", 1}})},
                  {{"causal", 1}});
    const Launch back{.body = {gradients}, .flops = 2.5 * attend.flops, .bytes = 2 * attend.bytes};
    const double backward_rate = back.flops / likely_seconds(back, spec) / 1e12;
    CHECK(backward_rate > 260);
    CHECK(backward_rate < 350);
    // Norms reach 60 to 75 % of the bandwidth. Elementwise kernels are faster, and every launch
    // costs time.
    const Value rows = input({DType::f32, {m, k}}, 0);
    const double traffic = 2.0 * 4 * m * k, best = traffic / spec.bytes_per_s;
    const auto part = [&](const Value& value) {
      return best / likely_seconds({.body = {value}, .bytes = traffic}, spec);
    };
    for (const Value& norm : {softmax(rows), layer_norm(rows), rms_norm(rows)}) {
      CHECK(part(norm) > 0.6);
      CHECK(part(norm) < 0.75);
    }
    CHECK(part(exp(rows)) > 0.8);
    CHECK(part(exp(rows)) < 1);
    CHECK(likely_seconds({.body = {exp(matrix(DType::f32))}}, spec) > 1e-6);
  }
}

TEST_CASE("unknown peaks default to float32's and an unknown machine has no time") {
  CHECK(MachineSpec{.flops_per_s = 7}.flops_per_s_in(DType::bf16) == 7);
  CHECK(roofline(step_of(exp(matrix(DType::f32))), {}).seconds() == 0);
}

TEST_CASE("repeated reads of a kernel take time but are no part of the roofline") {
  MachineSpec gpu = machine;
  gpu.sustained = Sustained{.rows = 0.5, .launch = 1};
  Launch launch = step_of(sum(matrix(DType::f32)));
  launch.flops = 0;
  CHECK(likely_seconds(launch, gpu) == near(20 / 10.0 / 0.5 + 1));
  launch.reread = {.bytes = 10};
  CHECK(likely_seconds(launch, gpu) == near(30 / 10.0 / 0.5 + 1));
  CHECK(roofline(launch, gpu).seconds() == near(2));
}

TEST_CASE("repeated reads are served by the L2 cache as far as half of it holds them") {
  MachineSpec gpu = machine;
  gpu.sustained = Sustained{};
  Launch launch = step_of(sum(matrix(DType::f32)));
  launch.flops = 0;
  const auto traffic = [&](double in_flight) {
    launch.reread = {.bytes = 10, .in_flight = in_flight};
    return likely_seconds(launch, gpu) * gpu.bytes_per_s;
  };
  CHECK(traffic(1) == near(30));  // a machine with a cache of unknown size
  gpu.processors = 4;
  CHECK(traffic(1) == near(30));
  gpu.second_level_cache = 160;
  CHECK(traffic(1) == near(20));
  CHECK(traffic(20) == near(20));
  CHECK(traffic(40) == near(25));
  CHECK(traffic(200) == near(29));
  CHECK(traffic(std::numeric_limits<double>::infinity()) == near(30));
  launch.reread = {};
  CHECK(likely_seconds(launch, gpu) * gpu.bytes_per_s == near(20));
}
