// Tests products whose extents a GPU's library rounds up so that its fast kernels apply: padding
// reaches no result. The fake CUDA device fills its memory with NaNs.
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/interpreter.h"
#include "tests/support/planned.h"
#include "tests/support/values.h"
#include "weft/base/host/parallel.h"
#include "weft/base/memory/storage.h"
#include "weft/device/gemm.h"
#include "weft/device/registry.h"
#include "weft/ir/op_def.h"
#include "weft/ops/autodiff.h"
#include "weft/ops/ops.h"
#include "weft/ops/wide.h"
#include "weft/passes/passes.h"
#include "weft/runtime/executable.h"

using namespace weft;
using namespace weft::testing;

namespace {
bool is_product(const Launch& launch) { return launch.kernel.starts_with("cublaslt:matmul"); }

// Returns whether the columns of a matrix, as the library sees them, are no multiple of 16 bytes.
bool is_unaligned(const Launch& launch) {
  const GemmLaunch product(launch);
  const auto sums = static_cast<int64_t>(size_of(launch.results.front().value.dtype()));
  const auto factor = static_cast<int64_t>(size_of(product.task.a_dtype));
  return product.gemm.a.rows * factor % 16 != 0 || product.gemm.b.rows * factor % 16 != 0 ||
         product.gemm.result.rows * sums % 16 != 0;
}

// Checks that the library accesses only bytes within the slots of its operands and results.
void check_room(const Plan& plan, const Launch& launch) {
  const GemmLaunch product(launch);
  auto check = [&](const Access& access, const Bound& bound, const GemmMatrix& matrix) {
    const Slot& slot = plan.slots[static_cast<size_t>(access.at.slot)];
    const int64_t last = bound.offset + (matrix.columns - 1) * matrix.stride + matrix.rows;
    CHECK(static_cast<size_t>(last) * size_of(access.value.dtype()) <= slot.bytes);
    CHECK(matrix.stride >= matrix.rows);
  };
  check(launch.operands[static_cast<size_t>(product.a.index)], product.a, product.gemm.a);
  check(launch.operands[static_cast<size_t>(product.b.index)], product.b, product.gemm.b);
  check(launch.results[static_cast<size_t>(product.result.index)], product.result,
        product.gemm.result);
}

struct ProductCounts {
  int products = 0, padded = 0, unaligned = 0, copies = 0;
};
ProductCounts look_at(const Plan& plan) {
  ProductCounts found;
  for (const Launch& launch : plan.launches) {
    found.copies += launch.kernel.starts_with("copy") ? launch.parts : 0;
    if (!is_product(launch)) continue;
    ++found.products;
    found.padded += launch.padded ? 1 : 0;
    found.unaligned += is_unaligned(launch) ? 1 : 0;
    check_room(plan, launch);
  }
  return found;
}
BoundPlan bound_for(const Graph& graph, const char* device = "null:cuda:h100",
                    PassOptions options = {}) {
  options.library = &library(device);
  options.verify = true;
  return bound_plan(graph, options);
}
Plan planned_for(const Graph& graph, const char* device = "null:cuda:h100",
                 PassOptions options = {}) {
  return bound_for(graph, device, std::move(options)).plan;
}

// Returns the results of a step whose arena holds only NaNs before it runs.
std::vector<Value> run_poisoned(const Graph& graph, std::span<const Value> given,
                                const KernelLibrary& library, PassOptions options = {}) {
  options.library = &library;
  options.threads = thread_count();
  const BoundPlan bound = bound_plan(graph, options);
  const size_t arena_bytes = bound.plan.arena_bytes;
  const auto arena = std::make_shared<Workspace>();
  arena->reserve(arena_bytes, library.memory());
  const auto poison = [&] {
    const std::vector<std::byte> nans(arena_bytes, std::byte{0xff});
    arena->memory->write(arena->buffer->data, nans.data(), nans.size());
  };
  poison();
  const auto run = make_executable([&] { return bound; }, library, arena);
  poison();  // tuning may have run kernels
  std::vector<Value> results;
  for (const Value& result : run->run(given)) results.push_back(result.eval());
  return results;
}

// A Head is a language model's last layer and loss: rows [2, 5, 24], a table [classes, 24] that may
// also be the embedding of the rows, and labels, some of which are ignored.
struct Head {
  int64_t classes = 257;
  DType type = DType::bf16;
  bool tied = false, biased = false;

  Graph graph(bool trains = true) const {
    const Value table = input({DType::f32, {classes, 24}}, 0);
    const Value labels = input({DType::i64, {2, 5}}, 1);
    const Value rows = tied ? gather(table, labels + 0) : input({DType::f32, {2, 5, 24}}, 2);
    const Value bias = input({DType::f32, {classes}}, tied ? 2 : 3);
    Value scores = matmul(cast(rows, type), transpose(cast(table, type)));
    if (biased) scores = narrow_to(widen(scores) + bias, type);
    const Value loss = cross_entropy(scores, labels, {.ignore_index = 3});
    Graph graph{.inputs = {table, labels}, .outputs = {loss}};
    std::vector<Value> wrt{table};
    if (!tied) graph.inputs.push_back(rows), wrt.push_back(rows);
    if (biased) graph.inputs.push_back(bias), wrt.push_back(bias);
    if (trains)
      for (const Value& gradient : gradients(loss, wrt)) graph.outputs.push_back(gradient);
    return graph;
  }
  std::vector<Value> given(const Graph& graph) const {
    Random random(7);
    std::vector<Value> values;
    for (const Value& leaf : graph.inputs) {
      const bool labels = leaf.dtype() == DType::i64;
      const double most = labels ? static_cast<double>(classes - 1) : 1;
      values.push_back(random_values(leaf.type(), labels ? 0 : -most, most, random));
    }
    auto* labels = reinterpret_cast<int64_t*>(values[1]->data());
    labels[0] = labels[7] = 3;  // ignored label
    labels[1] = 0, labels[9] = classes - 1;
    return values;
  }
};
}  // namespace

TEST_CASE("a head with an odd vocabulary trains correctly whatever bytes pad its rows") {
  for (const int64_t classes : {257, 264})
    for (const DType type : {DType::bf16, DType::f16, DType::f32})
      for (const bool tied : {false, true})
        for (const bool biased : {false, true}) {
          if (classes == 264 && tied != biased) continue;  // nothing is padded
          const Head head{classes, type, tied, biased};
          INFO(classes << " " << name(type) << std::string(tied ? " tied" : "")
                       << std::string(biased ? " biased" : ""));
          for (const bool trains : {true, false}) {
            const Graph graph = head.graph(trains);
            const std::vector<Value> given = head.given(graph);
            const std::vector<Interpreted> want = interpret_with_errors(graph, given);
            for (const KernelLibrary* library : backends()) {
              INFO(library->name() << std::string(trains ? "" : ", loss alone"));
              CHECK(disagreement(run_poisoned(graph, given, *library), want, *library) == "");
            }
            const ProductCounts found = look_at(planned_for(graph));
            const bool pads = size_of(type) == 2 && classes == 257;
            CHECK(found.products == (trains ? 3 : 1));
            CHECK(found.padded == (pads ? found.products : 0));
            CHECK((found.unaligned > 0) == (type == DType::f32 && classes == 257));
          }
        }
}

TEST_CASE("a head with an odd vocabulary trains correctly with row tiling and tuned kernels") {
  const Head head{.classes = 1001, .biased = true};
  const Graph graph = head.graph();
  const std::vector<Value> given = head.given(graph);
  const std::vector<Interpreted> want = interpret_with_errors(graph, given);
  const KernelLibrary& last = *backends().back();
  setenv("WEFT_TUNE", "1", 1);
  CHECK(disagreement(run_planned(graph, given, last), want, last) == "");
  unsetenv("WEFT_TUNE");
  const Head plain{.classes = 1001};
  const Graph whole = plain.graph();
  const std::vector<Value> numbers = plain.given(whole);
  CHECK(disagreement(
            run_poisoned(whole, numbers, last, {.step = {.row_tiles = 3}, .tile_anywhere = true}),
            interpret_with_errors(whole, numbers), last) == "");
  const ProductCounts parts = look_at(
      planned_for(whole, "null:cuda:h100", {.step = {.row_tiles = 3}, .tile_anywhere = true}));
  CHECK(parts.products > 3);
  CHECK(parts.unaligned == 0);
}

TEST_CASE("the 16-bit copy of an odd table is padded for tensor cores") {
  const int64_t classes = 257;
  const auto state = std::make_shared<VariableState>("table", Type{DType::f32, {classes, 24}});
  const Value table = variable_leaf(state);
  const Value rows = input({DType::f32, {10, 24}}, 0), labels = input({DType::i64, {10}}, 1);
  const Value loss = cross_entropy(matmul(rows, transpose(table)), labels);
  const std::vector<Value> gradient = gradients(loss, {{table, rows}});
  const Graph graph{.inputs = {rows, labels},
                    .outputs = {loss, gradient[1]},
                    .assignments = {{table, table - gradient[0] * 0.5}}};
  const ProductCounts found =
      look_at(planned_for(graph, "null:cuda:h100", {.step = {.precision = Precision::bf16_mixed}}));
  CHECK(found.products == 3);
  CHECK(found.padded == 3);
  CHECK(found.unaligned == 0);
  CHECK(found.copies == 0);

  Random random(5);
  const std::vector<Value> given{random_values(rows.type(), -1, 1, random),
                                 random_values(labels.type(), 0, classes - 1, random)};
  const Value start = random_values(table.type(), -1, 1, random);
  const KernelLibrary& last = *backends().back();
  const auto two_updates = [&](std::vector<std::string> skip) {
    std::memcpy(state->storage->on_host().data, start->data(), table.type().bytes());
    state->storage->note_write();
    const auto run =
        compile_graph(graph, last, std::make_shared<Workspace>(),
                      {.step = {.precision = Precision::bf16_mixed, .skip = std::move(skip)}});
    std::vector<std::vector<double>> all;
    for (int i = 0; i < 2; ++i)
      for (const Value& result : run->run(given)) all.push_back(result.to_doubles());
    return all;
  };
  CHECK(two_updates({}) == two_updates({"copies"}));
}

TEST_CASE("logits of an odd vocabulary are returned without their padding") {
  const Value x = input({DType::bf16, {3, 16}}, 0), table = input({DType::bf16, {257, 16}}, 1);
  const Value scores = matmul(x, transpose(table));
  const Graph graph{.inputs = {x, table}, .outputs = {scores, max(widen(scores), {.axes = {-1}})}};
  Random random(11);
  const std::vector<Value> given{random_values(x.type(), -1, 1, random),
                                 random_values(table.type(), -1, 1, random)};
  const std::vector<Interpreted> want = interpret_with_errors(graph, given);
  for (const KernelLibrary* library : backends())
    CHECK(disagreement(run_planned(graph, given, *library), want, *library) == "");
}

TEST_CASE("padding the extents of products keeps results bit-identical") {
  const KernelLibrary& last = *backends().back();
  const Head head{.classes = 1001, .tied = true};
  const Graph graph = head.graph();
  const std::vector<Value> given = head.given(graph);
  const std::vector<Value> padded = run_planned(graph, given, last);
  setenv("WEFT_CUDA_OFF", "padding", 1);
  const std::vector<Value> plain = run_planned(graph, given, last);
  const ProductCounts found = look_at(planned_for(graph));
  unsetenv("WEFT_CUDA_OFF");
  CHECK(found.padded == 0);
  CHECK(found.unaligned == 3);
  for (size_t i = 0; i < padded.size(); ++i) CHECK(bit_difference(padded[i], plain[i]) == "");
}

// These operands are graph inputs or contiguous rows of odd extents, without padding.
TEST_CASE("unpadded operands are copied where the faster product outweighs the copy") {
  auto product = [](DType type, int64_t rows, bool along_terms) {
    const int64_t columns = along_terms ? 2048 : 1001, terms = along_terms ? 1001 : 200;
    const Value x = input({type, {rows, terms}}, 0);
    const Value table = input({type, {columns, terms}}, 1);
    return Graph{.inputs = {x, table},
                 .outputs = {sum(widen(relu(matmul(x, transpose(table)))), {.axes = {0}})}};
  };
  for (const bool along_terms : {false, true}) {
    CAPTURE(along_terms);
    const ProductCounts few =
        look_at(planned_for(product(DType::f16, 64, along_terms), "null:cuda:t4"));
    CHECK(few.padded == 0);
    CHECK(few.copies == 0);
    const Graph graph = product(DType::f16, 2048, along_terms);
    const Plan plan = planned_for(graph, "null:cuda:t4");
    const ProductCounts many = look_at(plan);
    CHECK(many.padded == 1);
    CHECK(many.unaligned == 0);
    CHECK(many.copies == (along_terms ? 2 : 1));
  }
  // A graph output has no padding, and needs none if only the reduced extent is odd.
  const Value x = input({DType::f16, {2048, 1001}}, 0),
              table = input({DType::f16, {2048, 1001}}, 1);
  const Graph given{.inputs = {x, table}, .outputs = {matmul(x, transpose(table))}};
  CHECK(look_at(planned_for(given, "null:cuda:t4")).padded == 1);
  // TF32 elements have 4 bytes; float32 without TF32 uses no tensor cores.
  const Graph wide = product(DType::f32, 1 << 14, false);
  CHECK(look_at(planned_for(wide)).padded == 0);
  CHECK(look_at(planned_for(wide, "null:cuda:h100", {.step = {.precision = Precision::tf32}}))
            .padded == 1);
}

TEST_CASE("padded copies hold their operands' elements") {
  const KernelLibrary& cuda = *backends().back();
  if (cuda.name() != "cuda") return;
  const Value x = input({DType::f16, {700, 257}}, 0), table = input({DType::f16, {700, 257}}, 1);
  const Value y = matmul(x, transpose(table));
  const Graph graph{.inputs = {x, table}, .outputs = {sum(widen(relu(y)), {.axes = {0}})}};
  Random random(3);
  const std::vector<Value> given{random_values(x.type(), -1, 1, random),
                                 random_values(table.type(), -1, 1, random)};
  const std::vector<Interpreted> want = interpret_with_errors(graph, given);
  const BoundPlan bound = bound_for(graph, "null:cuda:t4");
  CHECK(look_at(bound.plan).padded == 1);
  const auto run = make_executable([&] { return bound; }, cuda, std::make_shared<Workspace>());
  std::vector<Value> got;
  for (const Value& result : run->run(given)) got.push_back(result.eval());
  CHECK(disagreement(got, want, cuda) == "");
}

TEST_CASE("outputs and variables of a step are not padded") {
  const auto weight = std::make_shared<VariableState>("weight", Type{DType::bf16, {1001, 32}});
  const Value dy =
      relu(matmul(input({DType::bf16, {64, 16}}, 0), input({DType::bf16, {16, 1001}}, 1)));
  const Value x = input({DType::bf16, {64, 32}}, 2), old = variable_leaf(weight);
  const Value gradient = matmul(transpose(dy), x);
  const std::vector<Value> inputs{dy->inputs[0]->inputs[0], dy->inputs[0]->inputs[1], x};
  for (const Graph& graph : {Graph{.inputs = inputs, .assignments = {{old, gradient}}},
                             Graph{.inputs = inputs, .outputs = {gradient}}})
    for (const Launch& launch : planned_for(graph).launches)
      for (const Access& result : launch.results)
        if (result.value.shape() == Shape{1001, 32}) CHECK(!launch.padded);
}
