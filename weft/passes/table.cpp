#include "weft/passes/table.h"

#include <algorithm>

#include "weft/base/error.h"

namespace weft {
namespace {
const PassDef all_passes[] = {
    {.name = "modules",
     .file = "passes/memory/rematerialize.cpp",
     .why = "It runs first, because it assigns nodes between two layers to a module by the order "
            "in which the user's code made them."},
    {.name = "integers",
     .file = "passes/graph/integers.cpp",
     .why = "It runs before precision, which narrows the products that are left, and before "
            "decompose, which expands the quantize_affine() nodes that it makes.",
     .optional = true},
    {.name = "precision",
     .file = "passes/graph/precision.cpp",
     .why = "It runs on a graph in which autodiff has seen float32 throughout, and before "
            "simplify, which merges the casts that it inserts.",
     .optional = true,
     .off = [](StepOptions& step) { step.precision = Precision::as_written; },
     .faults = {"precision-negates"}},
    {.name = "shard",
     .file = "passes/graph/shard.cpp",
     .why = "It runs after precision, whose casts say in which type ranks add, and before "
            "decompose, because composites hold extents of the whole batch, which must be opened "
            "before they are cut.",
     .faults = {"shard-forgets-sums", "shard-forgets-places", "shard-adds-everywhere",
                "shard-opens-parts"}},
    {.name = "decompose",
     .file = "passes/graph/decompose.cpp",
     .why = "It runs before simplify and all later passes, which then see only primitives and "
            "composites of the library.",
     .faults = {"decompose-negates"}},
    {.name = "simplify",
     .file = "passes/graph/simplify.cpp",
     .why = "It runs after decompose, whose expressions repeat each other, and before everything "
            "that costs time per node.",
     .optional = true,
     .faults = {"cse-ignores-attrs", "fold-wrong", "arithmetic-wrong", "movement-forgets-flips",
                "scatter-adds-outside"}},
    {.name = "copies",
     .file = "passes/graph/copies.cpp",
     .why = "It runs after simplify, which leaves one cast of each weight.",
     .optional = true,
     .faults = {"copies-lag"}},
    {.name = "hoist",
     .file = "passes/graph/fixed.cpp",
     .why = "It runs after the passes that match variables by their nodes, because it puts other "
            "variables in their place.",
     .optional = true},
    {.name = "fixed",
     .file = "passes/graph/fixed.cpp",
     .why = "It runs after hoist, so that kernels may also pack the variables that hoist derives.",
     .optional = true},
    {.name = "row_tiling",
     .file = "passes/memory/row_tiling.cpp",
     .why = "It runs after simplify, which merges nodes that forward and backward pass share, and "
            "before schedule, which orders the launches so that one tile is dead before the next "
            "is computed.",
     .optional = true,
     .faults = {"row-tiling-repeats-rows"}},
    {.name = "compression",
     .file = "passes/memory/compression.cpp",
     .why = "It runs before fuse, which puts the rounding of an activation into the kernel that "
            "computes it, and the widening into kernels that read it.",
     .optional = true,
     .off = [](StepOptions& step) { step.activations = DType::f32; },
     .faults = {"compression-negates"}},
    {.name = "fuse",
     .file = "passes/fusion/fuse.cpp",
     .why = "bufferize begins with it, because each of its groups becomes a launch.",
     .optional = true,
     .faults = {"fuse-ignores-cycles"}},
    {.name = "bufferize",
     .file = "passes/memory/bufferize.cpp",
     .why = "It runs after all passes on graphs and before all passes on plans, because it turns "
            "the graph into a plan.",
     .faults = {"bufferize-forgets-copies"}},
    {.name = "alias",
     .file = "passes/memory/alias.cpp",
     .why = "It runs before schedule, because its choice adds edges from readers to writers, which "
            "appear in the order of the launches that it returns.",
     .optional = true,
     .faults = {"alias-ignores-readers"}},
    {.name = "rematerialize",
     .file = "passes/memory/rematerialize.cpp",
     .why = "It runs after alias, because a kernel cannot run again once a variable that it reads "
            "is overwritten, and before offload and schedule, which decide by who reads a value."},
    {.name = "offload",
     .file = "passes/memory/offload.cpp",
     .why = "It runs after alias, which decides where a new value replaces the old one in place, "
            "and before schedule, which finds an order with few variables in use at once.",
     .optional = true,
     .off = [](StepOptions& step) { step.offload = {}; },
     .faults = {"offload-forgets-stores"}},
    // This row alone stands before its turn: messages and tables name recompute beside offload.
    {.name = "recompute",
     .file = "passes/memory/recompute.cpp",
     .why = "fit runs it on plans that schedule has ordered, which fixes when values are read, and "
            "before memory, which packs live values.",
     .optional = true,
     .off = [](StepOptions& step) { step.recompute = Recompute::none; },
     .faults = {"recompute-ignores-writers"}},
    {.name = "schedule",
     .file = "passes/order/schedule.cpp",
     .why = "It runs after alias, whose edges it respects, and before memory, which packs live "
            "values.",
     .optional = true,
     .faults = {"schedule-ignores-dependency"}},
    {.name = "fit",
     .file = "passes/memory/fit.cpp",
     .why = "It runs after schedule and instead of place_memory(), which it calls for the plans "
            "that may "
            "fit, because only offsets say how many bytes a plan takes."},
    {.name = "join",
     .file = "passes/order/join.cpp",
     .why = "It runs after schedule and recompute, which look at single kernels, and before "
            "overlap and memory, which look at the launches that remain.",
     .optional = true,
     .faults = {"join-ignores-dependencies"}},
    {.name = "overlap",
     .file = "passes/order/overlap.cpp",
     .why = "It runs after recompute, which adds transfers, and before memory, which keeps a "
            "value's bytes until its transfer has ended.",
     .faults = {"overlap-awaits-late", "overlap-awaits-first", "overlap-begins-early"}},
    {.name = "memory",
     .file = "passes/memory/memory.cpp",
     .why = "It runs last, because live ranges follow from the order.",
     .faults = {"memory-overlap"}},
    {.name = "reuse",
     .file = "passes/memory/memory.cpp",
     .why = "memory does it while it assigns offsets, because values share bytes by their live "
            "ranges.",
     .optional = true},
};
}  // namespace

std::span<const PassDef> passes() { return all_passes; }

const PassDef& pass_named(std::string_view name) {
  const PassDef* const found = std::ranges::find(all_passes, name, &PassDef::name);
  WEFT_ASSERT(found != std::end(all_passes), "no row of passes/table.cpp has the pass '{}'", name);
  return *found;
}

std::vector<std::string_view> optional_passes() {
  std::vector<std::string_view> names;
  for (const PassDef& pass : all_passes)
    if (pass.optional) names.push_back(pass.name);
  return names;
}

void check_fault(std::string_view fault) {
  const bool is_known = std::ranges::any_of(all_passes, [&](const PassDef& pass) {
    return std::ranges::find(pass.faults, fault) != pass.faults.end();
  });
  WEFT_ASSERT(is_known, "no row of passes/table.cpp has the fault '{}'", fault);
}

}  // namespace weft
