#include <cmath>

#include <doctest/doctest.h>

#include "tests/passes/graphs.h"
#include "tests/support/interpreter.h"
#include "tests/support/planned.h"
#include "tests/support/random_graph.h"
#include "tests/support/values.h"
#include "weft/base/memory/storage.h"
#include "weft/passes/passes.h"

using namespace weft;
using namespace weft::testing;

namespace {
Graph kept(const Graph& graph, DType type, const std::string& fault = "") {
  Graph result = compression(graph, {.step = {.activations = type}, .fault = fault});
  verify(result);
  return result;
}
// Returns "" if keeping activations in float64, which rounds nothing, preserves the results.
std::string change_by_compression(const Graph& graph, std::span<const Value> inputs,
                                  const std::string& fault = "") {
  std::vector<Value> got = interpret(kept(graph, DType::f64, fault), inputs);
  return disagreement(got, interpret_with_errors(graph, inputs), *backends().back());
}
int roundings(const Graph& graph) {
  int count = 0;
  for (const Value& value : graph.nodes()) count += value->annotations.compressed;
  return count;
}

// Returns the distance of the assigned changes from those of `exact`, relative to their length.
double off(const Graph& step, std::span<const Value> got, std::span<const Value> exact) {
  double error = 0, length = 0;
  for (size_t i = 0; i < step.assignments.size(); ++i) {
    const Value& variable = step.assignments[i].variable;
    const auto* before =
        reinterpret_cast<const float*>(variable->variable->storage->on_host().data);
    const std::vector<double> a = got[step.outputs.size() + i].to_doubles(),
                              b = exact[step.outputs.size() + i].to_doubles();
    for (size_t at = 0; at < a.size(); ++at) {
      error += (a[at] - b[at]) * (a[at] - b[at]);
      length += (b[at] - before[at]) * (b[at] - before[at]);
    }
  }
  return std::sqrt(error / length);
}
}  // namespace

TEST_CASE("activation compression preserves a step's meaning up to rounding") {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    RandomGraph drawn = random_graph(seed);
    CAPTURE(seed);
    CHECK(change_by_compression(drawn.graph, drawn.inputs) == "");
  }
  Random random(1);
  for (const Graph& step : {mlp_step(2, 8, 4), conv_step(2, 4, 2), gpt_step(2, 16, 2, 8)}) {
    CHECK(roundings(kept(step, DType::bf16)) > 0);
    CHECK(change_by_compression(step, random_inputs(step, random)) == "");
  }
}

TEST_CASE("a seeded wrong sign in compressed activations is detected") {
  Random random(1);
  for (const Graph& step : {mlp_step(2, 8, 4), conv_step(2, 4, 2)})
    CHECK(change_by_compression(step, random_inputs(step, random), "compression-negates") != "");
}

TEST_CASE("a step without a backward pass compresses no activations") {
  Graph step = mlp_step(2, 8, 4);
  Graph forward{.inputs = step.inputs, .outputs = step.outputs, .assignments = {}};
  CHECK(roundings(kept(forward, DType::bf16)) == 0);
}

// An element rounded to 8 bits is off by up to 0.4 %, and errors of many partly cancel; logits near
// ten are off by 0.02, and so are their exponentials. The forward pass reads no rounded element:
// its loss has the same bits where kernels add in the order of the graph (reference backend), and
// is off by the rounding of float32 sums where fusion changes with the casts and so does the order.
TEST_CASE("activations compressed to bfloat16 keep the loss and change gradients slightly") {
  Random random(1);
  for (const Graph& step : {mlp_step(2, 16, 128), conv_step(2, 8, 4), gpt_step(2, 16, 2, 32)})
    for (const KernelLibrary* library : backends()) {
      CAPTURE(library->name());
      const std::vector<Value> inputs = random_inputs(step, random);
      PlanSettings narrow;
      narrow.step.activations = DType::bf16;
      const std::vector<Value> exact = run_planned(step, inputs, *library);
      const std::vector<Value> got = run_planned(step, inputs, *library, narrow);
      if (library == backends().front())
        CHECK(same_bits(got.front().to_doubles(), exact.front().to_doubles()));
      else
        CHECK(got.front().item() == doctest::Approx(exact.front().item()).epsilon(1e-6));
      const double distance = off(step, got, exact);
      CHECK(distance > 1e-5);
      CHECK(distance < 0.03);
    }
}

TEST_CASE("activations compressed to bfloat16 take half of the memory") {
  const PlanningLibrary library;  // its kernels need no workspace, unlike those of some hosts
  for (const Graph& step : {mlp_step(16, 32, 512), conv_step(8, 8, 8), gpt_step(4, 32, 4, 64)}) {
    const PassOptions whole{.library = &library, .threads = 2};
    PassOptions narrow = whole;
    narrow.step.activations = DType::bf16;
    const size_t peak = make_plan(step, whole).live_peak_bytes;
    CHECK(make_plan(step, narrow).live_peak_bytes < peak - peak / 4);
  }
}

TEST_CASE("backends agree on a step with compressed activations") {
  for (const KernelLibrary* library : backends())
    for (uint64_t seed = 0; seed < 14; ++seed) {
      CAPTURE(library->name());
      CAPTURE(seed);
      RandomGraph drawn = random_graph(seed);
      const PassOptions options{.library = library, .threads = 2};
      const Graph simple = simplify(decompose(drawn.graph, options), options);
      PlanSettings settings;
      settings.step.skip = {"simplify"};
      settings.step.activations = DType::bf16;
      CHECK(disagreement(run_planned(simple, drawn.inputs, *library, settings),
                         interpret_with_errors(kept(simple, DType::bf16), drawn.inputs),
                         *library) == "");
    }
}
