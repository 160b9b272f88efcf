#include "weft/backends/opencl/opencl.h"

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "weft/backends/opencl/cl_device.h"
#include "weft/backends/opencl/cl_memory.h"
#include "weft/base/error.h"
#include "weft/base/log.h"
#include "weft/codegen/gpu_emit.h"
#include "weft/codegen/lower.h"
#include "weft/codegen/primitives.h"
#include "weft/ir/op_def.h"

namespace weft {
namespace opencl {
namespace {

class ClKernel : public Kernel {
 public:
  ClKernel(Device& device, const AddressedMemory& memory, const Program& program,
           const loop::GpuKernel& kernel, size_t operands, size_t results)
      : device_(device), memory_(memory), operands_(operands), results_(results) {
    places_.reserve(operands + results + 1);
    for (const loop::GpuLaunch& launch : kernel.launches)
      launches_.push_back({device.function(program, launch.function), launch});
  }

  void run(void* const* operands, void* const* results, void* workspace) const override {
    places_.clear();
    for (size_t i = 0; i < operands_; ++i) places_.push_back(memory_.place_of(operands[i]));
    for (size_t i = 0; i < results_; ++i) places_.push_back(memory_.place_of(results[i]));
    places_.push_back(memory_.place_of(workspace));
    for (const auto& [function, launch] : launches_)
      device_.launch(function, places_, launch.groups, launch.threads);
    places_.clear();  // they own what they name
  }

 private:
  Device& device_;
  const AddressedMemory& memory_;
  size_t operands_, results_;
  mutable std::vector<Place> places_;  // of a run: a step allocates nothing
  std::vector<std::pair<Function, loop::GpuLaunch>> launches_;
};

class OpenclLibrary : public KernelLibrary {
 public:
  OpenclLibrary() : device_(open_device()), memory_(*device_) {}

  std::string name() const override { return "opencl"; }
  bool generates() const override { return true; }
  DeviceMemory* memory() const override { return &memory_; }

  std::optional<KernelChoice> choose(const Node& node,
                                     std::span<const Placement> operands) const override {
    if (!loop::has_loops(node)) return std::nullopt;
    const Placement result{-1, 0, row_major_strides(node.type.shape)};
    return KernelChoice{
        .kernel = "loops:" + std::string(node.op->name),
        .workspace = loop::schedule_gpu(loop::lower_primitive(node, operands, result)).scratch};
  }

  size_t workspace(const Step& fused) const override {
    return loop::schedule_gpu(loop::lower(fused)).scratch;
  }

  std::unique_ptr<Kernel> compile(const Plan&, const Step& step) const override {
    const bool fused = step.kind == Step::Kind::fused;
    const loop::Kernel kernel = fused ? loop::lower(step) : loop::lower_primitive(step);
    const loop::GpuSchedule schedule = loop::schedule_gpu(kernel);
    if (debug_level() >= 5)
      log::debug(5, "{}:\n{}{}", step.kernel, to_text(kernel), to_text(schedule));
    const loop::GpuKernel printed = emit_gpu(kernel, schedule, loop::GpuLanguage::opencl, "kernel");
    WEFT_ASSERT(printed.scratch <= step.workspace, "{} needs {} bytes of scratch, not {}",
                step.kernel, printed.scratch, step.workspace);
    return std::make_unique<ClKernel>(*device_, memory_, program_of(printed.source), printed,
                                      step.operands.size(), step.results.size());
  }

 private:
  // Equal kernels are compiled once.
  Program program_of(const std::string& source) const {
    {
      std::lock_guard lock(mutex_);
      if (auto known = programs_.find(source); known != programs_.end()) return known->second;
    }
    Program program = device_->compile(gpu_prelude(loop::GpuLanguage::opencl) + source);
    std::lock_guard lock(mutex_);
    return programs_.emplace(source, std::move(program)).first->second;
  }

  std::unique_ptr<Device> device_;
  mutable AddressedMemory memory_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, Program> programs_;
};
}  // namespace
}  // namespace opencl

std::unique_ptr<KernelLibrary> opencl_library() {
  return std::make_unique<opencl::OpenclLibrary>();
}
}  // namespace weft
