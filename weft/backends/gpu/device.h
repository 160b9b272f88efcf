// A GPU as generated kernels see it: memory at addresses, programs, and a queue that does
// everything in order.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "weft/base/device_memory.h"
#include "weft/base/made_once.h"
#include "weft/codegen/gpu_join.h"
#include "weft/device/compiler.h"
#include "weft/device/meters.h"
#include "weft/device/selection.h"

namespace weft::gpu {

using Program = std::shared_ptr<void>;   // compiled
using Function = std::shared_ptr<void>;  // a kernel of a program; keeps it alive

class Device : public DeviceMemory {
 public:
  virtual std::string name() const = 0;
  virtual std::string machine() const = 0;  // what a measurement on it stands for
  virtual loop::GpuLanguage language() const = 0;
  virtual bool has_float64() const { return true; }
  virtual DeviceMeters meters() const { return {}; }

  // Below the prelude of its language; equal sources are compiled once, by whom comes first. Throws
  // InternalError with what the compiler says and the lines it speaks of. Called from several
  // threads at once.
  Program compile(const std::string& source);
  virtual Function function(const Program& program, const std::string& name) = 0;
  // `addresses`: of memory of this device, or null, one for each of what GpuKernel lists. Returns
  // before it has run.
  virtual void launch(const Function& function, std::span<void* const> addresses, int64_t groups,
                      int threads) = 0;
  // What `enqueue` puts into the queue, without doing it, as a kernel without operands that does it
  // all at each run; null: this device cannot.
  virtual std::unique_ptr<Kernel> record(const std::function<void()>& enqueue) = 0;
  // For profilers of the device: a kernel that is shown under this name, or as it is.
  virtual std::unique_ptr<Kernel> named(std::unique_ptr<Kernel> kernel,
                                        const std::string& name) const {
    (void)name;
    return kernel;
  }

  // The kernel of several that could do the same, by what it is chosen for: what an earlier
  // measurement found or, with WEFT_TUNE, `measure` finds; else `rule`. One is measured at a time;
  // what it needs, `prepare` builds before, while others are measured.
  std::string select(
      const std::string& signature, const std::function<std::string()>& measure,
      const std::string& rule, const std::function<void()>& prepare = [] {});
  // What selected() says of it from now on: the same, and more words behind.
  void describe(const std::string& signature, const std::string& text);
  std::map<std::string, std::string> selected() const;
  void prefer(const std::map<std::string, std::string>& kernels);

 private:
  virtual Program build(const std::string& source) = 0;

  Selection& selection();

  mutable std::mutex mutex_;
  MadeOnce<Program> programs_;  // by source
  std::optional<Selection> selection_;
  std::map<std::string, std::string> selected_;
  std::mutex measuring_;
  MadeOnce<std::string> measured_;  // what was chosen, by signature
};

// The fastest of `count` that `begin` puts into the queue, by the median of a few runs of each on
// cold caches. Those that fail are passed over; where all do, throws what the last one threw.
size_t fastest(Device& device, size_t count, const std::function<void(size_t index)>& begin);

// What it yields has names that begin with the prefix that it is given.
using Print = std::function<loop::GpuKernel(const std::string& prefix)>;
// With names that say what the step's kernel does, and of which text it is: profilers of the device
// show them.
loop::GpuKernel print_named(const Print& print, const Step& step);
// A kernel of `step` that is the launches of what `print` yields.
std::unique_ptr<Kernel> make_kernel(Device& device, const Print& print, const Step& step);

}  // namespace weft::gpu
