#include "weft/base/host/parallel.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <immintrin.h>
#include <mutex>
#include <sched.h>
#include <system_error>
#include <thread>

#include "weft/base/host/env.h"
#include "weft/base/logging.h"
#include "weft/base/memory/memory.h"

// The OpenMP runtime that oneDNN was built with declares this (OpenMP 4.5, section 3.2).
extern "C" void omp_set_num_threads(int count);

namespace weft {
namespace {
using Clock = std::chrono::steady_clock;

std::atomic<int> threads{0};
thread_local bool inside = false;  // in a region; nested regions run serially

// Waits until `done()`: first busily, then yielding the core, for about as long as a thread takes
// to sleep and wake. Returns whether `done()` holds.
template <class Done>
bool spin(Done&& done) {
  constexpr auto most = std::chrono::microseconds(300);
  constexpr int attentive = 50;  // rounds, of 40 to 140 cycles each
  for (int round = 0; round < attentive; ++round) {
    if (done()) return true;
    _mm_pause();
  }
  const Clock::time_point end = Clock::now() + most;
  do {
    if (done()) return true;
    sched_yield();
  } while (Clock::now() < end);
  return done();
}

// A region is divided into parts. Part i belongs to thread i, whose cache holds its rows; a thread
// that has finished takes parts that no thread has begun (work stealing), so that a preempted
// thread delays no other. Thread 0 is the thread that opened the region.
class Team {
 public:
  // Returns once the new threads have made all of their allocations, so that no region allocates,
  // however late the system schedules a thread.
  void grow(int count) {
    if (size_ >= count) return;
    sigset_t all, before;  // the threads handle no signals
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      for (; size_ < count; ++size_) std::thread([this, index = size_] { work(index); }).detach();
    } catch (const std::system_error&) {
      threads = size_;
      logging::warn("the system allows this process only {} threads", size_);
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    for (int now = started_; now < size_; now = started_) started_.wait(now);
  }

  void run(int64_t count, int parts, RangeFunction body, void* context) {
    body_ = body, context_ = context, count_ = count;
    open_.store(parts);
    const uint64_t region = ++regions_;
    current_.store(region << part_bits | static_cast<uint64_t>(parts));
    current_.notify_all();
    take_parts(0, region, parts);
    auto done = [&] { return open_.load(std::memory_order_acquire) == 0; };
    while (!spin(done))
      if (const int left = open_.load(); left != 0) open_.wait(left);
  }

 private:
  static constexpr int part_bits = 16;
  static_assert(most_threads < 1 << part_bits);
  struct alignas(64) Claim {
    std::atomic<uint64_t> region{0};  // the last region in which a thread claimed this part
  };

  // A thread with a claimed part may read the region's body, as the region ends after the part.
  bool claim(int part, uint64_t region) {
    std::atomic<uint64_t>& taken = claims_[static_cast<size_t>(part)].region;
    uint64_t before = taken.load(std::memory_order_relaxed);
    return before < region && taken.compare_exchange_strong(before, region);
  }

  // An exception from a body ends the process, as the state of the other parts is unknown.
  void take_parts(int first, uint64_t region, int parts) noexcept {
    inside = true;
    for (int i = 0; i < parts; ++i) {
      const int part = (first + i) % parts;
      if (!claim(part, region)) continue;
      body_(context_, count_ * part / parts, count_ * (part + 1) / parts);
      if (open_.fetch_sub(1, std::memory_order_acq_rel) == 1) open_.notify_one();
    }
    inside = false;
  }

  [[noreturn]] void work(int index) {
    omp_set_num_threads(1);  // keeps oneDNN from opening OpenMP regions; the first call allocates
    ++started_;
    started_.notify_one();
    uint64_t seen = 0;
    while (true) {
      auto next = [&] { return current_.load(std::memory_order_acquire) != seen; };
      while (!spin(next)) current_.wait(seen);
      seen = current_.load(std::memory_order_acquire);
      const int parts = static_cast<int>(seen & ((1 << part_bits) - 1));
      if (index < parts) take_parts(index, seen >> part_bits, parts);
    }
  }

  RangeFunction body_ = nullptr;
  void* context_ = nullptr;
  int64_t count_ = 0;
  uint64_t regions_ = 0;
  int size_ = 1;
  std::atomic<int> started_{1};                   // threads, of size_
  alignas(64) std::atomic<uint64_t> current_{0};  // region; parts in the low bits
  alignas(64) std::atomic<int> open_{0};          // parts that have not ended
  std::array<Claim, most_threads> claims_;
};

constinit Team team;  // never destroyed, as its threads are detached
std::mutex opening;

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

int thread_count() {
  if (threads != 0) return threads;
  constexpr int most_on_a_core = 4;
  const int cores = usable_cores(), count = env_threads(cores);
  set_thread_count(count);
  if (threads > most_on_a_core * cores)
    logging::warn("{} threads share {} cores, which is slower than {} threads", threads.load(),
                  cores, cores);
  return threads;
}

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
  threads = std::clamp(count, 1, std::min(fit, most_threads));
}

void start_team() {
  const std::lock_guard lock(opening);
  team.grow(thread_count());
}

void parallel_for(int64_t count, RangeFunction body, void* context) {
  const auto parts = static_cast<int>(std::min<int64_t>(count, thread_count()));
  std::unique_lock lock(opening, std::defer_lock);
  if (parts < 2 || inside || !lock.try_lock()) {
    if (count > 0) body(context, 0, count);
    return;
  }
  team.grow(thread_count());
  team.run(count, parts, body, context);
}
}  // namespace weft
