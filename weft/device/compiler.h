// Declares the interface that compiles the launches of a plan, and describes their kernels
// beforehand.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/base/error.h"
#include "weft/device/kernel_code.h"
#include "weft/ir/plan.h"

namespace weft {

class Kernel {
 public:
  virtual ~Kernel() = default;
  // Runs or enqueues the kernel. Each pointer is the start of a slot (kernels know offsets and
  // strides); operands, results and workspace follow the order of the Launch. Allocates nothing.
  virtual void run(void* const* operands, void* const* results, void* workspace) const = 0;
  // Receives, once after it was compiled, the variables that its operands are, in the order of the
  // launch; null for other operands. A kernel that keeps a variable packed learns from it when the
  // variable was written.
  virtual void bind_variables(std::span<const std::shared_ptr<VariableState>> operands) {
    (void)operands;
  }
  // Receives, once before the first run, the arguments that all runs will have.
  virtual void bind(void* const* operands, void* const* results, void* workspace) const {
    (void)operands, (void)results, (void)workspace;
  }
};

// A KernelForm describes fused launches whose kernels differ only in element counts and addresses.
struct KernelForm {
  std::string text;           // equal for kernels that may share a launch (Launch::parts)
  std::vector<int> operands;  // operands in an order common to all kernels of this form
};

// LostWhileMeasured says that a kernel under measurement has made the device unusable; later
// failures follow from that.
struct LostWhileMeasured : Error {
  explicit LostWhileMeasured(const Error& lost) : Error(lost) {}
};

class KernelCompiler {
 public:
  virtual ~KernelCompiler() = default;

  // Returns whether fused elementwise, reduce, movement, gather and random nodes can be generated.
  virtual bool generates() const = 0;
  // Returns the bytes of workspace that a generated kernel needs.
  virtual size_t workspace(const Launch& fused) const {
    (void)fused;
    return 0;
  }
  // Returns the repeated reads of the kernel's loops, as far as they are known (Launch::reread).
  virtual Reread reread(const Launch& fused) const {
    (void)fused;
    return {};
  }
  // Returns nullopt where the kernel cannot share a launch with others.
  virtual std::optional<KernelForm> form(const Launch& fused) const {
    (void)fused;
    return std::nullopt;
  }

  // Called from several threads at once.
  virtual std::unique_ptr<Kernel> compile(const Plan& plan, const Launch& launch) const = 0;
  // Returns a text that differs where code() of equal kernels does on one machine: versions of the
  // code generator and of its compiler.
  virtual std::string identity() const { return ""; }
  // From collect_code() on, collects the machine code of the kernels that it generates; code()
  // returns it, for a file. Empty where the device has none.
  virtual void collect_code() const {}
  virtual std::vector<KernelCode> code() const { return {}; }
  // Adds code of another process: kernels of the same loops are linked from it instead of being
  // compiled. It is executed, so it must come from a place that may be trusted.
  virtual void add_code(const std::vector<KernelCode>& codes) const { (void)codes; }
  // Records the kernel runs that `enqueue` issues, without executing them, as one kernel without
  // operands: one launch (a graph) where the device can, else a call of `enqueue`.
  virtual std::unique_ptr<Kernel> record(std::function<void()> enqueue) const;
};

}  // namespace weft
