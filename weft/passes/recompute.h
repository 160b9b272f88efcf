// Trades time for memory: values that nobody reads for a while are dropped, and their kernels run
// again right before they are read next (Chen et al. 2016), at each peak the one that costs least
// for each byte (Kirisame et al. 2021). A kernel that runs again has the operands that it had, and
// so the same bits. Where values may go to files, the kernel that runs again can be a fetch of what
// was stored there when it was made. Stands after order, which says when values are read, and
// before memory, which packs what is then live.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "weft/passes/lifetimes.h"
#include "weft/passes/passes.h"

namespace weft {

// The way of one plan from all kept down to the least memory, one dropped value after another. It
// does not depend on any limit: a limit only says how far to go.
class Recomputation {
 public:
  // Goes all the way, or until options.until. Nothing is dropped where options let nothing be.
  Recomputation(Plan plan, const PassOptions& options);

  struct Stage {
    size_t peak;             // most live bytes of the arena
    double cost;             // of all steps
    std::vector<int> order;  // of all that are made on the way, those that run
    size_t slots;            // made by then
  };
  // All kept, and then each that takes a fiftieth less than the one before it.
  const std::vector<Stage>& stages() const { return stages_; }
  Plan plan(const Stage& stage) const;

 private:
  // A slot whose step is run again before the step at `before`, and what that step reads and nobody
  // has by then, in order.
  struct Rerun {
    int maker, slot;
  };
  struct Choice {
    std::vector<Rerun> reruns;  // the last is of the slot that is dropped
    bool stored = false;        // not run again: kept in a file after it ran, and fetched
    int before = 0;
    double freed = 0, cost = 0;  // bytes at the peak; bytes that a machine moves in the time
    double price() const { return cost / freed; }
  };

  void go_down();
  void look();
  std::optional<Choice> cheapest() const;
  std::optional<Choice> again(int slot) const;
  std::optional<Choice> in_file(int slot, Choice choice) const;
  bool rerun(int slot, int depth, Choice& choice) const;
  bool available(int slot, int since, int depth, Choice& choice) const;
  bool unchanged(int slot, int since, int until) const;
  void apply(const Choice& choice);
  void drop_unread();
  int copy_slot(int slot);
  int add(Step step);
  const Step& step(int at) const;

  Plan plan_;  // every step that is made on the way; only `order_` of them run
  const PassOptions& options_;
  std::vector<int> order_;
  ArenaUse use_;
  std::optional<Liveness> live_;
  std::vector<std::vector<int>> writers_, readers_;  // places in `order_`, ascending, per slot
  std::vector<Stage> stages_;
};

}  // namespace weft
