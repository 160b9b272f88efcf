#include "weft/base/host/team.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <immintrin.h>
#include <sched.h>
#include <system_error>
#include <thread>

#include "weft/base/error.h"
#include "weft/base/logging.h"

// The OpenMP runtime that oneDNN was built with declares this (OpenMP 4.5, section 3.2).
extern "C" void omp_set_num_threads(int count);

namespace weft {
namespace {
using Clock = std::chrono::steady_clock;

thread_local bool inside = false;              // in a region; nested regions run serially
thread_local Team* scope_team = nullptr;       // of the innermost TeamScope
thread_local const Team* computing = nullptr;  // of the outermost Computing

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
}  // namespace

void Team::announce(int parts) {
  current_.store(++regions_ << part_bits | static_cast<uint64_t>(parts));
  current_.notify_all();
}

void Team::run(int64_t count, int parts, RangeFunction body, void* context) {
  const std::lock_guard lock(opening_);
  body_ = body, context_ = context, count_ = count;
  open_.store(parts);
  announce(parts);
  take_parts(0, regions_, parts);
  auto done = [&] { return open_.load(std::memory_order_acquire) == 0; };
  while (!spin(done))
    if (const int left = open_.load(); left != 0) open_.wait(left);
}

// A thread with a claimed part may read the region's body, as the region ends after the part.
bool Team::claim(int part, uint64_t region) {
  std::atomic<uint64_t>& taken = claims_[static_cast<size_t>(part)].region;
  uint64_t before = taken.load(std::memory_order_relaxed);
  return before < region && taken.compare_exchange_strong(before, region);
}

// An exception from a body ends the process, as the state of the other parts is unknown.
void Team::take_parts(int first, uint64_t region, int parts) noexcept {
  inside = true;
  for (int i = 0; i < parts; ++i) {
    const int part = (first + i) % parts;
    if (!claim(part, region)) continue;
    body_(context_, count_ * part / parts, count_ * (part + 1) / parts);
    if (open_.fetch_sub(1, std::memory_order_acq_rel) == 1) open_.notify_one();
  }
  inside = false;
}

void Team::serve(int index, uint64_t seen) {
  const TeamScope scope(*this);
  while (true) {
    auto next = [&] { return current_.load(std::memory_order_acquire) != seen; };
    while (!spin(next)) current_.wait(seen);
    seen = current_.load(std::memory_order_acquire);
    const int parts = static_cast<int>(seen & ((1 << part_bits) - 1));
    if (parts == 0) return;
    if (index < parts) take_parts(index, seen >> part_bits, parts);
  }
}

// The Pool has the workers of the process, at most one fewer than thread_limit(), and lends them to
// teams.
class Pool {
 public:
  void enter(Team& team) {
    std::unique_lock lock(mutex_);
    if (team.users_ == 0) wait_for_turn(team, lock);
    if (team.users_++ > 0) return;
    team.held_ = team.threads();
    held_ += team.held_;
    while (team.workers_ + 1 < team.threads() && give_worker(team)) {
    }
  }

  void leave(Team& team) {
    const std::lock_guard lock(mutex_);
    if (--team.users_ > 0) return;
    held_ -= team.held_;
    wake_waiting();
  }

  void retire(Team& team) {
    const std::lock_guard lock(mutex_);
    take_back(team);
  }

 private:
  struct alignas(64) Worker {
    std::atomic<Team*> team{nullptr};  // null: the worker is free
    int index = 0;                     // of the thread in the team
    uint64_t seen = 0;                 // the team's last region before the worker joined it
  };

  // Teams enter in the order in which they came, so that a large one is not passed over forever.
  void wait_for_turn(const Team& team, std::unique_lock<std::mutex>& lock) {
    const uint64_t turn = turns_++;
    auto may_enter = [&] {
      return turn == now_ &&
             (team.users_ > 0 || held_ == 0 || held_ + team.threads() <= thread_limit());
    };
    while (!may_enter()) {
      const uint64_t seen = changes_.load();
      lock.unlock();
      changes_.wait(seen);
      lock.lock();
    }
    ++now_;
    wake_waiting();
  }
  void wake_waiting() {
    if (turns_ == now_) return;
    ++changes_;
    changes_.notify_all();
  }

  // Gives the team a free worker, a new one, or one that an idle team keeps. Returns false where
  // there is none: a region ends without it, too.
  bool give_worker(Team& team) {
    for (;;) {
      for (int i = 0; i < size_; ++i)
        if (Worker& worker = workers_[static_cast<size_t>(i)]; worker.team.load() == nullptr) {
          worker.index = ++team.workers_;
          worker.seen = team.current_.load();
          worker.team.store(&team);
          worker.team.notify_one();
          return true;
        }
      if (size_ + 1 < thread_limit() && start_worker()) continue;
      Team* const idle = idle_team();
      if (idle == nullptr) return false;
      take_back(*idle);
    }
  }

  Team* idle_team() const {
    for (int i = 0; i < size_; ++i)
      if (Team* team = workers_[static_cast<size_t>(i)].team; team != nullptr && team->users_ == 0)
        return team;
    return nullptr;
  }

  // Returns once no worker serves the team. No region of it is open.
  void take_back(Team& team) {
    if (team.workers_ == 0) return;
    team.announce(0);
    for (int i = 0; i < size_; ++i) {
      const std::atomic<Team*>& serves = workers_[static_cast<size_t>(i)].team;
      while (serves.load() == &team) serves.wait(&team);
    }
    team.workers_ = 0;
  }

  // Returns once the new thread has made all of its allocations, so that no region allocates,
  // however late the system schedules a thread.
  bool start_worker() {
    sigset_t all, before;  // the threads handle no signals
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool starts = true;
    try {
      std::thread([this, &worker = workers_[static_cast<size_t>(size_)]] {
        work(worker);
      }).detach();
      ++size_;
    } catch (const std::system_error&) {
      starts = false;
      set_thread_count(size_ + 1);
      logging::warn("the system allows this process only {} threads", size_ + 1);
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    for (int now = started_; now < size_; now = started_) started_.wait(now);
    return starts;
  }

  [[noreturn]] void work(Worker& self) {
    omp_set_num_threads(1);  // keeps oneDNN from opening OpenMP regions; the first call allocates
    ++started_;
    started_.notify_one();
    while (true) {
      auto assigned = [&] { return self.team.load() != nullptr; };
      while (!spin(assigned)) self.team.wait(nullptr);
      self.team.load()->serve(self.index, self.seen);
      self.team.store(nullptr);
      self.team.notify_one();
    }
  }

  std::mutex mutex_;
  std::array<Worker, most_threads> workers_;
  int size_ = 0;
  std::atomic<int> started_{0};       // workers, of size_
  int held_ = 0;                      // threads of the teams that have users
  uint64_t turns_ = 0, now_ = 0;      // given to teams that wait, and the one whose turn it is
  std::atomic<uint64_t> changes_{0};  // of what teams wait for
};

namespace {
// Never destroyed, as the workers are detached.
constinit Pool pool;
constinit Team whole{0};
}  // namespace

std::shared_ptr<Team> make_team(int threads) {
  WEFT_ASSERT(threads >= 1 && threads <= thread_limit(), "a team of {} threads", threads);
  return {new Team(threads), [](Team* team) {
            pool.retire(*team);
            delete team;
          }};
}

Team& whole_team() { return whole; }
Team& current_team() { return scope_team != nullptr ? *scope_team : whole; }

TeamScope::TeamScope(Team& team) : saved_(scope_team) { scope_team = &team; }
TeamScope::~TeamScope() { scope_team = saved_; }

Computing::Computing() : team_(computing == nullptr ? &current_team() : nullptr) {
  if (team_ == nullptr) return;
  pool.enter(*team_);
  computing = team_;
}
Computing::~Computing() {
  if (team_ == nullptr) return;
  computing = nullptr;
  pool.leave(*team_);
}

void start_team() { const Computing all; }

void parallel_for(int64_t count, RangeFunction body, void* context) {
  Team& team = current_team();
  const auto parts = static_cast<int>(std::min<int64_t>(count, team.threads()));
  if (parts < 2 || inside || (computing != nullptr && computing != &team)) {
    if (count > 0) body(context, 0, count);
    return;
  }
  const Computing all;
  team.run(count, parts, body, context);
}
}  // namespace weft
