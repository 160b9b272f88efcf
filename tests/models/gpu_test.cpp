// The kernels of whole training steps, fused ones and primitives, as CUDA C and as OpenCL C.
#include <memory>
#include <set>
#include <string>

#include <doctest/doctest.h>

#include "tests/models/training.h"
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
// All of them in one program, each once.
std::string program_of(const std::string& model, loop::GpuLanguage language) {
  Training training(model, "adamw", 4, {.device = "null"});
  std::set<std::string> known;
  std::string source;
  for (const Step& step : training.executable().plan().steps) {
    const bool fused = step.kind == Step::Kind::fused;
    if (!fused && (step.body.empty() || !loop::has_loops(*step.body.front().node()))) continue;
    const loop::Kernel kernel = fused ? loop::lower(step) : loop::lower_primitive(step);
    if (!known.insert(to_text(kernel)).second) continue;
    source +=
        emit_gpu(kernel, loop::schedule_gpu(kernel), language, "k" + std::to_string(known.size()))
            .source;
  }
  CHECK(known.size() > 5);
  return source;
}

void check_cuda(const std::vector<std::string>& models, const std::vector<int>& capabilities) {
  std::unique_ptr<cuda::Nvrtc> compiler;
  try {
    compiler = std::make_unique<cuda::Nvrtc>();
  } catch (const Error& none) {
    MESSAGE("skipped: " << none.what());
    return;
  }
  for (const std::string& model : models) {
    CAPTURE(model);
    const std::string source =
        gpu_prelude(loop::GpuLanguage::cuda) + program_of(model, loop::GpuLanguage::cuda);
    for (int capability : capabilities) CHECK(!compiler->compile(source, capability).empty());
  }
}
}  // namespace

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
      CHECK(device->compile(program_of(model, loop::GpuLanguage::opencl)) != nullptr);
    }
  }
}
