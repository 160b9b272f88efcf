#include "weft/base/host/parallel.h"

#include <algorithm>
#include <atomic>
#include <sched.h>

#include "weft/base/host/env.h"
#include "weft/base/host/team.h"
#include "weft/base/logging.h"
#include "weft/base/memory/memory.h"

namespace weft {
namespace {
std::atomic<int> limit{0};  // of the threads of all teams together; 0: not asked for yet

int usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}
// A thread maps a stack of 8 MiB, and a malloc arena of 64 MiB when it first allocates; each thread
// of the team counts twice, for a compile thread beside it. Half of the limit is for values.
int threads_that_fit() {
  constexpr size_t each = size_t{144} << 20;
  return 1 + static_cast<int>(std::min<size_t>(mappable_memory() / 2 / each, most_threads));
}
}  // namespace

int thread_limit() {
  if (limit != 0) return limit;
  constexpr int most_on_a_core = 4;
  const int cores = usable_cores(), count = env_threads(cores);
  set_thread_count(count);
  if (limit > most_on_a_core * cores)
    logging::warn("{} threads share {} cores, which is slower than {} threads", limit.load(), cores,
                  cores);
  return limit;
}

int thread_count() { return current_team().threads(); }

int compile_threads() {
  constexpr int most = 4;
  return std::min({thread_count(), usable_cores(), most});
}

void set_thread_count(int count) {
  const int fit = threads_that_fit();
  if (count > fit)
    logging::warn(
        "{} threads do not fit in the address space of this process (ulimit -v); {} are used",
        count, fit);
  limit = std::clamp(count, 1, std::min(fit, most_threads));
}
}  // namespace weft
