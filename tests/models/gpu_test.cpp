// The kernels of whole training steps, fused ones and primitives, as CUDA C and as OpenCL C; what
// registers they take.
#include <algorithm>
#include <memory>
#include <set>
#include <string>

#include <doctest/doctest.h>

#include "tests/models/training.h"
#include "tests/support/cubin.h"
#include "weft/backends/cuda/nvrtc.h"
#include "weft/backends/opencl/cl_device.h"
#include "weft/base/error.h"
#include "weft/codegen/gpu_emit.h"
#include "weft/codegen/lower.h"
#include "weft/codegen/primitives.h"
#include "weft/runtime/executable.h"

using namespace weft;
using namespace weft::testing;

namespace {
struct Program {
  std::string source;
  std::set<std::string> functions;
};

// All of them in one program, each once.
Program program_of(const std::string& model, loop::GpuLanguage language) {
  Training training(model, "adamw", 4,
                    {.device = language == loop::GpuLanguage::cuda ? "null:cuda" : "null:opencl"});
  std::set<std::string> known;
  Program program;
  for (const Step& step : training.executable().plan().steps) {
    const bool fused = step.kind == Step::Kind::fused;
    if (!fused && (step.body.empty() || !loop::has_loops(*step.body.front().node()))) continue;
    const loop::Kernel kernel = fused ? loop::lower(step) : loop::lower_primitive(step);
    if (!known.insert(to_text(kernel)).second) continue;
    const loop::GpuKernel printed =
        emit_gpu(kernel, loop::schedule_gpu(kernel), language, "k" + std::to_string(known.size()));
    program.source += printed.source;
    for (const loop::GpuLaunch& launch : printed.launches)
      program.functions.insert(launch.function);
  }
  CHECK(known.size() > 5);
  return program;
}

std::unique_ptr<cuda::Nvrtc> nvrtc() {
  try {
    return std::make_unique<cuda::Nvrtc>();
  } catch (const Error& none) {
    MESSAGE("skipped: " << none.what());
    return nullptr;
  }
}

// No kernel spills registers; their helpers have entries of their own.
void check_resources(const std::string& where, const Program& program, const std::string& cubin) {
  size_t found = 0;
  int most = 0;
  for (const KernelResources& kernel : resources_of(cubin)) {
    if (!program.functions.contains(kernel.name)) continue;
    CHECK_MESSAGE(kernel.stack == 0, where << ' ' << kernel.name << ": " << kernel.registers
                                           << " registers, " << kernel.stack << " bytes spilled");
    most = std::max(most, kernel.registers);
    ++found;
  }
  CHECK(found == program.functions.size());
  MESSAGE(where << ": " << found << " kernels, of at most " << most << " registers");
}

void check_cuda(const std::vector<std::string>& models, const std::vector<int>& capabilities) {
  const auto compiler = nvrtc();
  if (compiler == nullptr) return;
  const std::string prelude = gpu_prelude(loop::GpuLanguage::cuda);
  for (const std::string& model : models) {
    const Program program = program_of(model, loop::GpuLanguage::cuda);
    for (int capability : capabilities)
      check_resources(model + " sm_" + std::to_string(capability), program,
                      compiler->compile(prelude + program.source, capability));
  }
}
}  // namespace

// 64 numbers that all wait for a sum of them, in the 32 registers that so many threads leave.
TEST_CASE("registers that a kernel spills are found in its machine code") {
  const auto compiler = nvrtc();
  if (compiler == nullptr) return;
  auto kernel_of = [](const std::string& bounds) {
    return "extern \"C\" __global__ void __launch_bounds__(" + bounds +
           ") kernel(float* x) { float a[64], sum = 0; for (int i = 0; i < 64; ++i) "
           "sum += a[i] = x[threadIdx.x + 64 * i]; __syncthreads(); "
           "for (int i = 0; i < 64; ++i) x[threadIdx.x + 64 * i] = a[i] / sum; }";
  };
  for (int capability : {75, 80, 90, 100}) {
    const auto few = resources_of(compiler->compile(kernel_of("1024, 2"), capability));
    const auto many = resources_of(compiler->compile(kernel_of("128"), capability));
    auto is_kernel = [](const KernelResources& one) { return one.name == "kernel"; };
    const auto spills = std::ranges::find_if(few, is_kernel);
    const auto fits = std::ranges::find_if(many, is_kernel);
    REQUIRE(spills != few.end());
    REQUIRE(fits != many.end());
    CHECK(spills->stack >= 64);
    CHECK(fits->stack == 0);
    CHECK(spills->registers < fits->registers);
  }
}

TEST_CASE("CUDA C of a step's kernels compiles") { check_cuda({"mlp"}, {75, 80, 90, 100}); }

TEST_SUITE("slow gpu kernels of models") {
  TEST_CASE("CUDA C of every model's kernels compiles for every architecture") {
    check_cuda(families, {75, 80, 90, 100});
  }
  TEST_CASE("OpenCL C of every model's kernels compiles") {
    std::unique_ptr<gpu::Device> device;
    try {
      device = opencl::open_device();
    } catch (const Error& none) {
      MESSAGE("skipped: " << none.what());
      return;
    }
    for (const std::string& model : families) {
      CAPTURE(model);
      CHECK(device->compile(program_of(model, loop::GpuLanguage::opencl).source) != nullptr);
    }
  }
}
