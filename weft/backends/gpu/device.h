// A Device is a GPU for generated kernels: addressable memory, programs, and an in-order queue.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "weft/base/made_once.h"
#include "weft/base/memory/device_memory.h"
#include "weft/codegen/gpu_join.h"
#include "weft/device/compiler.h"
#include "weft/device/meters.h"
#include "weft/device/selection.h"

namespace weft::gpu {

using Program = std::shared_ptr<void>;   // a compiled program
using Function = std::shared_ptr<void>;  // a kernel of a program; keeps it alive

class Device : public DeviceMemory {
 public:
  virtual std::string name() const = 0;
  virtual std::string machine() const = 0;  // the device and versions that measurements depend on
  virtual loop::GpuLanguage language() const = 0;
  virtual bool has_float64() const { return true; }
  virtual DeviceMeters meters() const { return {}; }

  std::unique_lock<std::recursive_mutex> enter() override { return std::unique_lock(issuing_); }

  // Compiles `source` after the prelude of its language; equal sources are compiled once. Throws
  // InternalError with the compiler's messages and the source lines that they name. Thread-safe.
  Program compile(const std::string& source);
  virtual Function function(const Program& program, const std::string& name) = 0;
  // Enqueues a kernel and returns before it has run. `addresses` has device memory, or null, for
  // each parameter that GpuKernel lists.
  virtual void launch(const Function& function, std::span<void* const> addresses, int64_t groups,
                      int threads) = 0;
  // Records the launches that `enqueue` issues, without executing them, as one kernel without
  // operands that issues them all in each run (a CUDA graph); null: not supported.
  virtual std::unique_ptr<Kernel> record(const std::function<void()>& enqueue) = 0;
  // Wraps a kernel so that profilers of the device show it under this name, where they can.
  virtual std::unique_ptr<Kernel> named(std::unique_ptr<Kernel> kernel,
                                        const std::string& name) const {
    (void)name;
    return kernel;
  }

  // Returns the kernel to use for `signature`: the result of an earlier measurement or, with
  // WEFT_TUNE, of `measure`; else `rule`. One measurement runs at a time; `prepare` builds the
  // candidates for `measure` while other measurements run.
  std::string select(
      const std::string& signature, const std::function<std::string()>& measure,
      const std::string& rule, const std::function<void()>& prepare = [] {});
  // Makes selected() report `text` for the signature: the same choice with more details.
  void describe(const std::string& signature, const std::string& text);
  std::map<std::string, std::string> selected() const;
  void prefer(const std::map<std::string, std::string>& kernels);

 private:
  virtual Program build(const std::string& source) = 0;

  Selection& selection();

  std::recursive_mutex issuing_;
  mutable std::mutex mutex_;
  MadeOnce<Program> programs_;  // by source
  std::optional<Selection> selection_;
  std::map<std::string, std::string> selected_;
  std::mutex measuring_;
  MadeOnce<std::string> measured_;  // choices by signature
};

// Returns the index of the fastest of `count` candidates that `begin` enqueues, by the median of a
// few runs with cold caches. Skips candidates that fail; rethrows the last failure if all fail.
size_t fastest(Device& device, size_t count, const std::function<void(size_t index)>& begin);

// A Print function returns a kernel whose names begin with the given prefix.
using Print = std::function<loop::GpuKernel(const std::string& prefix)>;
// Prints a kernel under a name for profilers: the launch's kernel and a hash of the text.
loop::GpuKernel print_named(const Print& print, const Launch& launch);
// Makes the kernel of `launch` from the GPU launches that `print` returns.
std::unique_ptr<Kernel> make_kernel(Device& device, const Print& print, const Launch& launch);

}  // namespace weft::gpu
