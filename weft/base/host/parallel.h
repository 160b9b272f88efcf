// Declares the process's only thread pool: all parallel work of weft runs on it, so that no two
// pools compete for the cores. Idle threads spin for a moment, then sleep.
#pragma once

#include <cstdint>
#include <type_traits>

namespace weft {

int thread_count();  // WEFT_THREADS, else OMP_NUM_THREADS, else the cores of this process
void set_thread_count(int count);  // must precede all compilation
// Returns the count of threads that compile kernels concurrently. Each leaves a heap of some MiB.
int compile_threads();
void start_team();  // starts the threads now, so that no later region allocates

// Calls body(context, begin, end) for at most thread_count() contiguous parts of [0, count) on the
// team. The parts depend only on `count` and thread_count(). The caller runs it alone when `count`
// < 2, with one thread, inside another region, or while another thread's region runs.
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
