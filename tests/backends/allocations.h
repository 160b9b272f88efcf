// What the process allocates while a test watches: malloc and its kin, and mmap, are interposed.
#pragma once

#include <cstddef>

namespace weft::testing {

struct Allocations {
  size_t most_live = 0;  // bytes allocated since the start and not yet freed, at the worst moment
  size_t kept = 0;       // bytes not freed at the end
};

bool can_watch_allocations();  // not under the sanitizers, which interpose themselves

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
