// Declares the interface by which passes ask a backend which nodes its library can run, which
// layouts it needs for operands, and how it lays out results. Nothing here needs the device.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/base/memory/alignment.h"
#include "weft/ir/plan.h"

namespace weft {

// Returns the elements of a padded row: the row is rounded up to a multiple of 128 bytes, or of the
// largest smaller power of two (at least 16, the widest load of a GPU thread) that adds no more
// than an eighth. Rows that are multiples of 16 bytes, or too short for such padding, keep their
// length.
inline int64_t padded_row(int64_t elements, DType dtype) {
  constexpr size_t least = 16, most = 128, part = 8;
  const size_t bytes = static_cast<size_t>(elements) * size_of(dtype);
  size_t unit = most;
  while (unit > least && bytes < part * unit) unit /= 2;
  const bool stays = bytes % least == 0 || bytes < part * unit;
  return stays ? elements : static_cast<int64_t>(aligned(bytes, unit) / size_of(dtype));
}

// A Room is the memory from the first element of an operand or a result that a kernel may read and
// write, including padding beyond the elements.
struct Room {
  Dims strides;          // element strides that the kernel needs; empty: any
  int64_t elements = 0;  // extent in elements; 0: no padding
};

// A KernelChoice is a node's library kernel with the layouts of its operands and its result.
struct KernelChoice {
  std::string kernel;               // its name, for people: "dnnl:conv"
  int algorithm = 0;                // which of the library's kernels it is, by numbers of its own
  std::vector<Dims> operand_order;  // per input: axes from outermost to innermost, then dense;
                                    // empty: the strides that choose() was given
  int64_t alignment = 1;            // in bytes, of operands with an `operand_order`; operands of
                                    // less alignment are copied
  Dims result_order;                // axes of results of the node's shape, outermost first; empty:
                                    // row-major
  bool padded_rows = false;         // rows of the result are padded by padded_row
  // `rooms` describes the padded memory of the operands, then of the results. The kernel is faster
  // if all of them are padded like this (Launch::padded). Empty: padding does not help.
  std::vector<Room> rooms = {};
  size_t workspace = 0;       // bytes
  size_t most_workspace = 0;  // bytes for a faster algorithm, if the arena has space
  // Bytes in which the kernel packs fixed variables (Annotations::fixed) in a layout of its own
  // from run to run; it packs them anew after they were written.
  size_t packed_bytes = 0;
  // This names the layout in which the kernel packs its last input. Kernels of a plan that pack the
  // same input in the same layout share the packed bytes; empty: the kernel has bytes of its own.
  std::string packed_layout = {};
  int objects = 0;  // objects that the library makes for the kernel on these threads
  std::optional<int> in_place = {};  // operand whose memory the result may alias
  // `depth` is the count of terms that a matrix product sums at a time, in order, independent of
  // its extents; 0: not known. The same kernel then computes a part of the product with the same
  // bits.
  int64_t depth = 0;
};

// A KernelSource has kernels for nodes: a backend's library as a whole, or one of the libraries
// that it consists of.
class KernelSource {
 public:
  virtual ~KernelSource() = default;

  // Returns the kernel that runs `node` as a launch of its own; nullopt: fuse or decompose the
  // node. `operands[i]` places input i if it is not copied (its slot has no meaning).
  virtual std::optional<KernelChoice> choose(const Node& node,
                                             std::span<const Placement> operands) const = 0;
  // Returns the kernel that runs a node together with its epilogue in one launch. `body` begins
  // with the node; the kernel stores `results`, in that order. `operands` are the node's inputs,
  // then the other values that the body reads. nullopt: use several launches.
  virtual std::optional<KernelChoice> choose_with(std::span<const Value> body,
                                                  std::span<const Value> results,
                                                  std::span<const Placement> operands) const {
    (void)body, (void)results, (void)operands;
    return std::nullopt;
  }
  // Returns whether the kernel of a matrix product can compute this composite, whose operands are
  // the product's sums and at most one other value, as its epilogue. The composite's decomposition
  // is then annotated with it (Annotations::composite), and mixed precision rounds the sums for all
  // readers.
  virtual bool is_epilogue(const Node& composite) const {
    (void)composite;
    return false;
  }
};

// A KernelChooser assigns kernels to nodes. A resumed run keeps the kernels with which it began,
// and refused kernels are not chosen again: choosing remembers both, despite being const.
class KernelChooser : public KernelSource {
 public:
  // Returns whether the kernel is a vendor's, which the present device may fail to compile or run.
  virtual bool may_refuse(const Launch& launch) const {
    (void)launch;
    return false;
  }
  // Excludes the launch's kernel from later plans for operands of these types.
  virtual void avoid(const Launch& launch) const { (void)launch; }

  // Returns the kernels that were chosen among alternatives, by signature.
  virtual std::map<std::string, std::string> selection() const { return {}; }
  // Returns what the choices depend on: CPU, cores, instruction sets, versions of libraries.
  virtual std::string machine() const { return ""; }
  // Makes later choices follow `kernels`, a result of selection().
  virtual void prefer(const std::map<std::string, std::string>& kernels) const { (void)kernels; }
};

}  // namespace weft
