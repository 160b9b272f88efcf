// A Packed is a fixed variable (Annotations::fixed) in the layout of a kernel's loops, which the
// kernel keeps from run to run.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>

#include "weft/base/memory/storage.h"
#include "weft/ir/op_def.h"
#include "weft/ir/value.h"
#include "weft/ir/variable.h"

namespace weft::cpu {

// Returns the fixed variable that an operand reads, directly or through views; null: the operand is
// not a fixed variable.
inline const Node* fixed_variable(const Value& operand) {
  const Node* node = operand.node();
  while (node->op->view != nullptr) node = node->inputs[0].node();
  return node->variable != nullptr && node->annotations.fixed ? node : nullptr;
}
inline bool is_fixed(const Value& operand) { return fixed_variable(operand) != nullptr; }

class Packed {
 public:
  // All kernels that keep this operand in the same `layout` (KernelChoice::kept_layout) share its
  // packed bytes; with layout "", a kernel has packed bytes of its own.
  Packed(const Value& operand, size_t bytes, const std::string& layout = "");

  std::byte* data() const { return kept_->memory.buffer()->data; }
  // Returns whether the variable was written since it was packed, and notes that it is packed now.
  // A variable without storage, in a plan whose kernels are only timed, counts as written.
  bool packs_now() const {
    if (source_->storage == nullptr) return true;
    if (kept_->memory.is_copy_of(*source_->storage)) return false;
    kept_->memory.note_copy_of(*source_->storage);
    return true;
  }
  // Calls pack() if the variable was written since it was packed; meanwhile other kernels that
  // share the packed bytes wait.
  template <class Pack>
  void refresh(Pack&& pack) const {
    const std::lock_guard lock(kept_->mutex);
    if (packs_now()) pack();
  }

 private:
  struct Kept {
    explicit Kept(size_t bytes);
    mutable std::mutex mutex;
    Storage memory;
  };
  static std::shared_ptr<Kept> shared(const Value& operand, size_t bytes,
                                      const std::string& layout);

  Value operand_;  // keeps the node alive, the key of shared packed bytes
  std::shared_ptr<VariableState> source_;
  std::shared_ptr<Kept> kept_;
};

}  // namespace weft::cpu
