// Which kernels there are: what a backend's library can run, how it wants its operands, and how its
// results are laid out. Passes ask this; nothing here needs the device.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/base/alignment.h"
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

// Which kernels do which nodes. A run that goes on has the kernels with which it began, and one
// that was refused is not chosen again: so choosing remembers, though it is const.
class KernelChooser {
 public:
  virtual ~KernelChooser() = default;

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
  // Whether such a kernel can compute this composite of a product's sums as it stores them, and a
  // composite of nothing else beside the sums, rounded. What the composite decomposes to is then
  // known by it (Annotations::composite), and mixed precision rounds the sums for all readers.
  virtual bool is_epilogue(const Node& composite) const {
    (void)composite;
    return false;
  }

  // Whether the step's kernel is one of a vendor's library, which may refuse to compile or to run
  // it on the device that is here.
  virtual bool may_refuse(const Step& step) const {
    (void)step;
    return false;
  }
  // No later plan has the step's kernel for operands of these types.
  virtual void avoid(const Step& step) const { (void)step; }

  // Kernels that were chosen where several could do the same, by what they were chosen for.
  virtual std::map<std::string, std::string> selection() const { return {}; }
  // What they were chosen on: processor, cores, instruction sets, versions of libraries.
  virtual std::string machine() const { return ""; }
  // From now on these.
  virtual void prefer(const std::map<std::string, std::string>& kernels) const { (void)kernels; }
};

}  // namespace weft
