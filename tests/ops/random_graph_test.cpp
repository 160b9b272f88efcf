// Compares random graphs on every backend, with any passes skipped, with the interpreter.
#include "tests/support/random_graph.h"

#include <doctest/doctest.h>

#include "tests/support/offloaded.h"
#include "weft/base/host/parallel.h"
#include "weft/passes/passes.h"

using namespace weft;
using namespace weft::testing;

namespace {
void check_range(uint64_t first, uint64_t count) {
  for (uint64_t seed = first; seed < first + count; ++seed) {
    if (!is_in_part(std::to_string(seed))) continue;
    const std::vector<std::string> skip = random_skips(seed);
    for (const KernelLibrary* library : backends()) {
      INFO(library->name() << " seed " << seed);
      auto check = [&](const PlanSettings& settings) {
        CHECK(check_random_graph(seed, *library, settings) == "");
      };
      check({});
      check({.step = {.skip = skip}});
      for (Recompute extent : {Recompute::selective, Recompute::full})
        check({.step = {.recompute = extent, .skip = skip}});
      for (int chunks : {2, 3}) {
        PlanSettings settings{.step = {.skip = skip}};
        settings.step.row_tiles = chunks;
        check(settings);
      }
      check({.step = {.offload = all_in_files(), .skip = skip}});
      for (Precision precision : {Precision::bf16_mixed, Precision::fp16_mixed})
        check({.step = {.precision = precision, .skip = skip}});
    }
  }
}
}  // namespace

TEST_CASE("random graphs give the interpreter's results whatever passes are skipped") {
  check_range(0, 20);
}

namespace {
// Returns the plan that `settings` give, or "" where a verifier refuses it.
std::string planned_text(const Graph& graph, const PlanSettings& settings) {
  try {
    return to_text(make_plan(graph, {.library = backends().back(),
                                     .threads = thread_count(),
                                     .step = settings.step,
                                     .tile_anywhere = settings.anywhere,
                                     .verify = true,
                                     .fault = settings.fault}));
  } catch (const InternalError&) {
    return "";
  }
}
// Returns whether the fault, which must be of a pass, changes the plan of graph `seed`.
bool changes_plan(uint64_t seed, const PlanSettings& settings) {
  const Graph graph = random_graph(seed).graph;
  PlanSettings right = settings;
  right.fault = "";
  return planned_text(graph, settings) != planned_text(graph, right);
}
}  // namespace

// `least` is the number of random graphs that must expose a bug on the CPU backend, about half of
// the rate over 400 graphs; fewer mean that the tester lost sensitivity. Rarely exposed bugs get
// more graphs, of which only those whose plan they change are computed.
TEST_CASE("a bug seeded in any pass is detected by random graphs") {
  struct Fault {
    const char* name;
    int least;
    Precision precision = Precision::as_written;
    int chunks = 0;
    Offload offload = {};
    uint64_t graphs = 40;
    int caught = 0;
    std::string crash = {};
  };
  std::vector<Fault> faults{
      {"decompose-negates", 6},
      {"cse-ignores-attrs", 20},
      {"fold-wrong", 8},
      {"arithmetic-wrong", 2},
      {"movement-forgets-flips", 2, Precision::as_written, 0, {}, 80},
      {"fuse-ignores-cycles", 3, Precision::as_written, 0, {}, 80},
      {"bufferize-forgets-copies", 12},
      {"alias-ignores-readers", 2},
      {"schedule-ignores-dependency", 20},
      {"memory-overlap", 15},
      {"lower-forgets-offsets", 5},
      {"precision-negates", 1, Precision::bf16_mixed, 0, {}, 80},
      {"row-tiling-repeats-rows", 2, Precision::as_written, 2, {}, 320},
      {"offload-forgets-stores", 4, Precision::as_written, 0, all_in_files()},
      {"overlap-awaits-late", 10, Precision::as_written, 0, all_in_files()},
  };
  for (Fault& fault : faults)
    for (uint64_t seed = 0; seed < fault.graphs && fault.caught < fault.least; ++seed) {
      try {
        PlanSettings settings{.step = {.precision = fault.precision}, .fault = fault.name};
        settings.step.row_tiles = fault.chunks;
        settings.step.offload = fault.offload;
        if (fault.graphs > 40 && !changes_plan(seed, settings)) continue;
        fault.caught += !check_random_graph(seed, *backends().back(), settings).empty();
      } catch (const InternalError& error) {
        fault.caught += is_verifiers(error);
        if (!is_verifiers(error)) fault.crash = error.what();
      }
    }
  for (const Fault& fault : faults) {
    INFO(std::string(fault.name) << ": " << fault.caught << " of " << fault.graphs << " "
                                 << fault.crash);
    CHECK(fault.caught >= fault.least);
  }
}

TEST_SUITE("slow random graphs") {
  TEST_CASE("many random graphs give the interpreter's results whatever passes are skipped") {
    check_range(1000, 2000);
  }
}
