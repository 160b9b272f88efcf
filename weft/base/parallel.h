// The one team of threads (OpenMP, the runtime that oneDNN uses too).
#pragma once

#include <cstdint>
#include <type_traits>

namespace weft {

int thread_count();  // WEFT_THREADS, else OMP_NUM_THREADS, else the cores of this process
void set_thread_count(int count);  // before anything is compiled

// Calls body(context, begin, end) for contiguous chunks of [0, count) on the team; on the caller
// alone when `count` < 2 or one thread suffices.
using RangeFunction = void (*)(void* context, int64_t begin, int64_t end);
void parallel_for(int64_t count, RangeFunction body, void* context);

template <class F>
void parallel_for(int64_t count, F&& body) {
  parallel_for(
      count,
      [](void* context, int64_t begin, int64_t end) {
        (*static_cast<std::remove_reference_t<F>*>(context))(begin, end);
      },
      &body);
}

}  // namespace weft
