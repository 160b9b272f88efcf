// What the GPU emitters print: OpenCL C runs, against the reference, and CUDA C compiles. One of
// each form and type; all cases of the other files run this way in the test codegen.gpu.slow.
#include <cmath>
#include <string>

#include <doctest/doctest.h>

#include "tests/codegen/fused_step.h"
#include "weft/backends/cuda/nvrtc.h"
#include "weft/backends/opencl/cl_device.h"
#include "weft/base/error.h"
#include "weft/codegen/gpu_emit.h"
#include "weft/codegen/lower.h"
#include "weft/ops/ops.h"

using namespace weft;
using test::Case;
using test::check_on_gpu;

namespace {
ReduceOptions over(Dims axes) { return {.axes = axes, .keepdim = true}; }
Value f32(Shape shape, int index = 0) { return input({DType::f32, shape}, index); }
constexpr DType numbers[] = {DType::u8,  DType::i8,   DType::i16, DType::i32, DType::i64,
                             DType::f16, DType::bf16, DType::f32, DType::f64};

loop::GpuSchedule schedule_of(const Value& value) {
  return loop::schedule_gpu(loop::lower(test::FusedStep({value}).step));
}
std::string without(const std::string& text, const std::string& part) {
  std::string rest = text;
  rest.erase(rest.find(part), part.size());
  return rest;
}
// "" where `compile` takes the text.
template <class F>
std::string complaint(F&& compile) {
  try {
    compile();
  } catch (const InternalError& error) {
    return error.what();
  }
  return "";
}
}  // namespace

TEST_SUITE("codegen gpu") {
  TEST_CASE("elementwise kernels of every length, broadcast, transposed, flipped") {
    std::vector<Case> cases;
    for (int64_t n : {0, 1, 17, 1000, 20011}) cases.push_back({{f32({n}) + f32({n}, 1)}});
    Value x = input({DType::f32, {2, 3, 1, 4, 2, 5}}, 0),
          y = input({DType::f32, {2, 1, 3, 4, 1, 5}}, 1);
    cases.push_back({{x - y, maximum(x, 0.0)}});
    for (DType type : {DType::f32, DType::bf16, DType::boolean})
      cases.push_back({{cast(transpose(input({type, {100, 33}}, 0)), DType::f32) * 2.0}});
    Value image = f32({6, 20, 35});
    cases.push_back({{permute(image, {0, 2, 1}) + f32({6, 35, 20}, 1)}});
    cases.push_back({{flip(permute(image, {2, 1, 0}), {0, 2}) + f32({35, 20, 6}, 1)}});
    check_on_gpu(cases);
  }
  TEST_CASE("more positions than are launched at once") {
    check_on_gpu({{{f32({1100001}) * 2.0}}, {{sum(f32({8300, 300}), over({1}))}, 1e-5}});
    CHECK(schedule_of(sum(f32({8300, 300}), over({1}))).groups > loop::most_groups);
  }
  TEST_CASE("arithmetic and casts in every type") {
    std::vector<Case> cases;
    for (DType type : numbers) {
      Value a = input({type, {3, 68}}, 0), b = input({type, {3, 68}}, 1);
      Value c = abs(b) + 1;
      cases.push_back({{a + b, a - b, a * b, maximum(a, b), neg(a), abs(a), sign(a), a < b, a == b,
                        select(a >= b, a, b), remainder(a, c), floor_divide(a, c)}});
      std::vector<Value> casts;
      for (DType to : numbers)
        if (to != type) casts.push_back(cast(a, to));
      casts.push_back(cast(a, DType::boolean));
      cases.push_back({casts});
    }
    auto odd = [](const Value&, int64_t i) {
      constexpr double values[] = {0.5,
                                   -1.9999,
                                   65519.99,
                                   65520,
                                   1e30,
                                   1e-40,
                                   5.9e-8,
                                   2.98e-8,
                                   2.981e-8,
                                   1 + 0x1p-8,
                                   1 + 0x3p-9,
                                   NAN,
                                   INFINITY,
                                   -0.0,
                                   127.5,
                                   255.9,
                                   -2147483649.0,
                                   256,
                                   1 + 0x1p-8 + 0x1p-40};
      return values[i % std::size(values)];
    };
    for (DType from : {DType::f32, DType::f64}) {
      Value x = input({from, {40}}, 0);
      cases.push_back({{cast(x, DType::f16), cast(x, DType::bf16), cast(x, DType::f32)}, 0, odd});
    }
    check_on_gpu(cases);
  }
  TEST_CASE("mathematical functions") {
    std::vector<Case> cases;
    for (DType type : {DType::f32, DType::f64}) {
      Value x = input({type, {150}}, 0), y = input({type, {150}}, 1);
      Value z = x * 0.5;
      cases.push_back(
          {{exp(z),  exp2(z),  expm1(z),       log(z),      log2(z),  log10(z),     log1p(z),
            sqrt(z), rsqrt(z), sin(z),         cos(z),      tan(z),   asin(z),      acos(z),
            atan(z), sinh(z),  cosh(z),        tanh(z),     asinh(z), acosh(z),     atanh(z),
            erf(z),  erfc(z),  pow(abs(x), y), atan2(x, y), x / y,    reciprocal(y)},
           type == DType::f64 ? 1e-14 : 1e-6});
    }
    check_on_gpu(cases);
  }
  TEST_CASE("reductions of rows and columns, short, long and empty") {
    std::vector<Case> cases;
    for (int64_t n : {3, 100, 5000}) cases.push_back({{sum(f32({5, n}), over({1}))}, 1e-5});
    for (int64_t n : {3, 1000}) cases.push_back({{sum(f32({37, n}), over({0}))}, 1e-5});
    cases.push_back({{sum(f32({4, 7, 5, 19}), over({1, 3}))}, 1e-5});
    cases.push_back({{sum(f32({300000}), over({0}))}, 1e-4});
    cases.push_back({{sum(f32({20011, 10}), over({0})), max(f32({20011, 10}), over({0}))}, 1e-4});
    cases.push_back({{sum(f32({3, 0}), over({1})), prod(f32({3, 0}), over({1}))}});
    cases.push_back({{sum(f32({0, 3}), over({0}))}});
    for (Shape shape : {Shape{9, 33}, Shape{3, 70000}}) {
      Value x = f32(shape);
      cases.push_back(
          {{max(x, over({1})), min(x, over({1})), argmax(x, 1, true), argmin(x, 1, true)}});
    }
    auto with_nan = [](const Value&, int64_t i) {
      return i % 60 == 41 ? NAN : static_cast<double>(i % 9);
    };
    cases.push_back({{max(f32({4, 60}), over({1})), argmax(f32({4, 60}), 1, true)}, 0, with_nan});
    for (DType type : {DType::boolean, DType::i8, DType::i64, DType::bf16, DType::f64}) {
      Value x = input({type, {20, 45}}, 0);
      cases.push_back({{max(x, over({0})), min(x, over({0}))}});
    }
    check_on_gpu(cases);
  }
  TEST_CASE("several loops over the same rows, and reductions across them") {
    std::vector<Case> cases;
    cases.push_back({{softmax(f32({6, 1000}))}, 2e-6});
    cases.push_back({{softmax(f32({5, 20, 7}), 1)}, 2e-6});
    cases.push_back({{softmax(f32({2, 60000}))}, 2e-6});
    cases.push_back({{layer_norm(f32({9, 100}), reshape(f32({1, 100}, 1), {100}),
                                 reshape(f32({1, 100}, 2), {100}))},
                     2e-5});
    Value x = f32({300, 67}), dy = f32({300, 67}, 1);
    Value xhat = layer_norm(x);
    cases.push_back({{sum(dy * xhat, over({0})), sum(dy, over({0})), xhat * dy}, 1e-3});
    Value none = f32({0, 3});
    cases.push_back({{sum(none, over({0})), sum(none, over({1}))}});
    check_on_gpu(cases);
  }
  TEST_CASE("pads, gathers, concatenations, indices") {
    std::vector<Case> cases;
    Value x = f32({5, 6, 30});
    cases.push_back({{pad(x, {1, 0, 1}, {0, 3, 2}, 1)}});
    cases.push_back({{iota({4, 37}, 0) + iota({4, 37}, 1)}});
    std::vector<Value> columns{f32({4, 21}, 0), f32({4, 1}, 1), f32({4, 64}, 2)};
    cases.push_back({{relu(concat(columns, 1))}});
    auto fill = [](const Value& leaf, int64_t i) {
      return is_integer(leaf.dtype()) ? static_cast<double>(i * 5 % 11 - 2) : test::spread(leaf, i);
    };
    Value table = f32({7, 40}), ids = input({DType::i64, {3, 5}}, 1);
    cases.push_back({{gather(table, ids, 0)}, 0, fill});
    cases.push_back({{gather(table, ids, 1) * 2.0}, 0, fill});
    check_on_gpu(cases);
  }
  TEST_CASE("random numbers are those of the reference, bit for bit") {
    RandomKey key{.step = input({DType::i64, {}}, 0), .seed = 0x123456789abcdef, .stream = 77};
    auto steps = [](const Value& leaf, int64_t i) {
      return is_integer(leaf.dtype()) ? 12345.0 : test::spread(leaf, i);
    };
    check_on_gpu({{{uniform({7, 2, 3}, key)}, 0, steps},
                  {{uniform({5, 128}, key)}, 0, steps},
                  {{dropout(f32({40, 33}, 1), 0.3, key)}, 0, steps},
                  {{normal({300}, key)}, 1e-5, steps}});
  }

  TEST_CASE("neighbours are one access of 16 bytes where all of them are aligned") {
    CHECK(schedule_of(f32({8, 64}) + 1.0).vector == 4);
    CHECK(schedule_of(input({DType::bf16, {8, 64}}, 0) + 1.0).vector == 8);
    CHECK(schedule_of(f32({8, 62}) * f32({1, 62}, 1)).vector == 2);
    CHECK(schedule_of(f32({8, 63}) * f32({1, 63}, 1)).vector == 1);
  }
  TEST_CASE("long reductions are cut into as many chunks, whatever device there is") {
    CHECK(schedule_of(sum(f32({1 << 20}), over({0}))).chunks > 16);
    CHECK(schedule_of(sum(f32({4096, 1024}), over({1}))).chunks == 1);
  }
  TEST_CASE("what compilers refuse is shown with its line") {
    const test::FusedStep fused({f32({5}) + 1.0});
    const loop::Kernel kernel = loop::lower(fused.step);
    auto broken = [&](loop::GpuLanguage language) {
      const std::string text =
          emit_gpu(kernel, loop::schedule_gpu(kernel), language, "broken").source;
      return without(text, "const f32 v0 = ");
    };
    try {
      const std::string said =
          complaint([&] { opencl::open_device()->compile(broken(loop::GpuLanguage::opencl)); });
      CHECK(said.find("line ") != std::string::npos);
      CHECK(said.find("v0") != std::string::npos);
    } catch (const Error& none) {
      MESSAGE("skipped on OpenCL: " << none.what());
    }
    try {
      const std::string said = complaint([&] {
        cuda::Nvrtc().compile(
            gpu_prelude(loop::GpuLanguage::cuda) + broken(loop::GpuLanguage::cuda), 90);
      });
      CHECK(said.find("line ") != std::string::npos);
      CHECK(said.find("v0") != std::string::npos);
    } catch (const Error& none) {
      MESSAGE("CUDA C is not compiled: " << none.what());
    }
  }
}
