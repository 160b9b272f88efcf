// Tests pools of GPUs on images whose channels are innermost, as convolutions on tensor cores store
// them. The OpenCL C runs and is compared with the interpreter.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/backends/opencl_library.h"
#include "tests/support/interpreter.h"
#include "tests/support/planned.h"
#include "tests/support/values.h"
#include "weft/backends/cuda/cuda_backend.h"
#include "weft/backends/gpu/library.h"
#include "weft/codegen/gpu_emit.h"
#include "weft/codegen/gpu_schedule.h"
#include "weft/codegen/primitives.h"
#include "weft/ops/autodiff.h"
#include "weft/ops/ops.h"
#include "weft/passes/passes.h"

namespace weft::testing {
namespace {
constexpr auto cuda_language = loop::GpuLanguage::cuda;

struct GpuPoolGeometry {
  DType dtype;
  int64_t channels, height, width;
  PoolOptions options;
};
const std::vector<GpuPoolGeometry> gpu_pool_geometries = {
    {DType::bf16, 16, 9, 7, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}},
    {DType::bf16, 12, 8, 8, {.kernel = {2, 2}}},
    {DType::f32, 8, 11, 10, {.kernel = {2, 2}, .stride = {3, 3}}},
    {DType::f32, 3, 6, 17, {.kernel = {1, 4}, .stride = {1, 3}, .padding = {0, 2}}},
};

// Returns both pools and their gradients. Images have many ties, a nan, and windows of -inf alone.
std::vector<Value> pools_of(GpuPoolGeometry geometry) {
  Random random(5);
  const Value whole = round(random_values(
      {geometry.dtype, {2, geometry.height, geometry.width, geometry.channels}}, -3, 3, random));
  const Shape& shape = whole.shape();
  Value stored = select(whole >= 1, -std::numeric_limits<double>::infinity(), whole);
  stored = interpret(select(logical_and(iota(shape, 1) == 3, iota(shape, 3) == 2), NAN, stored));
  const Value x = permute(stored, {0, 3, 1, 2});
  std::vector<Value> values;
  auto add = [&](const Value& y) {
    const Shape at{y.dim(0), y.dim(2), y.dim(3), y.dim(1)};
    const Value dy = permute(random_values({geometry.dtype, at}, -1, 1, random), {0, 3, 1, 2});
    values.push_back(y);
    values.push_back(gradients(y, std::vector<Value>{x}, dy).front());
  };
  add(max_pool(x, geometry.options));
  for (bool counts : {false, true}) {
    geometry.options.count_include_pad = counts;
    add(avg_pool(x, geometry.options));
  }
  return values;
}

std::vector<Launch> pools_in(const Value& value) {
  const auto planner = gpu::make_library("cuda", cuda_language, nullptr);
  Graph graph;
  graph.outputs = {value};
  std::vector<Launch> launches;
  for (const Launch& launch : make_plan(graph, {.library = planner.get()}).launches)
    if (launch.kernel.find("pool") != std::string::npos) launches.push_back(launch);
  return launches;
}
}  // namespace

namespace {
void check_gpu_pools(const GpuPoolGeometry& geometry) {
  const KernelLibrary* library = generated_opencl_library();
  if (library == nullptr) return;
  Graph graph;
  graph.outputs = pools_of(geometry);
  const std::string wrong =
      disagreement(run_planned(graph, {}, *library), interpret_with_errors(graph), *library);
  CHECK_MESSAGE(wrong.empty(), wrong);
}
}  // namespace

TEST_SUITE("slow gpu kernels") {
  TEST_CASE("pools without padding agree with the interpreter where channels are innermost") {
    check_gpu_pools(gpu_pool_geometries[1]);
    check_gpu_pools(gpu_pool_geometries[2]);
  }
}

TEST_SUITE("gpu kernels") {
  TEST_CASE("pools and their gradients agree with the interpreter where channels are innermost") {
    check_gpu_pools(gpu_pool_geometries.front());  // whole vectors of channels
    check_gpu_pools(gpu_pool_geometries.back());   // and none
  }
  TEST_CASE("a pool stores in the layout in which it reads, in vectors of channels") {
    for (const Value& value : pools_of(gpu_pool_geometries.front())) {
      const std::vector<Launch> launches = pools_in(value);
      REQUIRE(launches.size() == 1);
      const Dims& strides = launches[0].results[0].at.strides;
      CHECK(strides[1] == 1);
      CHECK(strides[3] == gpu_pool_geometries.front().channels);
      const loop::Kernel kernel = loop::lower_primitive(launches[0]);
      const loop::GpuSchedule schedule = loop::schedule_gpu(kernel, cuda_language);
      CHECK(schedule.vector >= 4);
      for (const loop::Instruction& in : kernel.code)
        if (in.op == loop::Op::load) CHECK(loop::is_vector(kernel, in, schedule.vector_axis));
    }
  }
}
}  // namespace weft::testing
