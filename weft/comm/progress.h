// How far the training thread of a rank is. It notes its progress by relaxed stores; the control
// thread reads it, and counts for how long it has not moved.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "weft/comm/message.h"

namespace weft::comm {

// Returns "At its last beat it had done 12 steps; its last launch: fused 398 (blocks.3.mlp); it
// awaited all_gather 412 (blocks.3.up.weight)." `when` is how the text begins.
std::string whereabouts(const Beat& beat, const RankDescription& words,
                        std::string_view when = "At its last beat it");

class Progress {
 public:
  // For the training thread, as in World.
  void beat(int64_t step, int launch);
  void begins(uint64_t sequence) { begun_.store(sequence, std::memory_order_relaxed); }
  void awaits(uint64_t sequence);
  // This rank looks whether a rank that it awaits has come. Any thread may call it.
  void looks() { looks_.fetch_add(1, std::memory_order_relaxed); }
  void goes_on();
  void exchange(bool begins);  // an all_gather of the control plane
  void pause(bool begins) { pauses_.fetch_add(begins ? 1 : -1, std::memory_order_relaxed); }

  // For any thread.
  Beat at_present() const;  // without the seconds
  double seconds_awaited() const { return waited_.load(std::memory_order_relaxed); }

  // For the control thread, every tick. Where it ran late, the time since the last tick is unknown
  // and does not count. A rank is paused until its first step has shown how long steps take.
  const Beat& tick(bool in_time);
  const Beat& last() const { return last_; }

 private:
  void end_step(double time);

  std::atomic<int64_t> step_{0};
  std::atomic<int> launch_{-1}, pauses_{0};
  std::atomic<uint64_t> begun_{0}, awaited_{0}, exchanged_{0}, exchanging_{0}, looks_{0};
  std::atomic<double> busy_{0}, waited_{0}, longest_step_{0};  // seconds
  std::atomic<bool> has_stepped_{false};

  // Only the training thread uses these.
  double awaits_since_ = 0, step_since_ = 0, waited_before_ = 0;
  std::array<double, 8> steps_{};  // seconds of the last ones
  size_t next_of_steps_ = 0;

  // Only the control thread uses these.
  Beat last_;
  uint64_t last_looks_ = 0;
};

}  // namespace weft::comm
