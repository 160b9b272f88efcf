// Checks the cost of plans for machines that the test describes: a pass that loses a fusion, a
// launch order or a kernel's place shows here, although every result stays correct. A cheaper plan
// is a new snapshot; a commit that changes a heuristic says so.
#include "tests/support/snapshot.h"

#include <functional>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/passes/graphs.h"
#include "tests/support/offloaded.h"
#include "tests/support/skip.h"
#include "weft/device/registry.h"
#include "weft/passes/passes.h"

using namespace weft;
using namespace weft::testing;

namespace {
// Returns kernels and bytes that they move, arena, live peak, workspace, rematerialized kernels,
// and kernels that overlap a transfer.
std::string cost_of(const Plan& plan) {
  size_t kernels = 0, again = 0, under_way = 0, beside = 0, workspace = 0;
  double bytes = 0;
  for (const Launch& launch : plan.launches) {
    under_way += launch.kind == Launch::Kind::transfer ? 1 : 0;
    under_way -= launch.kind == Launch::Kind::await ? 1 : 0;
    if (launch.kind == Launch::Kind::transfer || launch.kind == Launch::Kind::await) continue;
    ++kernels;
    again += launch.rematerialized ? 1 : 0;
    beside += under_way;
    bytes += launch.bytes;
    workspace = std::max(workspace, launch.workspace);
  }
  return fmt::format("{:4} {:9.0f} {:9} {:9} {:7} {:4} {:4}", kernels, bytes, plan.arena_bytes,
                     plan.live_peak_bytes, workspace, again, beside);
}

struct Setting {
  const char* name;
  std::function<void(PassOptions&)> set;
};
const Setting settings[] = {
    {"float32", [](PassOptions&) {}},
    {"bf16-mixed", [](PassOptions& o) { o.step.precision = Precision::bf16_mixed; }},
    {"apart", [](PassOptions& o) { o.step.precision = Precision::bf16_mixed, o.apart = true; }},
    {"kept", [](PassOptions& o) { o.step.activations = DType::bf16; }},
    {"in parts", [](PassOptions& o) { o.step.row_tiles = 3, o.tile_anywhere = true; }},
    {"selective", [](PassOptions& o) { o.step.recompute = Recompute::selective; }},
    {"full", [](PassOptions& o) { o.step.recompute = Recompute::full; }},
    {"offloaded", [](PassOptions& o) { o.step.offload = all_in_files(); }},
};
}  // namespace

TEST_CASE("plans of small models match the snapshot of their cost") {
#ifdef __clang__
  skipped(
      "Clang, the compiler of the sanitizers, evaluates arguments in another order than GCC: ties");
  return;
#endif
  PlanningLibrary planning;
  planning.workspace = 1000, planning.most_results = 2;
  const std::pair<const char*, const KernelLibrary*> machines[] = {
      {"planning", &planning}, {"H100", &library("null:cuda:h100")}};
  const std::pair<const char*, Graph> graphs[] = {{"perceptron", mlp_step(3, 96, 64)},
                                                  {"convolutions", conv_step(3, 16, 8)},
                                                  {"transformer", gpt_step(2, 64, 2, 32, 301)}};
  std::string text = "# kernels, bytes moved, arena, live peak, workspace, run again, beside\n";
  for (const auto& [machine, kernels] : machines)
    for (const auto& [name, graph] : graphs)
      for (const Setting& setting : settings) {
        PassOptions options{.library = kernels, .threads = 2};
        setting.set(options);
        text += fmt::format("{:8} {:12} {:10} {}\n", machine, name, setting.name,
                            cost_of(make_plan(graph, options)));
      }
  check_snapshot(text, "tests/passes/snapshot.txt");
}
