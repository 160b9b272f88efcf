#include <array>
#include <cmath>

#include <doctest/doctest.h>

#include "tests/backends/graphs.h"
#include "tests/backends/kernel_case.h"
#include "tests/support/allocations.h"
#include "tests/support/values.h"
#include "weft/backends/cpu/gemm/contraction.h"
#include "weft/backends/cpu/onednn/onednn.h"
#include "weft/base/host/parallel.h"
#include "weft/base/memory/buffer.h"
#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"

namespace weft::testing {
namespace {

Value product(DType dtype, const Shape& a, const Shape& b) {
  return matmul(input({dtype, a}, 0), input({dtype, b}, 1));
}

TEST_CASE("matmul agrees with the reference on odd extents in every number type") {
  for (DType dtype : number_types)
    for (Shape a :
         {Shape{1, 1}, Shape{3, 17}, Shape{17, 3}, Shape{1, 33}, Shape{65, 1}, Shape{31, 300}})
      for (int64_t n : {1, 3, 17, 70}) {
        KernelCase product_case(product(dtype, a, {a[1], n}), {}, !is_float(dtype));
        product_case.run();
        CHECK_MESSAGE(product_case.disagreement().empty(), name(dtype), " ", to_string(a), " ", n,
                      " ", product_case.disagreement());
      }
}

TEST_CASE("matmul of 16-bit floats can return its float32 sums") {
  for (DType dtype : {DType::bf16, DType::f16})
    for (Shape a : {Shape{1, 1}, Shape{3, 17}, Shape{65, 1}, Shape{31, 300}, Shape{0, 3}})
      for (int64_t n : {1, 17, 70})
        for (const Lie& lie : {Lie{}, Lie{{1, 0}}, Lie{.flipped = {0}}}) {
          Value sums = make_node(op("matmul"), {input({dtype, a}, 0), input({dtype, {a[1], n}}, 1)},
                                 {{"wide", int64_t{1}}});
          REQUIRE(sums.dtype() == DType::f32);
          KernelCase product_case(sums, {lie, lie});
          product_case.run();
          CHECK_MESSAGE(product_case.disagreement().empty(), name(dtype), " ", to_string(a), " ", n,
                        " ", product_case.disagreement());
        }
}

TEST_CASE("matmul over empty operands is empty, or zeros where the contracted axis is empty") {
  for (DType dtype : number_types)
    for (auto [m, k, n] : {std::array<int64_t, 3>{0, 3, 4}, {3, 0, 4}, {3, 4, 0}, {1, 0, 1}}) {
      KernelCase product_case(product(dtype, {m, k}, {k, n}));
      product_case.run();
      CHECK(product_case.disagreement() == "");
    }
}

TEST_CASE(
    "matmul reads strided operands in place: transposed, padded, offset, flipped, broadcast") {
  for (DType dtype : {DType::f32, DType::bf16, DType::f64, DType::i32})
    for (const Lie& a :
         {Lie{}, Lie{{1, 0}}, Lie{{}, 5, 3}, Lie{{1, 0}, 7, 2}, Lie{.flipped = {0, 1}}})
      for (const Lie& b : {Lie{}, Lie{{1, 0}}, Lie{{}, 9, 1}, Lie{{1, 0}, 1, 4},
                           Lie{.flipped = {1}}, Lie{.broadcast = {1}}}) {
        KernelCase product_case(product(dtype, {33, 47}, {47, 29}), {a, b}, dtype == DType::i32);
        product_case.run();
        CHECK(product_case.disagreement() == "");
      }
}

TEST_CASE("matmul broadcasts batch axes of either operand") {
  for (DType dtype : {DType::f32, DType::bf16, DType::f64})
    for (auto [a, b] : {std::pair<Shape, Shape>{{4, 3, 5, 7}, {1, 1, 7, 6}},
                        {{1, 3, 5, 7}, {4, 1, 7, 6}},
                        {{1, 1, 5, 7}, {4, 3, 7, 6}},
                        {{4, 3, 1, 7}, {1, 3, 7, 1}},
                        {{2, 1, 3, 1}, {2, 5, 1, 4}}}) {
      KernelCase product_case(product(dtype, a, b));
      product_case.run();
      CHECK(product_case.disagreement() == "");
    }
}

TEST_CASE("matmul of attention heads reads them in place from the joint projection") {
  for (DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    Lie heads{{0, 2, 1, 3}, 0, 0};
    KernelCase scores(product(dtype, {2, 3, 20, 8}, {2, 3, 8, 20}), {heads, {{0, 3, 1, 2}}});
    scores.run();
    CHECK(scores.disagreement() == "");
    if (dtype != DType::bf16) CHECK(scores.choice().operand_order.empty());
  }
}

TEST_CASE("a weight that is broadcast over the batch becomes one product over all rows") {
  KernelCase shared(product(DType::f32, {4, 16, 32}, {1, 32, 48}));
  shared.run();
  CHECK(shared.disagreement() == "");
  CHECK(shared.choice().operand_order.empty());
}

TEST_CASE("f32 matmul copies no operands whose strides oneDNN cannot take") {
  KernelCase padded(product(DType::f32, {64, 64}, {64, 64}), {{{}, 3}, {{}, 5}});
  padded.run();
  CHECK(padded.choice().kernel == "weft:matmul");
  CHECK(padded.choice().operand_order.empty());
  CHECK(padded.disagreement() == "");
}

TEST_CASE("matmul agrees with the reference on every route: in place, packed, aliased rows") {
  for (auto [a, n] : {std::pair<Shape, int64_t>{{520, 70}, 96},
                      {{70, 520}, 96},
                      {{40, 64}, 1024},
                      {{512, 64}, 1024}})
    for (const Lie& b : {Lie{}, Lie{{1, 0}}})
      for (DType dtype : {DType::f32, DType::bf16}) {
        const Value node = product(dtype, a, {a[1], n});
        for (const std::string& kernel : kernels_of(node, {{}, b})) {
          KernelCase product_case(node, {{}, b}, false, 1, kernel);
          product_case.run();
          CHECK(product_case.disagreement() == "");
        }
      }
}

TEST_CASE("the contraction sums in the same order on any number of threads") {
  const int before = thread_count();
  const int64_t m = 70, n = 130, k = 600;
  Contraction task{.m = m, .n = n, .k = k, .a = {{}, k, 1}, .b = {{}, n, 1}, .result = {{}, n, 1}};
  std::vector<float> a(static_cast<size_t>(m * k)), b(static_cast<size_t>(k * n));
  for (size_t i = 0; i < a.size(); ++i) a[i] = std::sin(static_cast<float>(i));
  for (size_t i = 0; i < b.size(); ++i) b[i] = std::cos(static_cast<float>(i));
  std::vector<std::vector<float>> results;
  for (int threads : {1, 2, 3, 8}) {
    set_thread_count(threads);
    std::vector<float> result(static_cast<size_t>(m * n));
    std::vector<std::byte> workspace(cpu::contraction_workspace(task, threads) + 64);
    auto aligned = reinterpret_cast<std::byte*>(
        (reinterpret_cast<uintptr_t>(workspace.data()) + 63) / 64 * 64);
    cpu::contract(task, a.data(), b.data(), result.data(), aligned, threads);
    results.push_back(std::move(result));
  }
  set_thread_count(before);
  for (const auto& result : results) CHECK(same_bits(result, results[0]));
}

TEST_CASE("a product by kept panels has the bits of one that packs in each run, and adds a bias") {
  const int before = thread_count();
  const int64_t depth = cpu::contraction_depth;
  std::vector<std::array<int64_t, 3>> products{
      {1, 5, 7}, {70, 130, 2 * depth + 88}, {300, 64, depth}, {9, 1000, 40}};
  for (int64_t few = 1; few <= 8; ++few) products.push_back({few, 300 + few, depth + 11});
  for (const auto& [m, n, k] : products)
    for (bool transposed : {false, true})
      for (int threads : {1, 2}) {
        set_thread_count(threads);
        Contraction task{.m = m, .n = n, .k = k, .fixed_b = true};
        task.a = {{}, k, 1}, task.result = {{}, n, 1};
        task.b = transposed ? MatrixStrides{{}, 1, k} : MatrixStrides{{}, n, 1};
        std::vector<float> a(static_cast<size_t>(m * k)), b(static_cast<size_t>(k * n));
        for (size_t i = 0; i < a.size(); ++i) a[i] = std::sin(static_cast<float>(i));
        for (size_t i = 0; i < b.size(); ++i) b[i] = std::cos(static_cast<float>(i));
        const auto workspace = Buffer::allocate(cpu::contraction_workspace(task, threads));
        REQUIRE(cpu::panels_bytes(task) >= b.size() * sizeof(float));
        const auto panels = Buffer::allocate(cpu::panels_bytes(task));
        cpu::pack_panels(task, b.data(), panels->data);
        std::vector<float> whole(static_cast<size_t>(m * n)), kept(whole), biased(whole);
        cpu::contract(task, a.data(), b.data(), whole.data(), workspace->data, threads);
        cpu::contract_panels(task, a.data(), panels->data, nullptr, kept.data(), workspace->data,
                             threads);
        CHECK(same_bits(kept, whole));
        cpu::contract_panels(task, a.data(), panels->data, b.data(), biased.data(), workspace->data,
                             threads);
        for (size_t i = 0; i < whole.size(); ++i) whole[i] += b[i % static_cast<size_t>(n)];
        CHECK(same_bits(biased, whole));
      }
  set_thread_count(before);
}

TEST_CASE("panels are kept of one matrix of the sums' type that the step does not assign") {
  Contraction task{.m = 70, .n = 130, .k = 600, .fixed_b = true};
  task.a = {{}, 600, 1}, task.b = {{}, 130, 1}, task.result = {{}, 130, 1};
  CHECK(cpu::panels_bytes(task) == 160 * 600 * sizeof(float));
  const auto without = [&](auto&& change) {
    Contraction other = task;
    change(other);
    return cpu::panels_bytes(other) == 0;
  };
  CHECK(without([](Contraction& other) { other.fixed_b = false; }));
  CHECK(without([](Contraction& other) { other.m = 4096; }));
  CHECK(without([](Contraction& other) { other.b_dtype = DType::bf16; }));
  CHECK(without([](Contraction& other) { other.result = {{}, 1, 70}; }));
  CHECK(without([](Contraction& other) {
    other.batch = {2};
    other.a.batch = other.b.batch = other.result.batch = {0};
  }));
}

TEST_CASE("a product split along K at multiples of the depth is bit-identical to the whole") {
  const int64_t m = 70, n = 130, k = 1000, depth = cpu::contraction_depth;
  std::vector<float> a(static_cast<size_t>(m * k)), b(static_cast<size_t>(k * n));
  for (size_t i = 0; i < a.size(); ++i) a[i] = std::sin(static_cast<float>(i));
  for (size_t i = 0; i < b.size(); ++i) b[i] = std::cos(static_cast<float>(i));
  auto summed = [&](bool transposed, std::initializer_list<int64_t> cuts) {
    std::vector<float> result(static_cast<size_t>(m * n), 7.0F);
    int64_t from = 0;
    for (int64_t until : cuts) {
      Contraction task{.m = m, .n = n, .k = until - from, .accumulate = from > 0};
      task.a = {{}, transposed ? 1 : k, transposed ? m : 1};
      task.b = {{}, n, 1};
      task.result = {{}, n, 1};
      const size_t bytes = cpu::contraction_workspace(task, 2);
      const auto workspace = Buffer::allocate(bytes);
      cpu::contract(task, a.data() + from * task.a.column, b.data() + from * n, result.data(),
                    workspace->data, 2);
      from = until;
    }
    return result;
  };
  for (bool transposed : {false, true}) {
    const std::vector<float> whole = summed(transposed, {k});
    CHECK(same_bits(summed(transposed, {depth, k}), whole));
    CHECK(same_bits(summed(transposed, {2 * depth, 3 * depth, k}), whole));
    CHECK(summed(transposed, {100, k}) != whole);
  }
}

TEST_CASE("matmul allocates less than 1 KiB while it runs and frees all of it") {
  if (!can_watch_allocations()) return;
  for (DType dtype : {DType::f32, DType::bf16, DType::f64, DType::f16})
    for (const auto& [a, b] : {std::pair<Lie, Lie>{}, {Lie{{1, 0}}, Lie{}}, {Lie{}, Lie{{1, 0}}}}) {
      KernelCase product_case(product(dtype, {256, 768}, {768, 512}), {a, b});
      product_case.run();
      const Allocations used = allocations_of([&] { product_case.run(); });
      CHECK(used.most_live < 1024);
      CHECK(used.kept == 0);
    }
}
}  // namespace
}  // namespace weft::testing
