// A Packed is a fixed variable (Annotations::fixed) in the layout of a kernel's loops, which the
// kernel keeps from run to run.
#pragma once

#include <cstddef>
#include <memory>

#include "weft/base/buffer.h"
#include "weft/base/storage.h"
#include "weft/ir/op_def.h"
#include "weft/ir/value.h"
#include "weft/ir/variable.h"

namespace weft::cpu {

// Returns the fixed variable that an operand is, or views; null: it is none.
inline const Node* fixed_variable(const Value& operand) {
  const Node* node = operand.node();
  while (node->op->view != nullptr) node = node->inputs[0].node();
  return node->variable != nullptr && node->annotations.fixed ? node : nullptr;
}
inline bool is_fixed(const Value& operand) { return fixed_variable(operand) != nullptr; }

class Packed {
 public:
  Packed(const Value& operand, size_t bytes)
      : source_(fixed_variable(operand)->variable), memory_(Buffer::allocate(bytes)) {}

  std::byte* data() const { return memory_.buffer()->data; }
  // Returns whether the variable was written since it was packed, and notes that it is packed now.
  // One of a plan without memory, whose kernels are timed, always was.
  bool packs_now() const {
    if (source_->storage == nullptr) return true;
    if (memory_.is_copy_of(*source_->storage)) return false;
    memory_.note_copy_of(*source_->storage);
    return true;
  }

 private:
  std::shared_ptr<VariableState> source_;
  mutable Storage memory_;
};

}  // namespace weft::cpu
