// List scheduling: appends launch after launch, chosen among those whose predecessors have run.
#pragma once

#include <cstdint>
#include <queue>
#include <vector>

#include "weft/passes/memory/liveness.h"
#include "weft/passes/order/dependencies.h"

namespace weft {

class ListScheduler {
 public:
  enum class Rule {
    eager,   // first launches that add no live bytes; among equals the base order
    greedy,  // first the launch that adds the fewest bytes; among equals the base order
  };
  // Backward, the order is built from its end: live ranges begin at the last use and end at the
  // definition. `edges` and `use` must outlive the scheduler.
  ListScheduler(const Dependencies& edges, const ArenaUse& use, bool backward);

  // Returns a valid order of the launches, in near-linear time. `base` is another valid order.
  std::vector<int> run(const std::vector<int>& base, Rule rule);

 private:
  struct Candidate {
    int64_t cost;
    int place, launch, version;
    bool operator<(const Candidate& other) const {  // the top of a queue is its greatest
      return cost != other.cost ? cost > other.cost : place > other.place;
    }
  };
  void reset(const std::vector<int>& base);
  void offer(int launch);   // queues a ready launch at its present cost
  void finish(int launch);  // updates liveness and ready launches after `launch` ran
  int64_t growth(int launch) const;

  const std::vector<std::vector<int>>&before_, &after_;
  const ArenaUse& use_;
  const std::vector<bool>&alive_before_, &alive_after_;
  bool backward_;
  std::vector<std::vector<int>> users_;  // launches that touch each slot

  Rule rule_ = Rule::eager;
  std::vector<size_t> waiting_;  // predecessors that have not run, per launch
  std::vector<int> place_;       // in the base order, per launch
  std::vector<int> version_;     // version of each launch's newest candidate; older ones are stale
  std::vector<size_t> users_left_;
  std::vector<bool> alive_, done_;
  std::priority_queue<Candidate> ready_;
};

}  // namespace weft
