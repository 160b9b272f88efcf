// The passes, in the order of the pipeline (pipeline.cpp is the table of contents).
//
//   precision   products on a narrower type, where that is asked for
//   decompose   composites that no backend kernel overrides become their expression
//   simplify    constant folding, algebra, common subexpressions, dead code
//   copies      weights that products read in a narrower type are kept in it, too
//   chunk       the widest rows of a step in parts, which never exist at once
//   keep        what the backward pass reads of the forward pass in a narrower type, on request
//   schedule    which values are stored, viewed or fused; one Step per kernel; layouts   -> Plan
//   alias       assignments write straight into their variable where no old value is read later
//   rematerialize   activations of modules that the user names are made again, not kept
//   offload     variables that live in files come from there before they are read, and go back
//   order       the order of steps with the least peak of live bytes
//   recompute   kernels run again, or values lie in files, where that lowers the peak below a limit
//   join        kernels of one form become one launch, where there is room
//   overlap     what comes from files or goes there does so while other steps run
//   memory      arena offsets, with reuse and in-place
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/device/device.h"
#include "weft/ir/graph.h"
#include "weft/ir/plan.h"
#include "weft/ir/step_options.h"

namespace weft {

// What StepOptions::skip may name.
std::span<const std::string_view> optional_passes();

struct PassOptions {
  const KernelLibrary* library = &no_library();
  int threads = 1;
  StepOptions step = {};        // what the user chose; passes do not read its mode and device
  bool chunk_anywhere = false;  // tests of it: between any two rows, where bits may differ, too
  bool apart = false;           // cheap functions of a library's result that is stored, too
  MachineSpec machine = {};     // what runs the plan; unknown: the host
  bool verify = false;          // after every pass; always in debug builds
  std::string fault = {};  // tests of the tests: a named bug that a pass then has; each says which
  bool skips(std::string_view pass) const;
  bool may_run_again() const;  // kernels, for the memory between
  bool may_drop() const;       // values that are made again, or come from files
};

Graph precision(const Graph& graph, const PassOptions& options);
// What it does for mixed precision, on any type; tests take float64, which rounds nothing.
Graph narrow_products(const Graph& graph, DType narrow, const PassOptions& options);
Graph decompose(const Graph& graph, const PassOptions& options);
Graph simplify(const Graph& graph, const PassOptions& options);
Graph keep_copies(const Graph& graph, const PassOptions& options);
// Into step.chunks parts, where that changes no bits (but in the last digit of sums of 16-bit
// products); the same graph where it would.
Graph chunk(const Graph& graph, const PassOptions& options);
Graph keep(const Graph& graph, const PassOptions& options);
Plan schedule(const Graph& graph, const PassOptions& options);  // "fuse" skipped: one step per node
Plan alias_state(Plan plan, const PassOptions& options);
// What a user's code computes between the layers of a module that is named in step.rematerialize
// is its. Throws Error(usage) for a pattern that no module of the step is like.
Graph mark_modules(const Graph& graph, const PassOptions& options);
Plan rematerialize(Plan plan, const PassOptions& options);
Plan offload_state(Plan plan, const PassOptions& options);
Plan order(Plan plan, const PassOptions& options);
// Where that leaves at most `room` bytes live.
Plan join(Plan plan, size_t room, const PassOptions& options);
// Begins transfers early and awaits them late, where that leaves at most `room` bytes live.
Plan overlap(Plan plan, size_t room, const PassOptions& options);
Plan assign_memory(Plan plan, const PassOptions& options);
// All three: launches that are joined, transfers in as much room as the limit leaves, then offsets.
Plan place(const Plan& plan, const PassOptions& options);
// Runs kernels again, or fetches what was stored in a file, right before their results are read
// next: of these plans of a step, and all that becomes of them in this way, the one of the least
// time that fits, placed; where none does, or without a limit, the one of the least memory.
Plan fit_memory(const std::vector<Plan>& plans, const PassOptions& options);
bool fits_memory(const Plan& plan, const PassOptions& options);
// Throws Error(does_not_fit) naming what the plan takes, the least that would do; of a step whose
// state alone exceeds the limit, the least that a fifth of WEFT_PATIENCE finds.
void check_memory(const Plan& plan, const PassOptions& options);

// All of them, each named, timed (WEFT_DEBUG=1), verified in debug builds and tests.
Plan make_plan(const Graph& graph, PassOptions options);

}  // namespace weft
