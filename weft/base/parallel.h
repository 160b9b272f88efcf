// The one team of threads: whatever of weft computes at once on several cores does it here, so that
// no two teams fight for the cores. Its threads wait for a moment at full attention, then sleep.
#pragma once

#include <cstdint>
#include <type_traits>

namespace weft {

int thread_count();  // WEFT_THREADS, else OMP_NUM_THREADS, else the cores of this process
void set_thread_count(int count);  // before anything is compiled
// Of them, how many compile kernels at once: each takes a heap of some MiB that it leaves behind.
int compile_threads();
void start_team();  // starts its threads, so that no later region allocates

// Calls body(context, begin, end) for contiguous parts of [0, count) on the team, at most
// thread_count() of them: they depend on nothing else. On the caller alone when `count` < 2, when
// one thread suffices, inside of another region, or while another thread's region runs.
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
