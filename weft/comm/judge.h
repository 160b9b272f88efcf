// The Judge finds the rank that is stopped or hung, by the beats of all ranks. It would rather find
// nobody than accuse a rank that is only slow: seconds count while the threads that count them had
// the processor in time, on the rank and on the hub.
//
// A rank that awaits others looks at them many times a second, and is innocent while it does. One
// that stops to look, while another rank that awaits does not, is hung inside the collective.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "weft/comm/message.h"

namespace weft::comm {

constexpr double tick_seconds = 0.25;  // of the control threads; every second one sends a beat

struct Patience {
  double hang = 10;      // without progress while others wait, or 20 steps if that is longer
  double stopped = 3.5;  // without a beat, for a process of this host that is stopped
  double silent = 15;    // without a beat, for a rank of another host
  double silent_neighbour = 30;  // for one of this host, which may wait for a processor
};

struct Finding {
  enum class Kind : uint8_t { stopped, silent, hung, unknown };
  Kind kind = Kind::unknown;
  int rank = -1;         // -1: unknown
  double seconds = 0;    // without a beat, or for which the others have waited
  uint64_t awaited = 0;  // the collective that the others await, or the exchange
  bool is_exchange = false;
  bool has_begun = false;  // whether the culprit has begun it, and not come to its end
  int waiting = 0;         // how many ranks await it
  int first_waiting = 0;   // one of them
};

class Judge {
 public:
  Judge(int size, Patience patience);

  void hear(int rank, const Beat& beat);
  // A rank is no longer judged: it ended, or failed and said so.
  void dismiss(int rank);
  const Beat& last(int rank) const { return ranks_[static_cast<size_t>(rank)].beat; }
  // To be called every tick. `in_time`: the hub's thread ran when it was due, so that a rank that
  // it did not hear has not spoken. `is_stopped` says of a rank of this host whether its process is
  // stopped; nullopt: it is of another host.
  std::optional<Finding> tick(bool in_time,
                              const std::function<std::optional<bool>(int rank)>& is_stopped);

 private:
  struct Rank {
    Beat beat;
    double quiet_seconds = 0;  // since its last beat
    bool is_judged = true;
  };
  double limit() const;  // seconds without progress that are a hang
  std::optional<Finding> find_silent(
      const std::function<std::optional<bool>(int rank)>& is_stopped) const;
  // What ranks wait for: collectives, or exchanges of the control plane.
  struct Channel {
    uint64_t Beat::* begun;
    uint64_t Beat::* awaited;
  };
  std::optional<Finding> find_hung(const Channel& channel) const;

  Patience patience_;
  std::vector<Rank> ranks_;
};

}  // namespace weft::comm
