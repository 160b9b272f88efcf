// Tests products of few rows by a weight. WEFT_ISA selects the instruction set (tools/test_isa.sh).
#include "weft/backends/cpu/gemm/skinny_matmul.h"

#include <cmath>
#include <cstring>

#include <doctest/doctest.h>

#include "tests/backends/kernel_case.h"
#include "tests/support/allocations.h"
#include "weft/base/host/parallel.h"
#include "weft/base/memory/buffer.h"
#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"

namespace weft::testing {
namespace {
const std::string skinny = "weft:skinny_matmul";
const Lie by_rows{}, by_columns{{1, 0}};  // a weight [K, N], and one that is stored as [N, K]

Value skinny_product(DType x, DType weight, int64_t m, int64_t k, int64_t n) {
  return matmul(input({x, {m, k}}, 0), input({weight, {k, n}}, 1));
}
// Returns what is wrong with the result of the kernel; "" if nothing is.
std::string run(const Value& node, const std::vector<Lie>& lies, bool chosen = false) {
  KernelCase product_case(node, lies, false, 1, chosen ? "" : skinny);
  if (product_case.choice().kernel != skinny) return "chose " + product_case.choice().kernel;
  product_case.run();
  return product_case.disagreement();
}

// Products of two types have each number of rows by one layout of the weight.
TEST_CASE("a product of up to 16 rows agrees with the reference in every pair of types") {
  for (DType x : {DType::f32, DType::bf16, DType::f16})
    for (DType weight : {DType::f32, DType::bf16, DType::f16})
      for (bool columns : {false, true})
        for (int64_t m = 1; m <= 16; ++m) {
          const bool mixed = x != weight;
          if (mixed && (m % 2 == 0) != columns) continue;
          // No extent is a multiple of a vector, a tile or a panel.
          const Value node = mixed ? skinny_product(x, weight, m, 157, 301)
                                   : skinny_product(x, weight, m, 61, 173);
          const std::string wrong = run(node, {{}, columns ? by_columns : by_rows}, mixed);
          CHECK_MESSAGE(wrong.empty(), name(x), " ", name(weight), " ", m, ": ", wrong);
        }
}

TEST_CASE("a product of few rows agrees with the reference at extents around every block") {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Lie& lie : {by_rows, by_columns})
      for (int64_t m : {1, 5, 16})
        for (auto [k, n] : {std::pair<int64_t, int64_t>{1, 1},
                            {1, 70},
                            {70, 1},
                            {3, 2},
                            {16, 16},
                            {31, 33},
                            {64, 128},
                            {256, 24},
                            {257, 25},
                            {512, 96},
                            {2049, 51},
                            {4100, 3},
                            {97, 385},
                            {192, 408},
                            {300, 1024},
                            {9, 8200}}) {
          const std::string wrong = run(skinny_product(dtype, dtype, m, k, n), {{}, lie});
          CHECK_MESSAGE(wrong.empty(), name(dtype), " ", m, " ", k, " ", n, ": ", wrong);
        }
}

TEST_CASE("a product of 17 to 32 rows agrees with the reference, whatever chooses it") {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Lie& lie : {by_rows, by_columns})
      for (int64_t m : {17, 20, 21, 24, 25, 31, 32}) {
        const std::string wrong = run(skinny_product(dtype, dtype, m, 61, 600), {{}, lie});
        CHECK_MESSAGE(wrong.empty(), name(dtype), " ", m, ": ", wrong);
      }
}

TEST_CASE("a product of few rows reads any rows in place, and a weight with gaps") {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Lie& x : {Lie{{1, 0}}, Lie{{}, 5, 3}, Lie{.flipped = {0, 1}}, Lie{.broadcast = {0}}})
      for (const Lie& weight : {Lie{{}, 9, 1}, Lie{{1, 0}, 3, 5}}) {
        const Value node = skinny_product(dtype, dtype, 3, 77, 53);
        CHECK(run(node, {x, weight}) == "");
      }
}

TEST_CASE("a product of few rows of 16-bit floats can return its float32 sums") {
  for (DType dtype : {DType::bf16, DType::f16})
    for (const Lie& lie : {by_rows, by_columns}) {
      const Value node = skinny_product(dtype, dtype, 3, 300, 70);
      CHECK(run(make_node(op("matmul"), node->inputs, {{"wide", int64_t{1}}}), {{}, lie}) == "");
    }
}

TEST_CASE("a row has the same bits in a product of 16 rows, alone, and on any number of threads") {
  const int before = thread_count();
  const int64_t k = 2100, n = 1000;  // enough for several threads, ranges of K and panels
  std::vector<float> x(16 * k), weight(k * n);
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
  for (size_t i = 0; i < weight.size(); ++i) weight[i] = std::cos(static_cast<float>(i));
  for (bool columns : {false, true}) {
    auto computed = [&](int64_t m, int threads) {
      const Contraction task{.m = m,
                             .n = n,
                             .k = k,
                             .a = {{}, k, 1},
                             .b = {{}, columns ? 1 : n, columns ? k : 1},
                             .result = {{}, n, 1}};
      REQUIRE(cpu::is_skinny(task));
      std::vector<float> result(static_cast<size_t>(m * n));
      const auto workspace = Buffer::allocate(cpu::skinny_workspace(task));
      set_thread_count(threads);
      cpu::skinny_matmul(task, x.data(), weight.data(), result.data(), workspace->data, threads);
      return result;
    };
    const std::vector<float> whole = computed(16, 1);
    for (int64_t m : {1, 2, 3, 4, 5, 7, 12, 16})
      for (int threads : {1, 2, 5}) {
        const std::vector<float> part = computed(m, threads);
        CHECK(std::memcmp(part.data(), whole.data(), part.size() * sizeof(float)) == 0);
      }
  }
  set_thread_count(before);
}

TEST_CASE(
    "products of few rows by a much larger weight use the kernel, the memory-bound ones always") {
  for (const Lie& lie : {by_rows, by_columns}) {
    for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      KernelCase few(skinny_product(dtype, dtype, 4, 96, 64), {{}, lie});
      CHECK(few.choice().kernel == skinny);
      CHECK(few.choice().operand_order.empty());
    }
    KernelCase large(skinny_product(DType::f32, DType::f32, 16, 1024, 1024), {{}, lie});
    CHECK(large.choice().kernel == skinny);
  }
}

TEST_CASE("products that the kernel for few rows cannot compute keep another one") {
  auto kernel = [](const Value& node, const std::vector<Lie>& lies = {}) {
    return KernelCase(node, lies).choice().kernel;
  };
  CHECK(kernel(skinny_product(DType::f32, DType::f32, 17, 64, 640)) != skinny);
  CHECK(kernel(skinny_product(DType::f32, DType::f32, 4, 64, 60)) != skinny);
  CHECK(kernel(skinny_product(DType::f64, DType::f64, 4, 64, 64)) != skinny);
  CHECK(kernel(skinny_product(DType::i8, DType::i8, 4, 64, 64)) != skinny);
  CHECK(kernel(matmul(input({DType::f32, {3, 4, 64}}, 0), input({DType::f32, {3, 64, 64}}, 1))) !=
        skinny);
  const Lie flipped{.flipped = {0, 1}};
  CHECK(kernel(skinny_product(DType::f32, DType::f32, 4, 64, 64), {{}, flipped}) != skinny);
}

TEST_CASE("a product of few rows allocates nothing") {
  if (!can_watch_allocations()) return;
  for (DType dtype : {DType::f32, DType::bf16})
    for (const Lie& lie : {by_rows, by_columns}) {
      KernelCase product_case(skinny_product(dtype, dtype, 4, 768, 512), {{}, lie}, false, 1,
                              skinny);
      product_case.run();
      const Allocations used = allocations_of([&] { product_case.run(); });
      CHECK(used.own == 0);
    }
}
}  // namespace
}  // namespace weft::testing
