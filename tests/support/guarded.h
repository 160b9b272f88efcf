// Puts buffers between guard pages, and counts reads or writes beyond a buffer.
#pragma once

#include <cstddef>
#include <cstdint>

#include "weft/ir/plan.h"

namespace weft::testing {

// During its lifetime, every buffer of Buffer::allocate (arena, state, constants) ends, rounded up
// to whole cache lines, at a guard page, and another guard page precedes it. An access to a guard
// page is counted and then allowed, so that a test can report it. At most one object may exist.
class GuardedBuffers {
 public:
  GuardedBuffers();
  ~GuardedBuffers();
  GuardedBuffers(const GuardedBuffers&) = delete;
  GuardedBuffers& operator=(const GuardedBuffers&) = delete;

  int64_t allocated() const;  // buffers allocated during its lifetime
  // Returns the number of guard pages accessed, and of byte ranges between a buffer and its guard
  // pages that were written.
  int64_t strays() const;
};

// A library requests workspace with room to align its parts, and a matrix product requests whole
// tiles of its packed operands; each may then use less.
inline constexpr size_t slack_of_scratch = 1024;  // bytes

// Returns how many bytes at the end of a plan's arena may stay unwritten: none where a value ends
// there.
size_t unsure_bytes(const Plan& plan);

}  // namespace weft::testing
