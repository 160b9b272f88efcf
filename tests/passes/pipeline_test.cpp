#include <chrono>

#include <doctest/doctest.h>

#include "tests/passes/graphs.h"
#include "tests/passes/run_plan.h"
#include "tests/support/interpreter.h"
#include "weft/device/registry.h"
#include "weft/ops/ops.h"
#include "weft/ops/wide.h"
#include "weft/passes/passes.h"

using namespace weft;
using namespace weft::testing;

namespace {
// "" where the plan, run on a real arena, gives what the graph means.
std::string disagreement(const Graph& graph, const PassOptions& options, uint64_t seed,
                         double tolerance) {
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
    if (std::string text = difference(now, want[graph.outputs.size() + i], tolerance);
        !text.empty())
      return fmt::format("{}: {}", name, text);
  }
  return "";
}
}  // namespace

TEST_CASE("a plan computes what the graph means, whatever optional passes are left out") {
  PlanningLibrary library;
  library.workspace = 100;
  const std::vector<std::string> optional{"simplify", "fuse", "alias", "order", "reuse"};
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    Graph graph = random_graph(random, 30);
    PassOptions options{.library = &library, .threads = 2, .verify = true};
    for (const std::string& name : optional)
      if (random.chance(0.3)) options.skip.push_back(name);
    library.takes_in = seed % 2 == 0;
    CAPTURE(seed);
    CHECK(disagreement(graph, options, seed, 1e-5) == "");
  }
}

TEST_CASE("a library's kernel takes in what follows it alone, where the library says so") {
  PlanningLibrary library;
  library.takes_in = true;
  const Value a = input({DType::f32, {4, 8, 6}}, 0), b = input({DType::f32, {6, 5}}, 1);
  const Value c = input({DType::f32, {4, 8, 5}}, 2);
  auto kernels = [&](const std::vector<Value>& outputs) {
    const Graph graph{.inputs = {a, b, c}, .outputs = outputs};
    const PassOptions options{.library = &library, .threads = 2, .verify = true};
    CHECK(disagreement(graph, options, 1, 1e-5) == "");
    std::string names;
    for (const Step& step : make_plan(graph, options).steps) names += step.kernel + " ";
    return names;
  };
  const Value product = matmul(a, b);
  CHECK(kernels({tanh(product) * c}) == "test:matmul+2 ");
  CHECK(kernels({tanh(product), product}) == "test:matmul tanh ");
  CHECK(kernels({tanh(product), sum(product)}) == "test:matmul sum tanh ");
  CHECK(kernels({sum(tanh(product), {.axes = {2}})}) == "test:matmul tanh.sum ");
  CHECK(kernels({matmul(c, transpose(c)) * matmul(c + 1.0, transpose(c))}) ==
        "add copy test:matmul test:matmul+1 ");
}

TEST_CASE("on CUDA a product takes in a bias that follows it alone") {
  const KernelLibrary& cuda = library("null:cuda");
  for (const DType type : {DType::bf16, DType::f16, DType::f32, DType::f64}) {
    const Value a = input({type, {4, 8, 16}}, 0), b = input({type, {16, 24}}, 1);
    const DType wide = type == DType::f64 ? type : DType::f32;
    const Value bias = input({wide, {24}}, 2), rows = input({wide, {8, 1}}, 3);
    auto kernels = [&](const Value& sum) {
      const Graph graph{.inputs = {a, b, bias, rows}, .outputs = {narrow_to(sum, type)}};
      const PassOptions options{.library = &cuda, .threads = 2, .verify = true};
      CHECK(disagreement(graph, options, 1, 1e-5) == "");
      std::string names;
      for (const Step& step : make_plan(graph, options).steps) names += step.kernel + " ";
      return names;
    };
    CAPTURE(name(type));
    const Value product = widen(matmul(a, b));
    CHECK((kernels(product + bias) == "cublaslt:matmul.bias ") == (type != DType::f64));
    CHECK(kernels(reshape(bias, {1, 24}) + product).starts_with("cublaslt:matmul.bias ") ==
          (type != DType::f64));
    for (const Value& other : {product + rows, relu(product + bias), product * bias,
                               product + bias + bias, product + slice(bias, 0, 0, 1)})
      CHECK(kernels(other).starts_with("cublaslt:matmul "));
    // As many rows, or matrices, as columns.
    const Value square = widen(matmul(input({type, {24, 16}}, 0), b));
    const Value batch = widen(matmul(input({type, {24, 8, 16}}, 0), b));
    for (const Value& other :
         {square + reshape(bias, {24, 1}), batch + reshape(bias, {24, 1, 1})}) {
      const Graph graph{.inputs = {}, .outputs = {narrow_to(other, type)}};
      for (const Step& step : make_plan(graph, {.library = &cuda}).steps)
        CHECK(step.kernel != "cublaslt:matmul.bias");
    }
  }
  // Sums that are rounded to less on their way.
  const Value a = input({DType::f32, {8, 16}}, 0), b = input({DType::f32, {16, 24}}, 1);
  const Value bias = input({DType::f16, {24}}, 2);
  const Graph graph{.inputs = {a, b, bias},
                    .outputs = {cast(cast(matmul(a, b), DType::f16) + bias, DType::f32)}};
  for (const Step& step : make_plan(graph, {.library = &cuda}).steps)
    CHECK(step.kernel != "cublaslt:matmul.bias");
}

TEST_CASE("a seeded bug in any pass is caught, by the verifier or by the numbers") {
  PlanningLibrary library;
  for (const std::string fault : {"fold-wrong", "cse-ignores-attrs", "alias-ignores-readers",
                                  "order-ignores-dependency", "memory-overlap"}) {
    int caught = 0;
    for (uint64_t seed = 0; seed < 20; ++seed) {
      Random random(seed);
      Graph graph = random_graph(random, 30);
      PassOptions options{.library = &library, .threads = 2, .skip = {"fuse"}, .fault = fault};
      try {
        options.verify = seed % 2 == 0;
        caught += !disagreement(graph, options, seed, 1e-5).empty();
      } catch (const std::exception&) {
        ++caught;
      }
    }
    CAPTURE(fault);
    CHECK(caught > 0);
  }
}

TEST_CASE("a plan is a function of the graph: its text and hash are the same again") {
  PlanningLibrary library;
  PassOptions options{.library = &library, .threads = 2};
  Plan a = make_plan(gpt_step(1, 16, 1, 4), options), b = make_plan(gpt_step(1, 16, 1, 4), options);
  CHECK(to_text(a) == to_text(b));
  CHECK(content_hash(a) == content_hash(b));
  CHECK(content_hash(a) != content_hash(make_plan(gpt_step(1, 16, 1, 5), options)));
  CHECK(a.flops() > 0);
}

TEST_CASE("the training step of a deep model is planned in near-linear time") {
  PlanningLibrary library;
  PassOptions options{.library = &library, .threads = 2, .skip = {"fuse"}};
  auto seconds = [&](int layers) {
    Graph graph = gpt_step(layers, 16, 1, 4);
    auto start = std::chrono::steady_clock::now();
    make_plan(graph, options);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  double four = seconds(4), sixteen = seconds(16);
  CHECK(sixteen < 12 * four + 0.1);  // 4 where it is linear, 16 where it is quadratic
}
