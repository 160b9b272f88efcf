// What a backend implements: a KernelLibrary that says what it can run and how it wants its
// operands, and compiles steps into kernels. Interfaces only; backends include this, never each
// other.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/base/alignment.h"
#include "weft/base/device_memory.h"
#include "weft/device/spec.h"
#include "weft/ir/plan.h"

namespace weft {

// Elements of a row that is filled up: to a multiple of 128 bytes, or of as few (at least the 16
// that a thread of a GPU reads at once) as add no more than an eighth. Rows of whole multiples of
// 16 bytes, and rows too short for that, stay as they are.
inline int64_t padded_row(int64_t elements, DType dtype) {
  constexpr size_t least = 16, most = 128, part = 8;
  const size_t bytes = static_cast<size_t>(elements) * size_of(dtype);
  size_t unit = most;
  while (unit > least && bytes < part * unit) unit /= 2;
  const bool stays = bytes % least == 0 || bytes < part * unit;
  return stays ? elements : static_cast<int64_t>(aligned(bytes, unit) / size_of(dtype));
}

// Memory from the first element of an operand or a result on that a kernel reads and fills beyond
// the elements.
struct Room {
  Dims strides;          // between elements, where they must lie otherwise than they do
  int64_t elements = 0;  // 0: no more than the elements reach
};

// How a library kernel wants a node's operands and how it lays out its result.
struct KernelChoice {
  std::string kernel;               // "dnnl:conv"
  std::vector<Dims> operand_order;  // per input: axes from outermost to innermost, then dense;
                                    // empty: any strides that `accepts` said yes to
  int64_t alignment = 1;            // in bytes, of what such an order is asked of: what begins
                                    // elsewhere is copied
  Dims result_order;                // axes of the node's result, outermost first; empty: row-major
  bool padded_rows = false;         // of the result (padded_row)
  // Of operands, then of results: the kernel is faster where all have it (Step::padded). Empty: it
  // has no use for any.
  std::vector<Room> rooms = {};
  size_t workspace = 0;       // bytes
  size_t most_workspace = 0;  // that a faster algorithm may want, where the arena has room for it
  std::optional<int> in_place =
      {};  // operand whose memory the result may take over where both lie alike
  // A product whose elements are summed so many terms at a time, in order, whatever its extents
  // are; 0: nothing is said. A part of such a product that the same kernel computes has the same
  // bits.
  int64_t depth = 0;
};

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

// What a device says of itself; nullopt: it does not.
struct DeviceMeters {
  std::optional<double> joules = {};  // since some moment before the process began
  std::optional<double> watts = {}, celsius = {};
  std::string slowed_by = {};  // what holds its clocks down, in words; "": nothing
};

class KernelLibrary {
 public:
  virtual ~KernelLibrary() = default;
  virtual std::string name() const = 0;

  // Whether fused steps of elementwise, reduce, movement, gather and random nodes can be generated.
  virtual bool generates() const = 0;
  // The kernel that does `node` as a step of its own; nullopt: fuse or decompose it.
  // `operands[i]` is how input i lies if it is used as it is (slot is not meaningful).
  virtual std::optional<KernelChoice> choose(const Node& node,
                                             std::span<const Placement> operands) const = 0;
  // The kernel that does a node and what is computed beside as one step: `body`, the node first. It
  // stores `results`, in that order. `operands` are the node's inputs, then what else the body
  // reads. nullopt: as several steps.
  virtual std::optional<KernelChoice> choose_with(std::span<const Value> body,
                                                  std::span<const Value> results,
                                                  std::span<const Placement> operands) const {
    (void)body, (void)results, (void)operands;
    return std::nullopt;
  }
  // Whether such a kernel can store a product's sums, rounded, beside this function of them. Mixed
  // precision then rounds them for all that read them.
  virtual bool stores_sums_beside(const Node& function) const {
    (void)function;
    return false;
  }
  // Kernels that were chosen where several could do the same, by what they were chosen for.
  virtual std::map<std::string, std::string> selection() const { return {}; }
  // What they were chosen on: processor, cores, instruction sets, versions of libraries.
  virtual std::string machine() const { return ""; }
  // From now on these: a run that goes on has the kernels with which it began.
  virtual void prefer(const std::map<std::string, std::string>& kernels) const { (void)kernels; }
  // Bytes of scratch that a generated kernel needs for a fused step; asked before it is compiled.
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
  // Whether kernels find operands and results in the host's memory.
  virtual bool on_host() const { return true; }
  // Where they find them. Throws Error(device) where there is no device.
  virtual DeviceMemory& memory() const { return host_memory(); }
  // Whether the inputs of a step arrive in memory of their own, while the step before it runs.
  virtual bool stages_inputs() const { return false; }
  // What the device can do at best, and what memory a run can have of it; nullopt: unknown, or the
  // host, of which others know.
  virtual std::optional<MachineSpec> spec() const { return std::nullopt; }
  virtual DeviceMeters meters() const { return {}; }
  // The runs of kernels in `enqueue`, which nothing runs now, as one kernel without operands; null:
  // cannot be.
  virtual std::unique_ptr<Kernel> record(const std::function<void()>& enqueue) const {
    (void)enqueue;
    return nullptr;
  }
  // Called from several threads at once.
  virtual std::unique_ptr<Kernel> compile(const Plan& plan, const Step& step) const = 0;
  // Whether the step's kernel is one of a vendor's library, which may refuse to compile or to run
  // it on the device that is here.
  virtual bool may_refuse(const Step& step) const {
    (void)step;
    return false;
  }
  // No later plan has the step's kernel for operands of these types.
  virtual void avoid(const Step& step) const { (void)step; }
};

}  // namespace weft
