// Tests products and convolutions of GPU emitters as gpu_test.cpp tests other kernels, and the
// vectors, chunks and thread groups that schedules choose for kernels of every kind.
#include <memory>
#include <string>

#include <doctest/doctest.h>

#include "tests/codegen/fused_launch.h"
#include "tests/codegen/gpu_cases.h"
#include "tests/support/cubin.h"
#include "tests/support/skip.h"
#include "weft/backends/cuda/nvrtc.h"
#include "weft/backends/opencl/cl_device.h"
#include "weft/base/error.h"
#include "weft/codegen/gpu_emit.h"
#include "weft/codegen/lower.h"
#include "weft/ir/op_def.h"
#include "weft/ops/autodiff.h"
#include "weft/ops/ops.h"

using namespace weft;
using test::Case;
using test::check_on_gpu;
using test::f32;
using test::numbers;
using test::over;
using test::schedule_of;

namespace {
bool contracts(const Value& value) {
  return schedule_of(value).form == loop::GpuSchedule::Form::contract;
}
// Returns a convolution and its gradients.
std::vector<Value> with_gradients(const Value& x, const Value& weight, const ConvOptions& options) {
  const Value y = conv(x, weight, {}, options);
  std::vector<Value> all = gradients(y, std::vector<Value>{x, weight}, input(y.type(), 2));
  all.insert(all.begin(), y);
  return all;
}
std::string without(const std::string& text, const std::string& part) {
  std::string rest = text;
  rest.erase(rest.find(part), part.size());
  return rest;
}
// Returns "" if `compile` accepts the source.
template <class F>
std::string complaint(F&& compile) {
  try {
    compile();
  } catch (const InternalError& error) {
    return error.what();
  }
  return "";
}
// Checks that kernels of large products spill no register on any of these generations.
void check_registers(const std::vector<int>& capabilities) {
  std::unique_ptr<cuda::Nvrtc> compiler;
  try {
    compiler = std::make_unique<cuda::Nvrtc>();
  } catch (const Error& none) {
    testing::skipped(none.what());
    return;
  }
  std::vector<Value> products;
  for (DType type : numbers)
    products.push_back(matmul(input({type, {4096, 1024}}, 0), input({type, {1024, 4096}}, 1)));
  for (const Value& y :
       with_gradients(f32({32, 128, 28, 28}), f32({128, 128, 3, 3}, 1), {.padding = {1, 1}}))
    products.push_back(y);
  products.push_back(matmul(f32({40000, 16}), f32({16, 40000}, 1)));
  CHECK(schedule_of(products.back()).wide);
  CHECK(!schedule_of(products.front()).wide);
  for (const Value& y : products) {
    const loop::Kernel kernel = test::FusedLaunch({y}).loops(loop::GpuLanguage::cuda);
    const loop::GpuSchedule schedule = loop::schedule_gpu(kernel, loop::GpuLanguage::cuda);
    const bool narrow = is_float(y.dtype()) && y.dtype() != DType::f64;  // 4-byte accumulators
    if (y->is("matmul"))
      CHECK(schedule.left.tile * schedule.right.tile == (narrow ? 128 * 128 : 64 * 64));
    const std::string source =
        gpu_prelude(loop::GpuLanguage::cuda) +
        emit_gpu(kernel, schedule, loop::GpuLanguage::cuda, "product").source;
    for (int capability : capabilities)
      for (const testing::KernelResources& one :
           testing::resources_of(compiler->compile(source, capability)))
        CHECK_MESSAGE(one.stack == 0, y->op->name << " " << name(y.dtype()) << " sm_" << capability
                                                  << ": " << one.registers << " registers, "
                                                  << one.stack << " bytes spilled");
  }
}
}  // namespace

TEST_SUITE("slow codegen gpu products") {
  TEST_CASE("large products keep their sums in registers on every generation") {
    check_registers({75, 80, 100});
  }
  TEST_CASE("products of odd extents are right: large and small, short and long contractions") {
    std::vector<Case> cases;
    struct Extents {
      int64_t m, k, n;
    };
    for (auto [m, k, n] : {Extents{1, 70, 300}, Extents{8, 30, 16}, Extents{100, 70, 33},
                           Extents{65, 4, 129}, Extents{7, 513, 130}, Extents{300, 9, 12},
                           Extents{33, 3000, 40}, Extents{128, 17, 200}, Extents{700, 16, 650}}) {
      CAPTURE(m);
      const Value y = matmul(f32({m, k}), f32({k, n}, 1));
      CHECK(contracts(y) == (m > 1));
      cases.push_back({{y}, 1e-4});
    }
    for (int64_t m : {2, 3, 5, 16})
      cases.push_back({{matmul(f32({m, 200}), f32({200, 64}, 1))}, 1e-4});
    for (auto [m, k, n] : {Extents{0, 5, 40}, Extents{40, 0, 50}, Extents{40, 5, 0}})
      cases.push_back({{matmul(f32({m, k}), f32({k, n}, 1))}});
    check_on_gpu(cases);
  }
  TEST_CASE("batched products are right with broadcast and transposed operands") {
    std::vector<Case> cases;
    cases.push_back({{matmul(f32({3, 40, 24}), f32({3, 24, 36}, 1))}, 1e-5});
    cases.push_back({{matmul(f32({2, 3, 20, 24}), f32({1, 3, 24, 50}, 1))}, 1e-5});
    cases.push_back({{matmul(f32({4, 1, 20, 24}), f32({1, 3, 24, 50}, 1))}, 1e-5});
    cases.push_back({{matmul(f32({300, 20, 24}), f32({300, 24, 20}, 1))}, 1e-5});
    auto turned = [](const Value& x) { return transpose(x); };
    const Value a = f32({48, 36}), b = f32({36, 60}, 1), at = f32({36, 48}), bt = f32({60, 36}, 1);
    cases.push_back({{matmul(turned(at), b)}, 1e-5});
    cases.push_back({{matmul(a, turned(bt))}, 1e-5});
    cases.push_back({{matmul(turned(at), turned(bt))}, 1e-5});
    cases.push_back({{matmul(a, turned(a))}, 1e-5});
    // Heads of attention are permuted views of [batch, row, head, column].
    auto heads = [](int leaf) { return permute(f32({2, 40, 3, 16}, leaf), {0, 2, 1, 3}); };
    cases.push_back({{matmul(heads(0), permute(f32({2, 40, 3, 16}, 1), {0, 2, 3, 1}))}, 1e-5});
    cases.push_back({{matmul(f32({2, 3, 40, 40}), heads(1))}, 1e-5});
    for (const Case& one : cases) CHECK(contracts(one.outputs.front()));
    check_on_gpu(cases);
  }
  TEST_CASE("products support every type") {
    std::vector<Case> cases;
    for (DType type : numbers) {
      const Value a = input({type, {70, 40}}, 0), b = input({type, {40, 88}}, 1);
      const double tolerance = type == DType::f16 ? 2e-3 : type == DType::bf16 ? 1e-2 : 1e-5;
      cases.push_back(
          {{matmul(a, b)}, is_float(type) ? type == DType::f64 ? 1e-14 : tolerance : 0});
      cases.push_back({{matmul(transpose(input({type, {44, 70}}, 0)), input({type, {44, 8}}, 1))},
                       cases.back().tolerance});
    }
    for (const Case& one : cases) CHECK(contracts(one.outputs.front()));
    check_on_gpu(cases);
  }
  TEST_CASE("convolutions and their gradients support strides, dilation, padding and groups") {
    std::vector<Case> cases;
    auto add = [&](const Shape& x, const Shape& weight, const ConvOptions& options,
                   DType type = DType::f32) {
      const double tolerance = type == DType::bf16 ? 2e-2 : type == DType::f64 ? 1e-13 : 1e-4;
      for (const Value& y : with_gradients(input({type, x}, 0), input({type, weight}, 1), options))
        cases.push_back({{y}, tolerance});
    };
    add({2, 8, 15, 13}, {20, 8, 3, 3}, {.padding = {1, 1}});
    add({2, 16, 14, 15}, {24, 16, 3, 2}, {.stride = {2, 3}, .padding = {1, 0}});
    add({2, 9, 14, 12}, {10, 9, 3, 3}, {.padding = {2, 2}, .dilation = {2, 2}});
    add({3, 32, 9, 9}, {48, 16, 3, 3}, {.stride = {2, 2}, .padding = {1, 1}, .groups = 2});
    add({4, 16, 7, 7}, {32, 16, 1, 1}, {});
    for (const Case& one : cases) CHECK(contracts(one.outputs.front()));
    add({2, 6, 9, 9}, {6, 1, 3, 3}, {.padding = {1, 1}, .groups = 6});
    add({2, 1, 12, 12}, {6, 1, 5, 5}, {});
    add({1, 8, 12, 12}, {16, 8, 3, 3}, {.padding = {1, 1}}, DType::bf16);
    add({1, 8, 12, 12}, {16, 8, 3, 3}, {.stride = {2, 2}}, DType::f64);
    check_on_gpu(cases);
  }
}

TEST_SUITE("codegen gpu products") {
  TEST_CASE("any sum of products contracts with its prologue and epilogue fused") {
    std::vector<Case> cases;
    const Value a = f32({50, 1, 90}), b = f32({1, 70, 90}, 1), bias = f32({1, 70, 1}, 2);
    cases.push_back({{relu(sum(a * b, over({2})) + bias)}, 1e-5});
    cases.push_back(
        {{sum(cast(input({DType::i8, {50, 1, 90}}, 0), DType::f32) * exp(b), over({2}))}, 1e-4});
    cases.push_back({{sum(pad(f32({50, 1, 80}), {0, 0, 6}, {0, 0, 4}, 0.5) * b, over({2})),
                      sum(pad(f32({50, 1, 80}), {0, 0, 6}, {0, 0, 4}, 0.5) * b, over({2})) * 2.0},
                     1e-5});
    cases.push_back(
        {{sum(f32({3, 50, 1, 90}) * f32({3, 1, 70, 90}, 1), over({3})) * f32({3, 50, 70, 1}, 2)},
         5e-5});
    for (const Case& one : cases) CHECK(contracts(one.outputs.front()));
    cases.push_back({{sum(a * b, over({2})), max(a * b, over({2}))}, 1e-5});
    check_on_gpu(cases);
  }
  TEST_CASE("convolutions with non-square windows and their gradients are right") {
    std::vector<Case> cases;
    for (const Value& y : with_gradients(f32({2, 4, 9, 8}), f32({6, 2, 3, 2}, 1),
                                         {.stride = {2, 1}, .padding = {1, 0}, .groups = 2}))
      cases.push_back({{y}, 1e-5});
    check_on_gpu(cases);
  }
  TEST_CASE("long contractions with few results are split into chunks") {
    const Value few = matmul(f32({20, 8000}), f32({8000, 36}, 1));
    CHECK(schedule_of(few).chunks > 16);
    CHECK(schedule_of(matmul(f32({2048, 4096}), f32({4096, 2048}, 1))).chunks == 1);
    check_on_gpu({{{few}, 1e-3}});
  }
  TEST_CASE("large products keep their sums in registers") { check_registers({90}); }
  TEST_CASE("products of few rows by few columns reduce with all threads and no shared memory") {
    const Value y = matmul(f32({8, 3000}), f32({3000, 8}, 1));
    CHECK(!contracts(y));
    CHECK(schedule_of(y).threads == 256);
    check_on_gpu({{{y}, 1e-3}});
  }
  TEST_CASE("products may have more tiles than thread groups in a launch") {
    const Value y = matmul(f32({4100, 40, 2}), f32({4100, 2, 36}, 1));
    CHECK(schedule_of(y).groups > loop::most_groups);
    check_on_gpu({{{y}, 1e-5}});
  }

  TEST_CASE(
      "neighbouring elements are accessed as 16-byte vectors where all operands are aligned") {
    CHECK(schedule_of(f32({8, 64}) + 1.0).vector == 4);
    CHECK(schedule_of(input({DType::bf16, {8, 64}}, 0) + 1.0).vector == 8);
    CHECK(schedule_of(f32({8, 62}) * f32({1, 62}, 1)).vector == 2);
    CHECK(schedule_of(f32({8, 63}) * f32({1, 63}, 1)).vector == 1);
  }
  TEST_CASE("rows of any length are read as vectors with a scalar tail") {
    std::vector<Case> cases;
    for (DType type : {DType::f32, DType::bf16, DType::f64}) {
      const Value rows = slice(input({type, {5, 5008}}, 0), 1, 0, 5003);
      cases.push_back({{max(rows, over({1})), argmax(rows, 1, true)}});
      cases.push_back({{sum(cast(rows, DType::f32), over({1}))}, 1e-5});
      const Value row = input({type, {20011}}, 0);
      cases.push_back({{softmax(row, 0)}, type == DType::bf16 ? 1e-2 : 1e-5});
    }
    const Value long_row = f32({300003});
    cases.push_back({{sum(long_row, over({0})), max(long_row, over({0}))}, 1e-4});
    cases.push_back({{long_row - sum(long_row, over({0})) * 1e-3}, 1e-3});
    for (const Shape& shape : {Shape{3, 20'000}, Shape{1, 20'003}}) {  // large groups on CUDA
      const Value row = f32(shape);
      cases.push_back({{softmax(row), max(row, over({1}))}, 1e-5});
    }
    check_on_gpu(cases);
    CHECK(schedule_of(sum(slice(f32({5, 5008}), 1, 0, 5003), over({1}))).tail == 3);
    CHECK(schedule_of(sum(long_row, over({0}))).chunks > 1);
    CHECK(schedule_of(sum(long_row, over({0}))).tail == 3);
    CHECK(schedule_of(sum(f32({5, 5003}), over({1}))).tail == 0);
  }
  TEST_CASE(
      "long reductions are split into a number of chunks that does not depend on the device") {
    CHECK(schedule_of(sum(f32({1 << 20}), over({0}))).chunks > 16);
    CHECK(schedule_of(sum(f32({4096, 1024}), over({1}))).chunks == 1);
  }
  TEST_CASE("long rows that are read several times use large thread groups on CUDA") {
    auto threads_of = [](int64_t row, loop::GpuLanguage language, DType dtype = DType::f32) {
      return schedule_of(softmax(input({dtype, {4096, row}}, 0)), language).threads;
    };
    CHECK(threads_of(50257, loop::GpuLanguage::cuda) == 1024);
    CHECK(threads_of(50257, loop::GpuLanguage::cuda, DType::f64) == 512);
    CHECK(threads_of(50257, loop::GpuLanguage::opencl) == 256);
    CHECK(threads_of(4096, loop::GpuLanguage::cuda) == 256);
    CHECK(schedule_of(sum(f32({4096, 50257}), over({1}))).threads == 256);  // read once
  }
  TEST_CASE("a compile error is shown with its source line") {
    const test::FusedLaunch fused({f32({5}) + 1.0});
    const loop::Kernel kernel = loop::lower(fused.launch);
    auto broken = [&](loop::GpuLanguage language) {
      const std::string text =
          emit_gpu(kernel, loop::schedule_gpu(kernel, language), language, "broken").source;
      return without(text, "const f32 v0 = ");
    };
    try {
      const std::string said =
          complaint([&] { opencl::open_device()->compile(broken(loop::GpuLanguage::opencl)); });
      CHECK(said.find("line ") != std::string::npos);
      CHECK(said.find("v0") != std::string::npos);
    } catch (const Error& none) {
      testing::skipped(none.what());
    }
    try {
      const std::string said = complaint([&] {
        cuda::Nvrtc().compile(
            gpu_prelude(loop::GpuLanguage::cuda) + broken(loop::GpuLanguage::cuda), 90);
      });
      CHECK(said.find("line ") != std::string::npos);
      CHECK(said.find("v0") != std::string::npos);
    } catch (const Error& none) {
      testing::skipped(none.what());
    }
  }
}
