// Rematerialization trades time for memory: values with no reader for a while are dropped, and
// their kernels run again right before the next reader (Chen et al. 2016). At each peak the value
// with the least cost per freed byte is dropped (Kirisame et al. 2021). A rematerialized kernel
// reads the same operands and so computes the same bits. Where values may go to files, a value can
// instead be stored after it was computed and fetched.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "weft/passes/memory/liveness.h"
#include "weft/passes/passes.h"

namespace weft {

// A Recomputation is the sequence of plans from the one without rematerialization down to the least
// memory, with one more value dropped at a time. It does not depend on a memory limit, which only
// selects a stage.
class Recomputation {
 public:
  // Drops values down to the least memory or until options.until; none if options forbid it.
  Recomputation(Plan plan, const PassOptions& options);

  struct Stage {
    size_t peak;             // most live bytes of the arena
    double cost;             // time of all launches, in bytes that the machine could move in it
    std::vector<int> order;  // the launches that run, as indices into all that were made
    size_t slots;            // number of slots made so far
  };
  // The first stage drops nothing; each later one lowers the peak by at least a fiftieth.
  const std::vector<Stage>& stages() const { return stages_; }
  Plan plan(const Stage& stage) const;

 private:
  // A Rerun is a slot that is computed again before launch Choice::before, and the launch that
  // makes it.
  struct Rerun {
    int maker, slot;
  };
  struct Choice {
    std::vector<Rerun> reruns;  // in launch order; the last is of the slot that is dropped
    bool stored = false;  // offloaded instead: stored in a file after it was computed, and fetched
    int before = 0;
    double freed = 0, cost = 0;  // bytes at the peak; bytes that the machine could move in the time
    double price() const { return cost / freed; }
  };

  void go_down();
  void look();
  std::optional<Choice> cheapest() const;
  std::optional<Choice> rematerialization_of(int slot) const;
  std::optional<Choice> in_file(int slot, Choice choice) const;
  bool rerun(int slot, int depth, Choice& choice) const;
  bool available(int slot, int since, int depth, Choice& choice) const;
  bool unchanged(int slot, int since, int until) const;
  void apply(const Choice& choice);
  void drop_unread();
  int copy_slot(int slot);
  int add(Launch launch);
  const Launch& launch_at(int at) const;

  Plan plan_;  // holds all launches made so far; only those in `order_` run
  const PassOptions& options_;
  std::vector<int> order_;
  ArenaUse use_;
  std::optional<Liveness> live_;
  std::vector<std::vector<int>> writers_, readers_;  // positions in `order_`, ascending, per slot
  std::vector<Stage> stages_;
};

}  // namespace weft
