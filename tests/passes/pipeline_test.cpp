#include <doctest/doctest.h>

#include "tests/passes/graphs.h"
#include "tests/passes/run_plan.h"
#include "tests/support/planned.h"
#include "weft/device/gemm.h"
#include "weft/device/registry.h"
#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"
#include "weft/ops/wide.h"
#include "weft/passes/passes.h"

using namespace weft;
using namespace weft::testing;

namespace {
// Checks the plan's results against the graph and returns the names of its kernels.
std::string kernels_of(const Graph& graph, const KernelLibrary& library) {
  const PassOptions options{.library = &library, .threads = 2, .verify = true};
  CHECK(plan_disagreement(graph, options, 1, 1e-5) == "");
  std::string names;
  for (const Launch& launch : make_plan(graph, options).launches) names += launch.kernel + " ";
  return names;
}
}  // namespace

TEST_CASE("a plan computes the results of its graph whatever optional passes are skipped") {
  PlanningLibrary library;
  library.workspace = 100;
  const std::vector<std::string> optional{"simplify", "fuse", "alias", "schedule", "reuse"};
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    Graph graph = random_graph(random, 30);
    PassOptions options{.library = &library, .threads = 2, .verify = true};
    for (const std::string& name : optional)
      if (random.chance(0.3)) options.step.skip.push_back(name);
    library.most_results = seed % 3;
    CAPTURE(seed);
    CHECK(plan_disagreement(graph, options, seed, 1e-5) == "");
  }
}

TEST_CASE(
    "a library's kernel fuses its only consumer as an epilogue where the library supports it") {
  PlanningLibrary library;
  library.most_results = 1;
  const Value a = input({DType::f32, {4, 8, 6}}, 0), b = input({DType::f32, {6, 5}}, 1);
  const Value c = input({DType::f32, {4, 8, 5}}, 2);
  auto kernels = [&](const std::vector<Value>& outputs) {
    const Graph graph{.inputs = {a, b, c}, .outputs = outputs};
    return kernels_of(graph, library);
  };
  const Value product = matmul(a, b);
  CHECK(kernels({tanh(product) * c}) == "test:matmul+2 ");
  CHECK(kernels({tanh(product), product}) == "test:matmul tanh ");
  CHECK(kernels({tanh(product), sum(product)}) == "test:matmul sum tanh ");
  CHECK(kernels({sum(tanh(product), {.axes = {2}})}) == "test:matmul tanh.sum ");
  CHECK(kernels({matmul(c, transpose(c)) * matmul(c + 1.0, transpose(c))}) ==
        "add copy test:matmul test:matmul+1 ");
}

TEST_CASE(
    "a library's kernel takes in the one that makes its first operand, if nothing else reads it") {
  PlanningLibrary library;
  library.most_results = 1;
  const Value a = input({DType::f32, {4, 8, 6}}, 0), b = input({DType::f32, {6, 5}}, 1);
  const Value c = input({DType::f32, {5, 3}}, 2);
  auto kernels = [&](const std::vector<Value>& outputs) {
    const Graph graph{.inputs = {a, b, c}, .outputs = outputs};
    return kernels_of(graph, library);
  };
  const Value product = matmul(a, b), between = tanh(product), y = matmul(between, c);
  CHECK(kernels({y}) == "test:matmul+1 test:matmul ");
  library.chains = true;
  CHECK(kernels({y}) == "test:matmul+2 ");
  CHECK(kernels({tanh(y)}) == "test:matmul+3 ");
  CHECK(kernels({matmul(product, c)}) == "test:matmul+1 ");
  CHECK(kernels({y, between}) == "test:matmul+1 test:matmul ");
  CHECK(kernels({y, product}) == "test:matmul tanh test:matmul ");
  CHECK(kernels({matmul(transpose(c), transpose(product))}) ==
        "test:matmul copy copy test:matmul ");
}

TEST_CASE("an epilogue that one library's kernel refuses is fused into another's") {
  PlanningLibrary library;
  library.most_results = 2;
  library.overrides = {"softmax"};
  const Value a = input({DType::f32, {32, 6}}, 0), b = input({DType::f32, {6, 6}}, 1);
  auto kernels = [&](const std::vector<Value>& outputs) {
    const Graph graph{.inputs = {a, b}, .outputs = outputs};
    return kernels_of(graph, library);
  };
  // One graph sums the operand of both kernels, the other adds their results.
  const std::vector<Value> beside{softmax(a), matmul(a, b), sum(a, {.axes = {1}})};
  const std::vector<Value> after{tanh(softmax(a)) + matmul(a, b)};
  library.alone = {"softmax"};
  CHECK(kernels(beside) == "test:matmul+1 test:softmax ");
  CHECK(kernels(after) == "test:softmax test:matmul+2 ");
  library.alone = {"matmul"};
  CHECK(kernels(beside) == "test:matmul test:softmax+1 ");
  CHECK(kernels(after) == "test:matmul test:softmax+2 ");
  library.alone = {"softmax", "matmul"};
  CHECK(kernels(beside) == "sum test:matmul test:softmax ");
  CHECK(kernels(after) == "test:matmul test:softmax tanh.add ");
}

TEST_CASE("parts of a concatenation are computed in place where their offset is aligned") {
  const PlanningLibrary library;
  auto kernels = [&](int64_t columns) {
    const Value a = input({DType::f32, {4, 6}}, 0), b = input({DType::f32, {6, columns}}, 1);
    const Graph graph{.inputs = {a, b}, .outputs = {concat({matmul(a, b), matmul(a + a, b)}, 0)}};
    return kernels_of(graph, library);
  };
  CHECK(kernels(16) == "test:matmul add test:matmul ");
  CHECK(kernels(5) == "test:matmul add test:matmul copy ");
}

TEST_CASE("an operand that libraries need in several layouts is copied once per layout") {
  PlanningLibrary library;
  library.overrides = {"softmax", "log_softmax"};
  library.orders = {{"softmax", {2, 1, 0}}, {"log_softmax", {2, 1, 0}}, {"matmul", {0, 2, 1}}};
  const Value a = input({DType::f32, {3, 4, 5}}, 0), b = input({DType::f32, {3, 2, 4}}, 1);
  const Graph graph{.inputs = {a, b}, .outputs = {softmax(a), matmul(b, a), log_softmax(a)}};
  CHECK(kernels_of(graph, library) == "copy test:matmul copy test:softmax test:log_softmax ");
  for (const Launch& launch : make_plan(graph, {.library = &library}).launches)
    if (launch.kind == Launch::Kind::library)
      CHECK(launch.operands.back().at.strides ==
            dense_strides(a.shape(), library.orders.find(launch.body.front()->op->name)->second));
}

TEST_CASE("a library's kernel fuses nothing that must run before or during it") {
  PlanningLibrary library;
  const Value a = input({DType::f32, {32, 6}}, 0), b = input({DType::f32, {6, 5}}, 1);
  auto kernels = [&](const std::vector<Value>& outputs) {
    const Graph graph{.inputs = {a, b}, .outputs = outputs};
    return kernels_of(graph, library);
  };
  // The subtraction needs a maximum over whole rows of the product.
  const Value product = matmul(a, b);
  const Value most = max(product, {.axes = {1}, .keepdim = true});
  library.most_results = 2;
  CHECK(kernels({product, product - most, most}) == "test:matmul max.sub ");
  // The sum shares a kernel with the product's operand, which has to run first.
  const Value factor = tanh(a);
  library.most_results = 3;
  CHECK(kernels({matmul(factor, b), sum(factor, {.axes = {1}})}) == "tanh.sum test:matmul ");
}

TEST_CASE("on CUDA a product fuses the addition of a bias that is its only consumer") {
  const KernelLibrary& cuda = library("null:cuda");
  for (const DType type : {DType::bf16, DType::f16, DType::f32, DType::f64}) {
    const Value a = input({type, {4, 8, 16}}, 0), b = input({type, {16, 24}}, 1);
    const DType wide = type == DType::f64 ? type : DType::f32;
    const Value bias = input({wide, {24}}, 2), rows = input({wide, {8, 1}}, 3);
    auto kernels = [&](const Value& sum) {
      const Graph graph{.inputs = {a, b, bias, rows}, .outputs = {narrow_to(sum, type)}};
      return kernels_of(graph, cuda);
    };
    CAPTURE(name(type));
    const Value product = widen(matmul(a, b));
    CHECK((kernels(product + bias) == "cublaslt:matmul.bias ") == (type != DType::f64));
    CHECK(kernels(reshape(bias, {1, 24}) + product).starts_with("cublaslt:matmul.bias ") ==
          (type != DType::f64));
    for (const Value& other : {product + rows, relu(product + bias), product * bias,
                               product + bias + bias, product + slice(bias, 0, 0, 1)})
      CHECK(kernels(other).starts_with("cublaslt:matmul "));
    // The bias has as many elements as the result has rows, or matrices.
    for (const Shape& shape : {Shape{24, 16}, Shape{24, 8, 16}}) {
      const Value rows = input({type, shape}, 0), sums = widen(matmul(rows, b));
      const Value other = sums + reshape(bias, shape.size() == 2 ? Shape{24, 1} : Shape{24, 1, 1});
      const Graph graph{.inputs = {rows, b, bias}, .outputs = {narrow_to(other, type)}};
      for (const Launch& launch : make_plan(graph, {.library = &cuda, .verify = true}).launches)
        CHECK(launch.kernel != "cublaslt:matmul.bias");
    }
  }
  // The sums are rounded to a narrower type before the bias is added.
  const Value a = input({DType::f32, {8, 16}}, 0), b = input({DType::f32, {16, 24}}, 1);
  const Value bias = input({DType::f16, {24}}, 2);
  const Graph graph{.inputs = {a, b, bias},
                    .outputs = {cast(cast(matmul(a, b), DType::f16) + bias, DType::f32)}};
  for (const Launch& launch : make_plan(graph, {.library = &cuda}).launches)
    CHECK(launch.kernel != "cublaslt:matmul.bias");
}

TEST_CASE("on CUDA a bias that is also a factor is added by a separate kernel") {
  const KernelLibrary& cuda = library("null:cuda");
  const Value bias = input({DType::f32, {24}}, 0), matrix = input({DType::f32, {24, 24}}, 1);
  const Value rows = broadcast_to(bias, {8, 24}), square = broadcast_to(bias, {24, 24});
  for (const Value& sum : {matmul(rows, matrix) + rows, matmul(matrix, square) + square}) {
    const Graph graph{.inputs = {bias, matrix}, .outputs = {sum}};
    const PassOptions options{.library = &cuda, .threads = 2, .verify = true};
    CHECK(plan_disagreement(graph, options, 1, 1e-5) == "");
    CHECK(make_plan(graph, options).launches.back().kernel == "add");
  }
}

TEST_CASE("on CUDA rows of a product and of its consumers are aligned to 16 bytes") {
  const KernelLibrary& cuda = library("null:cuda");
  const Value a = input({DType::bf16, {2, 6, 20}}, 0), b = input({DType::bf16, {20, 201}}, 1);
  const Value c = input({DType::bf16, {201, 9}}, 2);
  const Value product = matmul(a, b), wide = widen(product);
  const Value scaled = narrow_to(wide - max(wide, {.axes = {-1}, .keepdim = true}), DType::bf16);
  const Graph graph{.inputs = {a, b, c},
                    .outputs = {matmul(scaled, c), sum(reshape(wide, {12 * 201}), {.axes = {0}})}};
  const PassOptions options{.library = &cuda, .threads = 2, .verify = true};
  CHECK(plan_disagreement(graph, options, 1, 2e-2) == "");
  const Plan plan = make_plan(graph, options);
  int padded = 0;
  for (const Launch& launch : plan.launches)
    for (const Access& result : launch.results) {
      if (result.value.shape() != Shape{2, 6, 201}) continue;
      const bool copied = launch.kernel == "copy";  // a reshape that no view can express
      const int64_t row = copied ? 201 : 208;
      CHECK(result.at.strides == Dims{6 * row, row, 1});
      const Slot& slot = plan.slots[static_cast<size_t>(result.at.slot)];
      CHECK(slot.bytes >= 12 * static_cast<size_t>(row) * size_of(result.value.dtype()));
      padded += copied ? 0 : 1;
    }
  CHECK(padded == 3);
  // The padded values still are one matrix, or one batch of matrices, for the library.
  for (const Shape& left : {Shape{4, 5, 1, 20}, {4, 5, 3, 20}, {1, 1, 3, 20}, {3, 20}, {1, 20}})
    for (const Shape& right : {Shape{4, 5, 20, 201}, {1, 5, 20, 201}, {20, 201}}) {
      const Value x = input({DType::bf16, left}, 0), y = input({DType::bf16, right}, 1);
      const Graph batch{.inputs = {x, y}, .outputs = {relu(matmul(x, y)) * 2.0}};
      for (const Launch& launch : make_plan(batch, options).launches)
        if (launch.kernel == "cublaslt:matmul") CHECK_NOTHROW(GemmLaunch{launch});
    }
  // A gradient has the same row stride as the weight that its update writes.
  const auto weight = std::make_shared<VariableState>("weight", Type{DType::bf16, {20, 201}});
  const Value old = variable_leaf(weight), right = input({DType::bf16, {12, 201}}, 1);
  const Value gradient = matmul(reshape(a, {20, 12}), right);
  const Graph update{.inputs = {a, right}, .outputs = {}, .assignments = {{old, old - gradient}}};
  for (const Launch& launch : make_plan(update, {.library = &cuda}).launches)
    for (const Access& result : launch.results)
      if (result.value.shape() == Shape{20, 201}) CHECK(result.at.strides == Dims{201, 1});
  // Outputs of the graph are contiguous, as are narrow rows and rows that are aligned anyway.
  for (const auto& [columns, root] : {std::pair{201, true}, {63, false}, {200, false}}) {
    const Value right = input({DType::bf16, {20, columns}}, 1);
    const Value made = matmul(a, right);
    const Graph other{.inputs = {a, right}, .outputs = {root ? made : relu(made) * made}};
    const Launch first = make_plan(other, options).launches.front();
    CHECK(first.results.front().at.strides == row_major_strides(made.shape()));
  }
}

TEST_CASE("a bug seeded in any pass is detected by the verifier or by the results") {
  PlanningLibrary library;
  for (const std::string fault : {"fold-wrong", "cse-ignores-attrs", "alias-ignores-readers",
                                  "schedule-ignores-dependency", "memory-overlap"}) {
    int caught = 0;
    for (uint64_t seed = 0; seed < 20; ++seed) {
      Random random(seed);
      Graph graph = random_graph(random, 30);
      PassOptions options{
          .library = &library, .threads = 2, .step = {.skip = {"fuse"}}, .fault = fault};
      try {
        options.verify = seed % 2 == 0;
        caught += !plan_disagreement(graph, options, seed, 1e-5).empty();
      } catch (const InternalError& error) {
        caught += is_verifiers(error);
      }
    }
    CAPTURE(fault);
    CHECK(caught > 0);
  }
}

TEST_CASE("planning is deterministic: equal graphs give plans of equal text and hash") {
  PlanningLibrary library;
  PassOptions options{.library = &library, .threads = 2};
  Plan a = make_plan(gpt_step(1, 16, 1, 4), options), b = make_plan(gpt_step(1, 16, 1, 4), options);
  CHECK(to_text(a) == to_text(b));
  CHECK(content_hash(a) == content_hash(b));
  CHECK(content_hash(a) != content_hash(make_plan(gpt_step(1, 16, 1, 5), options)));
  CHECK(a.flops() > 0);
}
