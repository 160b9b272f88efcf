// Divides work among threads: all parallel work of weft runs on teams, which together have at most
// thread_limit() threads, so that no two pools compete for the cores. Idle threads spin for a
// moment, then sleep.
#pragma once

#include <cstdint>
#include <type_traits>

namespace weft {

// Returns the number of threads of the calling thread's team (TeamScope, weft/base/host/team.h);
// without a scope, thread_limit().
int thread_count();
// Returns how many threads all teams of the process have together: WEFT_THREADS, else
// OMP_NUM_THREADS, else the cores of this process.
int thread_limit();
void set_thread_count(int count);  // sets thread_limit(); must precede all compilation
// Returns the count of threads that compile kernels concurrently. Each leaves a heap of some MiB.
int compile_threads();
void start_team();  // starts the team's threads now, so that no later region allocates

// Calls body(context, begin, end) for at most thread_count() contiguous parts of [0, count) on the
// calling thread's team. The parts depend only on `count` and thread_count(). Regions of one team
// take turns, and a region of a team whose threads other teams compute with waits for them. The
// caller runs the region alone when `count` < 2, with one thread, inside another region, and while
// it computes with another team.
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
