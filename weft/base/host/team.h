// A Team is a number of threads that compute together. It has threads while it computes: teams
// whose numbers add up to at most thread_limit() compute at the same time, and the others wait,
// first come, first served. A team keeps its threads until another one needs them.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "weft/base/host/env.h"
#include "weft/base/host/parallel.h"

namespace weft {

// A region is divided into parts. Part i belongs to thread i, whose cache holds its rows; a thread
// that has finished takes parts that no thread has begun (work stealing), so that a preempted
// thread delays no other. Thread 0 is the thread that opened the region; the others are workers.
class Team {
 public:
  // 0 threads: thread_limit(), as it is at each region.
  explicit constexpr Team(int threads) : threads_(threads) {}
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int threads() const { return threads_ == 0 ? thread_limit() : threads_; }
  // Runs a region, after those that other threads opened. The caller computes with this team.
  void run(int64_t count, int parts, RangeFunction body, void* context);

 private:
  friend class Pool;
  static constexpr int part_bits = 16;
  static_assert(most_threads < 1 << part_bits);
  struct alignas(64) Claim {
    std::atomic<uint64_t> region{0};  // the last region in which a thread claimed this part
  };

  void serve(int index, uint64_t seen);  // takes parts of regions after `seen` until dismissed
  void announce(int parts);              // 0: dismisses the workers
  bool claim(int part, uint64_t region);
  void take_parts(int first, uint64_t region, int parts) noexcept;

  const int threads_;
  std::mutex opening_;  // of a region
  RangeFunction body_ = nullptr;
  void* context_ = nullptr;
  int64_t count_ = 0;
  uint64_t regions_ = 0;
  alignas(64) std::atomic<uint64_t> current_{0};  // region; parts in the low bits
  alignas(64) std::atomic<int> open_{0};          // parts that have not ended
  std::array<Claim, most_threads> claims_;

  // The pool's, under its lock.
  int workers_ = 0;  // that serve this team
  int users_ = 0;    // threads that compute with this team now
  int held_ = 0;     // threads of the process that the team holds while it has users
};

// Makes a team of 1 to thread_limit() threads, the one that opens a region included.
std::shared_ptr<Team> make_team(int threads);
// Returns the team that serves all threads without a TeamScope: it has thread_limit() threads.
Team& whole_team();
Team& current_team();

// While a TeamScope lives, regions of its thread run on the team. Scopes nest.
class TeamScope {
 public:
  explicit TeamScope(Team& team);
  ~TeamScope();
  TeamScope(const TeamScope&) = delete;
  TeamScope& operator=(const TeamScope&) = delete;

 private:
  Team* saved_;
};

// Holds the threads of the current team while it lives, for all regions of this thread; a region
// outside of one holds them for itself. Waits until other teams leave enough threads, so the thread
// must not wait for another team's work while it holds them. Within another one it does nothing.
class Computing {
 public:
  Computing();
  ~Computing();
  Computing(const Computing&) = delete;
  Computing& operator=(const Computing&) = delete;

 private:
  Team* team_;  // null: within another one
};

}  // namespace weft
