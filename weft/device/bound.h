// Binds the operands and results of a library kernel to the pointers that it receives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/ir/plan.h"

namespace weft {

// A Bound is one operand or result of a kernel launch: which pointer run() receives for it, and the
// offset and strides of its elements relative to that pointer.
struct Bound {
  int index = 0;
  int64_t offset = 0;  // in elements
  Dims strides;        // in elements
  Type type;

  const std::byte* in(void* const* operands) const {
    return static_cast<const std::byte*>(operands[index]) + byte_offset();
  }
  std::byte* out(void* const* results) const {
    return static_cast<std::byte*>(results[index]) + byte_offset();
  }
  int64_t byte_offset() const { return offset * static_cast<int64_t>(size_of(type.dtype)); }
  // Returns the bytes from the pointer to the end of the last element; no stride may be negative.
  size_t reach() const;
  // Returns the first element's alignment in bytes; slots begin at multiples of buffer_alignment.
  int64_t alignment() const;
};
// Returns a Bound for each operand: the inputs of the body's first node, then the launch's other
// operands.
std::vector<Bound> bind_inputs(const Launch& launch);
Bound bind_result(const Launch& launch);  // asserts that the launch has one result
// Return the operand or the result that holds `value`.
Bound bind_operand(const Launch& launch, const Value& value);
Bound bind_result(const Launch& launch, const Value& value);

// Returns row-major placements without a slot.
std::vector<Placement> dense(std::span<const Value> values);

}  // namespace weft
