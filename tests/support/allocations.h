// Counts the allocations of the process while a test watches: malloc and its relatives, operator
// new and mmap are interposed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::testing {

// Allocations are those of all threads since start_watching().
struct Allocations {
  size_t most_live = 0;  // peak bytes allocated and not yet freed
  size_t kept = 0;       // bytes not freed at the end
  size_t largest = 0;    // bytes of the largest allocation
  int64_t own = 0;       // number of allocations not made by oneDNN's code
  // Of these, the number that the control thread of a rank (weft/comm) made: it sends and reads
  // messages beside the steps, at its own pace.
  int64_t of_control = 0;
};

// Returns false under the sanitizers, which interpose malloc themselves; reports the skip once per
// test case.
bool can_watch_allocations();

// Count the allocations of all threads between start and stop, or while f() runs.
void start_watching();
Allocations stop_watching();
template <class F>
Allocations allocations_of(F&& f) {
  start_watching();
  f();
  return stop_watching();
}

}  // namespace weft::testing
