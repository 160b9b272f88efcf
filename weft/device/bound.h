// What a library kernel is told of its operands: where they lie from the pointers that it gets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/ir/plan.h"

namespace weft {

// One input of the node of a step, or its result: which pointer run() gets for it, and where its
// elements lie from there.
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
  // Bytes from its pointer to behind its last element, where no stride is negative.
  size_t reach() const;
  // Bytes of which the address of its first element is a multiple: slots begin at multiples of
  // buffer_alignment.
  int64_t alignment() const;
};
// A library step has an operand for each input of its first node, then others.
std::vector<Bound> bind_inputs(const Step& step);
Bound bind_result(const Step& step);  // the only one
// The operand or result that holds `value`.
Bound bind_operand(const Step& step, const Value& value);
Bound bind_result(const Step& step, const Value& value);

// Row by row, each in memory of its own.
std::vector<Placement> dense(std::span<const Value> values);

}  // namespace weft
