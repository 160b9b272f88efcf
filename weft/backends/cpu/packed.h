// A Packed is a fixed variable (Annotations::fixed) in the layout of a kernel's loops, which the
// kernel keeps from run to run.
#pragma once

#include <cstddef>
#include <memory>

#include "weft/base/buffer.h"
#include "weft/base/storage.h"
#include "weft/ir/value.h"
#include "weft/ir/variable.h"

namespace weft::cpu {

// Returns whether an operand is a fixed variable, whose elements are row-major.
inline bool is_fixed(const Value& operand) {
  return operand->variable != nullptr && operand->annotations.fixed;
}

class Packed {
 public:
  Packed(const Value& variable, size_t bytes)
      : source_(variable->variable), memory_(Buffer::allocate(bytes)) {}

  std::byte* data() const { return memory_.buffer()->data; }
  // Returns whether the variable was written since it was packed, and notes that it is packed now.
  bool packs_now() const {
    if (memory_.is_copy_of(*source_->storage)) return false;
    memory_.note_copy_of(*source_->storage);
    return true;
  }

 private:
  std::shared_ptr<VariableState> source_;
  mutable Storage memory_;
};

}  // namespace weft::cpu
