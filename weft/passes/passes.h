// Declares the passes; table.h lists them in the order in which they run.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "weft/device/device.h"
#include "weft/ir/bindings.h"
#include "weft/ir/graph.h"
#include "weft/ir/plan.h"
#include "weft/ir/step_options.h"

namespace weft {

struct PassOptions {
  const KernelLibrary* library = &no_library();
  int threads = 1;
  StepOptions step = {};       // what the user chose; passes do not read its mode and device
  bool tile_anywhere = false;  // for tests: row tiles of any size, also where bits may differ
  bool apart = false;          // leaves cheap functions of a stored library result to their readers
  MachineSpec machine = {};    // what runs the plan; unknown: the host
  bool verify = false;         // after every pass; always in debug builds
  bool with_graph = false;  // BoundPlan::graph; always with one of a step that stores every value
  std::string fault = {};   // tests of the tests: a bug that a pass then has (PassDef::faults)
  bool skips(std::string_view pass) const;
  bool fuses() const;  // whether one kernel may compute several values
  // Returns whether `fault` has this name. Throws InternalError for a fault that no row has.
  bool has_fault(std::string_view name) const;
  bool lends() const;              // whether inputs and results are in the caller's memory
  bool may_rematerialize() const;  // whether kernels may be rematerialized
  bool may_drop() const;           // whether values may be rematerialized or fetched from files
};

// Multiplies the integers in products of quantized operands, at inference.
Graph multiply_integers(const Graph& graph, const PassOptions& options);
// Puts products on a narrower type, where requested.
Graph precision(const Graph& graph, const PassOptions& options);
// Narrows products to any type, as precision() does; tests use float64, which rounds nothing.
Graph narrow_products(const Graph& graph, DType narrow, const PassOptions& options);
// Makes the graph of one rank: each node computes a part of its value, and collectives exchange
// parts between the ranks of step.mesh. Returns the same graph for one rank.
Graph shard(const Graph& graph, const PassOptions& options);
// Replaces composites that no backend kernel overrides by their expression.
Graph decompose(const Graph& graph, const PassOptions& options);
// Folds constants, applies algebra, eliminates common subexpressions and dead nodes.
Graph simplify(const Graph& graph, const PassOptions& options);
// Stores weights also in the narrower type in which products read them.
Graph narrow_copies(const Graph& graph, const PassOptions& options);
// Computes once what depends on variables alone that the step does not assign.
Graph hoist_fixed(const Graph& graph, const PassOptions& options);
// Marks the variables that the step does not assign, which kernels may keep in a layout of their
// own.
Graph mark_fixed(const Graph& graph, const PassOptions& options);
// Tiles the widest rows into options.row_tiles parts where that changes no bits (except the last
// digit of sums of 16-bit products); otherwise returns the same graph.
Graph row_tiling(const Graph& graph, const PassOptions& options);
// Stores activations in a narrower type, on request.
Graph compression(const Graph& graph, const PassOptions& options);
// Fuses, then makes one Launch per kernel, with slots and layouts; one kernel per node unless
// options.fuses().
Plan bufferize(const Graph& graph, const PassOptions& options);
// Writes assignments straight into their variable where no old value is read later.
Plan alias_state(Plan plan, const PassOptions& options);
// Assigns the nodes that user code computes between the layers of a module in step.rematerialize to
// that module. Throws Error(usage) for a pattern that no module of the step matches.
Graph mark_modules(const Graph& graph, const PassOptions& options);
// Computes activations of modules in step.rematerialize again for the backward pass.
Plan rematerialize(Plan plan, const PassOptions& options);
// Fetches variables that live in files before they are read, and stores them back.
Plan offload_state(Plan plan, const PassOptions& options);
// Chooses the order of launches with the lowest peak of live bytes.
Plan schedule(Plan plan, const PassOptions& options);
// Joins kernels of one form into one launch (horizontal fusion), as long as at most `room` bytes
// are live.
Plan join(Plan plan, size_t room, const PassOptions& options);
// Begins transfers early and awaits them late, as long as at most `room` bytes are live.
Plan overlap(Plan plan, size_t room, const PassOptions& options);
// Assigns arena offsets, with reuse and in place.
Plan assign_memory(Plan plan, const PassOptions& options);
// Runs join, overlap (in as much room as the limit leaves) and assign_memory.
Plan place_memory(const Plan& plan, const PassOptions& options);
// Chooses a plan that fits the memory limit among `plans` of one step and all that follow from them
// by rematerialization and by fetching values from files. Returns the fastest one that fits,
// placed; if none fits, or without a limit, the smallest.
Plan fit_memory(const std::vector<Plan>& plans, const PassOptions& options);
bool fits_memory(const Plan& plan, const PassOptions& options);
// Throws Error(does_not_fit) naming the bytes that the plan takes, which is the least that is
// possible. For a step whose state alone exceeds the limit, it is the least that was found in a
// fifth of WEFT_PATIENCE.
void check_memory(const Plan& plan, const PassOptions& options);

// Runs all passes, each named, timed (WEFT_DEBUG=1), and verified in debug builds and tests.
// bound_plan() also returns what the plan's slots stand for.
BoundPlan bound_plan(const Graph& graph, PassOptions options);
Plan make_plan(const Graph& graph, PassOptions options);

}  // namespace weft
