// What the process allocates while a test watches: malloc and its kin, operator new and mmap are
// interposed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::testing {

// Of all threads, since the start.
struct Allocations {
  size_t most_live = 0;  // bytes allocated and not yet freed, at the worst moment
  size_t kept = 0;       // bytes not freed at the end
  size_t largest = 0;    // bytes of the largest one
  int64_t own = 0;       // how many were not asked for by oneDNN's code
};

// Not under the sanitizers, which interpose themselves; said once for each test that asks.
bool can_watch_allocations();

// Allocations of all threads while f() runs.
void start_watching();
Allocations stop_watching();
template <class F>
Allocations allocations_of(F&& f) {
  start_watching();
  f();
  return stop_watching();
}

}  // namespace weft::testing
