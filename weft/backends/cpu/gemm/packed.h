// A Packed is a fixed variable (Annotations::fixed) in the layout of a kernel's loops, which the
// kernel reads from run to run.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "weft/base/memory/storage.h"
#include "weft/device/bound.h"
#include "weft/ir/op_def.h"
#include "weft/ir/value.h"
#include "weft/ir/variable.h"

namespace weft::cpu {

// Returns whether an operand is a fixed variable, or a view of one.
inline bool is_fixed(const Value& operand) {
  const Node* node = operand.node();
  while (node->op->view != nullptr) node = node->inputs[0].node();
  return node->op->leaf == LeafKind::variable && node->annotations.fixed;
}

class Packed {
 public:
  Packed(const Bound& operand, size_t bytes, std::string layout = "");
  // Allocates the packed bytes of the operand's variable. All kernels that pack the same elements
  // of it in the same layout (KernelChoice::packed_layout) share them; with layout "", a kernel has
  // packed bytes of its own, as does a kernel that is only timed, without a variable.
  void bind(std::span<const std::shared_ptr<VariableState>> operands);

  std::byte* data() const { return memory_->storage.buffer()->data; }
  // Returns whether the variable was written since it was packed, and notes that it is packed now.
  // Without a variable, the operand counts as written.
  bool packs_now() const {
    if (source_ == nullptr) return true;
    if (memory_->storage.is_copy_of(*source_->storage)) return false;
    memory_->storage.note_copy_of(*source_->storage);
    return true;
  }
  // Calls pack() if the variable was written since it was packed; meanwhile other kernels that
  // share the packed bytes wait.
  template <class Pack>
  void refresh(Pack&& pack) const {
    const std::lock_guard lock(memory_->mutex);
    if (packs_now()) pack();
  }

 private:
  struct Memory {
    explicit Memory(size_t bytes);
    mutable std::mutex mutex;
    Storage storage;
  };
  std::shared_ptr<Memory> shared() const;

  Bound operand_;
  size_t bytes_;
  std::string layout_;
  std::shared_ptr<VariableState> source_;
  std::shared_ptr<Memory> memory_;
};

}  // namespace weft::cpu
