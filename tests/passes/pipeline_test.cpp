#include <doctest/doctest.h>

#include <chrono>

#include "tests/passes/graphs.h"
#include "tests/passes/run_plan.h"
#include "tests/support/interpreter.h"
#include "weft/passes/passes.h"

using namespace weft;
using namespace weft::testing;

namespace {
// "" where the plan, run on a real arena, gives what the graph means.
std::string disagreement(const Graph& graph, const PassOptions& options, uint64_t seed, double tolerance) {
  Random random(seed);
  std::vector<Value> inputs = random_inputs(graph, random);
  std::vector<Value> want = interpret(graph, inputs);
  PlanResult got = run_plan(make_plan(graph, options), inputs);
  for (size_t i = 0; i < graph.outputs.size(); ++i)
    if (std::string text = difference(got.outputs[i], want[i], tolerance); !text.empty())
      return "output " + std::to_string(i) + ": " + text;
  for (size_t i = 0; i < graph.assignments.size(); ++i) {
    const auto& [variable, value] = graph.assignments[i];
    const std::string& name = variable->variable->name;
    auto found = got.assigned.find(name);  // not there: it keeps its value
    Value now = found != got.assigned.end() ? found->second : interpret(variable);
    if (std::string text = difference(now, want[graph.outputs.size() + i], tolerance); !text.empty())
      return name + ": " + text;
  }
  return "";
}
}  // namespace

TEST_CASE("a plan computes what the graph means, whatever optional passes are left out") {
  PlanningLibrary library;
  library.workspace = 100;
  const std::vector<std::string> optional{"simplify", "split", "fuse", "alias", "order", "reuse"};
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    Graph graph = random_graph(random, 30);
    PassOptions options{.library = &library, .threads = 2, .verify = true};
    for (const std::string& name : optional)
      if (random.chance(0.3)) options.skip.push_back(name);
    CAPTURE(seed);
    CHECK(disagreement(graph, options, seed, 1e-5) == "");
  }
}
