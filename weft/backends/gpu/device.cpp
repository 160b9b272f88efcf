#include "weft/backends/gpu/device.h"

#include <exception>
#include <utility>
#include <vector>

#include "weft/base/error.h"
#include "weft/base/logging.h"
#include "weft/base/stopwatch.h"

namespace weft::gpu {
namespace {
class Launches : public Kernel {
 public:
  Launches(Device& device, const loop::GpuKernel& printed, size_t operands, size_t results)
      : device_(device), operands_(operands), results_(results) {
    const Program program = device.compile(printed.source);
    for (const loop::GpuLaunch& launch : printed.launches)
      if (launch.groups > 0)
        launches_.push_back({device.function(program, launch.function), launch});
    addresses_.reserve(operands + results + 1);
  }

  void run(void* const* operands, void* const* results, void* workspace) const override {
    addresses_.assign(operands, operands + operands_);
    addresses_.insert(addresses_.end(), results, results + results_);
    addresses_.push_back(workspace);
    for (const auto& [function, launch] : launches_)
      device_.launch(function, addresses_, launch.groups, launch.threads);
  }

 private:
  Device& device_;
  size_t operands_, results_;
  mutable std::vector<void*> addresses_;  // of a run: a step allocates nothing
  std::vector<std::pair<Function, loop::GpuLaunch>> launches_;
};
}  // namespace

Program Device::compile(const std::string& source) {
  std::promise<Program> made;
  std::shared_future<Program> program;
  bool is_first = false;
  {
    std::lock_guard lock(mutex_);
    const auto [at, is_new] = programs_.try_emplace(source);
    if (is_new) at->second = made.get_future().share();
    program = at->second;
    is_first = is_new;
  }
  if (is_first) {
    try {
      made.set_value(build(gpu_prelude(language()) + source));
    } catch (...) {
      made.set_exception(std::current_exception());
      std::lock_guard lock(mutex_);
      programs_.erase(source);  // a later try may find more memory
    }
  }
  return program.get();
}

// With the mutex held.
Selection& Device::selection() {
  if (!selection_) selection_.emplace(machine());
  return *selection_;
}

std::string Device::select(const std::string& signature,
                           const std::function<std::string()>& measure, const std::string& rule) {
  std::lock_guard lock(mutex_);
  std::optional<std::string> known = selection().find(signature);
  if (!known && tunes()) {
    known = measure();
    selection().keep(signature, *known);
  }
  return selected_[signature] = known.value_or(rule);
}

std::map<std::string, std::string> Device::selected() const {
  std::lock_guard lock(mutex_);
  return selected_;
}

void Device::prefer(const std::map<std::string, std::string>& kernels) {
  std::lock_guard lock(mutex_);
  selection().prefer(kernels);
}

size_t fastest(Device& device, size_t count, const std::function<void(size_t index)>& begin) {
  constexpr int runs = 10;
  size_t best = 0;
  double least = 0;
  for (size_t i = 0; i < count; ++i) {
    begin(i);
    device.finish();
    Stopwatch watch;
    for (int k = 0; k < runs; ++k) begin(i);
    device.finish();
    const double took = watch.milliseconds() / runs;
    logging::debug(1, "measured number {} of {}: {:9.3f} ms", i, count, took);
    if (i == 0 || took < least) best = i, least = took;
  }
  return best;
}

std::unique_ptr<Kernel> make_kernel(Device& device, const loop::GpuKernel& printed,
                                    const Step& step) {
  WEFT_ASSERT(printed.scratch <= step.workspace, "{} needs {} bytes of scratch, not {}",
              step.kernel, printed.scratch, step.workspace);
  return std::make_unique<Launches>(device, printed, step.operands.size(), step.results.size());
}

}  // namespace weft::gpu
