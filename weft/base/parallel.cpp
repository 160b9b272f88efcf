#include "weft/base/parallel.h"

#include <algorithm>
#include <atomic>
#include <omp.h>
#include <sched.h>

#include "weft/base/env.h"

namespace weft {
namespace {
std::atomic<int> threads{0};
}  // namespace

int thread_count() {
  if (threads == 0) set_thread_count(env_threads(omp_get_num_procs()));
  return threads;
}

void set_thread_count(int count) {
  threads = std::max(1, count);
  omp_set_num_threads(threads);
}

void parallel_for(int64_t count, RangeFunction body, void* context) {
  int64_t parts = std::min<int64_t>(count, thread_count());
  if (parts < 2) {
    if (count > 0) body(context, 0, count);
    return;
  }
#pragma omp parallel for num_threads(static_cast<int>(parts)) schedule(static, 1)
  for (int64_t part = 0; part < parts; ++part)
    body(context, count * part / parts, count * (part + 1) / parts);
}
}  // namespace weft
