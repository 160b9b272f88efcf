// Steps become kernels of a backend, and are known as such before they are compiled.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/base/error.h"
#include "weft/ir/plan.h"

namespace weft {

class Kernel {
 public:
  virtual ~Kernel() = default;
  // Pointers of operands, results (each to its slot; kernels know offsets and strides) and scratch,
  // in the order of the Step. Allocates nothing.
  virtual void run(void* const* operands, void* const* results, void* workspace) const = 0;
  // Called with what runs will be given, once before the first of them.
  virtual void bind(void* const* operands, void* const* results, void* workspace) const {
    (void)operands, (void)results, (void)workspace;
  }
};

// What the kernels of some fused steps have in common, but for their number of elements and where
// those lie.
struct KernelForm {
  std::string text;           // equal where the kernels may be one launch (Step::parts)
  std::vector<int> operands;  // the step's, in the order that is the same in all of these steps
};

// A kernel that was measured has lost the device: whatever else fails then fails for that.
struct LostWhileMeasured : Error {
  explicit LostWhileMeasured(const Error& lost) : Error(lost) {}
};

class KernelCompiler {
 public:
  virtual ~KernelCompiler() = default;

  // Whether fused steps of elementwise, reduce, movement, gather and random nodes can be generated.
  virtual bool generates() const = 0;
  // Bytes of scratch that a generated kernel needs for a fused step.
  virtual size_t workspace(const Step& fused) const {
    (void)fused;
    return 0;
  }
  // What the kernel's loops read again, as far as is known (Step::reread).
  virtual Reread reread(const Step& fused) const {
    (void)fused;
    return {};
  }
  // nullopt: its kernel is a launch of its own.
  virtual std::optional<KernelForm> form(const Step& fused) const {
    (void)fused;
    return std::nullopt;
  }

  // Called from several threads at once.
  virtual std::unique_ptr<Kernel> compile(const Plan& plan, const Step& step) const = 0;
  // The runs of kernels in `enqueue`, which nothing runs now, as one kernel without operands: one
  // launch where the device can, else one that calls `enqueue`.
  virtual std::unique_ptr<Kernel> record(std::function<void()> enqueue) const;
};

}  // namespace weft
