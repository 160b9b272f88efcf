// The Hub is rank 0's part of the control plane: it knows what every rank said last, and decides
// for all. Its functions are for the control thread; it sends through a function, so that rank 0
// itself is a rank like the others.
//
// The hub hears every rank itself. Beyond some thousand ranks, a leader for each host should stand
// between.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/comm/judge.h"
#include "weft/comm/message.h"
#include "weft/device/world.h"

namespace weft::comm {

class Hub {
 public:
  using Send = std::function<void(int rank, const Message& message)>;
  // `describe` gives the description of rank 0 at the time; `ending` what messages end with.
  Hub(int size, Patience patience, Send send, std::function<RankDescription()> describe,
      std::function<std::string()> ending);

  // A rank came, with a valid token.
  void come(const Hello& hello);
  void hear(int rank, const Message& message);
  void lose(int rank);  // its connection closed
  void tick(bool in_time);
  // Ends the run: ranks have not come in time. Variables of the environment said that they would.
  void give_up(std::string_view variables);
  std::string pace();

 private:
  // Each takes one kind of message.
  void take(int rank, const Beat& beat) { judge_.hear(rank, beat); }
  void take(int rank, const Part& part);
  void take(int /*rank*/, const Ask& asks);
  void take(int rank, const Answer& answer);
  void take(int rank, const Failed& failed);
  template <class Other>
  void take(int /*rank*/, const Other& /*message*/) {}  // no message of a rank

  void send_all(const Message& message);
  struct Agreement {
    int64_t proposed = -1;  // step
    bool is_confirmed = false;
  };
  void propose(Purpose purpose, int64_t step);
  void settle_failures();
  void end(Verdict verdict);
  std::string name(int rank) const;
  std::string whereabouts(int rank) const;
  std::string text_of(const Finding& finding) const;
  std::optional<bool> is_stopped(int rank) const;

  struct Rank {
    std::optional<Hello> hello;
    std::array<std::optional<Part>, channels> parts;      // of the all_gathers that are under way
    std::array<std::optional<Answer>, purposes> answers;  // to the proposals that are under way
    std::optional<int> failed_with;                       // exit code
    Beat paced;                                           // as of the last pace()
  };
  Rank& at(int rank) { return ranks_[static_cast<size_t>(rank)]; }
  const Rank& at(int rank) const { return ranks_[static_cast<size_t>(rank)]; }
  int size() const { return static_cast<int>(ranks_.size()); }

  Send send_;
  std::function<RankDescription()> describe_;
  std::function<std::string()> ending_;
  std::vector<Rank> ranks_;
  Judge judge_;
  bool is_over_ = false;      // a verdict is out, all failed alike, or all left
  bool is_complete_ = false;  // all have come
  int64_t ahead_ = 2;         // steps between the newest one and the one that is proposed
  std::array<Agreement, purposes> agreements_;
  int failing_ticks_ = 0;  // since the first rank failed
};

// Returns whether a process of this host is stopped, by a signal or a debugger.
bool is_process_stopped(int64_t pid);

}  // namespace weft::comm
