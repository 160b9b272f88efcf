// A PlanQuestion asks what the steps of a program take on a machine, in memory and in time. It is a
// value: the steps are captured once, and each answer plans the same graphs under the options of
// its question.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "weft/device/spec.h"
#include "weft/ir/graph.h"
#include "weft/ir/offload.h"
#include "weft/ir/step_options.h"
#include "weft/ir/variable.h"

namespace weft {

// A StateBlock is a variable as memory sees it. Blocks are offloaded one by one.
struct StateBlock {
  Category category = Category::parameter;
  size_t bytes = 0;
};
using StateBlocks = std::vector<StateBlock>;
size_t bytes_of(const StateBlocks& state);
// Returns the bytes of those blocks that stay in memory.
size_t resident_bytes(const StateBlocks& state, const Offload& offload);

// A Purpose is what state is for, and what reports call it.
struct Purpose {
  std::string what;               // in tables of refusals: "accumulated gradients"
  std::string key = {};           // in plan.json: "accumulator_bytes"
  std::string row = {};           // in tables of plans: "gradients"
  std::string note = {};          // behind that row: "accumulated over micro-batches"
  bool is_always_shown = false;   // also where it takes no bytes
  bool precedes_arena = false;    // its elements are set before the arena exists
  bool depends_on_batch = false;  // whether there is any depends on the batch
};

// A StateBill is the state of one purpose.
struct StateBill {
  Purpose purpose;
  StateBlocks blocks = {};
};

struct CapturedStep {
  std::string name;  // "train"
  Graph graph;
  Mode mode = Mode::train;
  int64_t per_update = 1;   // executions per update; 0: none (evaluation)
  StateBlocks beside = {};  // state that exists while the step runs, besides its own variables
};

struct PlanQuestion;

// A Change is a question that differs in one respect, in the words of whoever asks.
struct Change {
  std::string what;  // "--train.precision bf16"
  std::function<PlanQuestion()> question;
};

// A Ladder is changes of one kind, the mildest first, each of which takes less memory than the one
// before it. The mildest that fits is wanted; where the last does not fit, none does.
struct Ladder {
  enum class When : uint8_t { always, nothing_fits_yet };
  std::vector<Change> changes;
  When when = When::always;
  int unless = -1;  // a ladder, by its place, one of whose changes fits: then this one is left out
};

struct PlanQuestion {
  std::vector<CapturedStep> steps;
  std::string device = "cpu";  // "cuda:h100": a device here, or one of the catalogue
  MachineSpec machine = {};    // that runs the plans, for times and memory; unknown: no times
  // What the program chooses, and within which memory: mode and `held` are set for each step.
  StepOptions options = {};
  std::vector<StateBill> state = {};  // of all steps, in the order of tables
  size_t data_bytes = 0;  // host bytes of samples, of batches, and of files that checkpoints keep
  size_t snapshot_bytes = 0;  // host bytes of a checkpoint that is written beside training
  std::vector<Ladder> may_change = {};  // to make it fit, or take less time: find_remedies()

  // Returns the bytes of state that stay in memory, whatever the batch.
  size_t resident_state() const;
};

}  // namespace weft
