// List scheduling: runs one step after another, choosing among those whose predecessors have run.
#pragma once

#include <cstdint>
#include <queue>
#include <vector>

#include "weft/passes/dependencies.h"
#include "weft/passes/lifetimes.h"

namespace weft {

class ListScheduler {
 public:
  enum class Rule {
    eager,   // steps that do not add live bytes at once; else the next of the base order
    greedy,  // the step that adds least; among equals the next of the base order
  };
  // Backward, the order is built from its end: values are born at their last use and die where they
  // are made. `edges` and `use` must outlive the scheduler.
  ListScheduler(const Dependencies& edges, const ArenaUse& use, bool backward);

  // A valid order of the steps, in near-linear time. `base` is another one.
  std::vector<int> run(const std::vector<int>& base, Rule rule);

 private:
  struct Candidate {
    int64_t cost;
    int place, step, version;
    bool operator<(const Candidate& other) const {  // the top of a queue is its greatest
      return cost != other.cost ? cost > other.cost : place > other.place;
    }
  };
  void reset(const std::vector<int>& base);
  void offer(int step);   // a ready step, at its present cost
  void finish(int step);  // it has run: values die, steps become ready
  int64_t growth(int step) const;

  const std::vector<std::vector<int>>&before_, &after_;
  const ArenaUse& use_;
  const std::vector<bool>&alive_before_, &alive_after_;
  bool backward_;
  std::vector<std::vector<int>> users_;  // steps that touch each slot

  Rule rule_ = Rule::eager;
  std::vector<size_t> waiting_;  // predecessors that have not run, per step
  std::vector<int> place_;       // in the base order, per step
  std::vector<int> version_;     // of the newest candidate, per step; older ones are void
  std::vector<size_t> users_left_;
  std::vector<bool> alive_, done_;
  std::priority_queue<Candidate> ready_;
};

}  // namespace weft
