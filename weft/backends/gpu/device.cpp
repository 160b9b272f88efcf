#include "weft/backends/gpu/device.h"

#include <algorithm>
#include <cctype>
#include <exception>
#include <utility>
#include <vector>

#include "weft/base/error.h"
#include "weft/base/logging.h"
#include "weft/base/numbers/hash.h"
#include "weft/base/numbers/median.h"

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
  mutable std::vector<void*> addresses_;  // reused, as runs do not allocate
  std::vector<std::pair<Function, loop::GpuLaunch>> launches_;
};
}  // namespace

Program Device::compile(const std::string& source) {
  return programs_.get(source, [&] { return build(gpu_prelude(language()) + source); });
}

// The caller holds the mutex.
Selection& Device::selection() {
  if (!selection_) selection_.emplace(machine());
  return *selection_;
}

std::string Device::select(const std::string& signature,
                           const std::function<std::string()>& measure, const std::string& rule,
                           const std::function<void()>& prepare) {
  {
    std::lock_guard lock(mutex_);
    const std::optional<std::string> known = selection().find(signature);
    if (known || !tunes()) return selected_[signature] = known.value_or(rule);
  }
  const std::string found = measured_.get(signature, [&] {
    prepare();
    const std::lock_guard alone(measuring_);
    return measure();
  });
  std::lock_guard lock(mutex_);
  selection().record(signature, found);
  return selected_[signature] = found;
}

void Device::describe(const std::string& signature, const std::string& text) {
  std::lock_guard lock(mutex_);
  selected_[signature] = text;
}

std::map<std::string, std::string> Device::selected() const {
  std::lock_guard lock(mutex_);
  return selected_;
}

void Device::prefer(const std::map<std::string, std::string>& kernels) {
  std::lock_guard lock(mutex_);
  selection().prefer(kernels);
}

namespace {
// Returns the median seconds of a few runs with cold caches, after a first run that loads the code.
double median_time(Device& device, const std::function<void()>& begin) {
  constexpr int runs = 10;
  begin();
  const std::unique_ptr<Timeline> timeline = device.make_timeline();
  for (int k = 0; k < runs; ++k) {
    device.flush_caches();
    timeline->mark();
    begin();
    timeline->mark();
  }
  const std::vector<double> marks = timeline->seconds();
  std::vector<double> took;
  for (size_t k = 0; k + 1 < marks.size(); k += 2) took.push_back(marks[k + 1] - marks[k]);
  return median(std::move(took));
}
}  // namespace

size_t fastest(Device& device, size_t count, const std::function<void(size_t index)>& begin) {
  device.finish();  // reports failures of earlier kernels first
  std::optional<size_t> best;
  double least = 0;
  std::exception_ptr last_failure;
  for (size_t i = 0; i < count; ++i) {
    try {
      const double seconds = median_time(device, [&] { begin(i); });
      logging::debug(1, "measured number {} of {}: {:9.3f} ms", i, count, 1e3 * seconds);
      if (!best || seconds < least) best = i, least = seconds;
    } catch (const Error& failed) {
      logging::debug(1, "number {} of {} is skipped: {}", i, count, failed.what());
      last_failure = std::current_exception();
      try {
        device.finish();
      } catch (const Error& lost) {
        throw LostWhileMeasured(lost);
      }
    }
  }
  if (!best) std::rethrow_exception(last_failure);
  return *best;
}

namespace {
// Returns a C identifier.
std::string name_of(const Launch& launch, const std::string& source) {
  constexpr size_t most = 48;
  std::string kind = launch.kernel.substr(0, most);
  for (char& c : kind)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return fmt::format("{}_{:08x}", kind, static_cast<uint32_t>(hash_text(source)));
}
}  // namespace

loop::GpuKernel print_named(const Print& print, const Launch& launch) {
  const std::string name = name_of(launch, print("kernel").source);
  logging::debug(4, "kernel {} of {} is {}", launch.kernel, launch.module, name);
  return print(name);
}

std::unique_ptr<Kernel> make_kernel(Device& device, const Print& print, const Launch& launch) {
  const loop::GpuKernel printed = print_named(print, launch);
  WEFT_ASSERT(printed.scratch <= launch.workspace, "{} needs {} bytes of scratch, not {}",
              launch.kernel, printed.scratch, launch.workspace);
  return std::make_unique<Launches>(device, printed, launch.operands.size(), launch.results.size());
}

}  // namespace weft::gpu
