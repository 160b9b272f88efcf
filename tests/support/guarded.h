// Buffers between pages that nobody may touch: what reads or writes beyond one is counted.
#pragma once

#include <cstddef>
#include <cstdint>

#include "weft/ir/plan.h"

namespace weft::testing {

// While it lives, all that Buffer::allocate hands out (arena, state, constants) ends, in whole
// cache lines, where a guard page begins, and another stands before it. Whoever touches a guard
// page is counted and goes on, so that a test can say what happened. One at a time.
class GuardedBuffers {
 public:
  GuardedBuffers();
  ~GuardedBuffers();
  GuardedBuffers(const GuardedBuffers&) = delete;
  GuardedBuffers& operator=(const GuardedBuffers&) = delete;

  int64_t allocated() const;  // buffers, since it lives
  // Guard pages that were read or written, and runs of bytes between a buffer and its guard pages
  // that were written.
  int64_t strays() const;
};

// A library asks for scratch with room to align its parts, and a product for whole tiles of its
// packed operands, of which each then may use less.
inline constexpr size_t slack_of_scratch = 1024;  // bytes

// So many bytes at the end of a plan's arena may stay as they were: none where a value ends there.
size_t unsure_bytes(const Plan& plan);

}  // namespace weft::testing
