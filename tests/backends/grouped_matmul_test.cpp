#include <algorithm>
#include <cmath>
#include <sys/mman.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include "tests/backends/kernel_case.h"
#include "tests/support/allocations.h"
#include "tests/support/planned.h"
#include "tests/support/values.h"
#include "weft/backends/cpu/gemm/contraction.h"
#include "weft/backends/cpu/kernels.h"
#include "weft/base/host/parallel.h"
#include "weft/base/memory/buffer.h"
#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"

namespace weft::testing {
namespace {

struct Sizes {
  int64_t m, k, n, e;
};
Value grouped_product(DType dtype, const Sizes& size, DType counts = DType::i64) {
  return grouped_matmul(input({dtype, {size.m, size.k}}, 0),
                        input({dtype, {size.e, size.k, size.n}}, 1), input({counts, {size.e}}, 2));
}
Value weight_gradient(DType dtype, const Sizes& size) {
  return make_node(op("grouped_matmul_weight_gradient"),
                   {input({dtype, {size.m, size.k}}, 0), input({dtype, {size.m, size.n}}, 1),
                    input({DType::i32, {size.e}}, 2)});
}

TEST_CASE("grouped products agree with the reference: every type, many sizes") {
  for (DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16})
    for (const Sizes& size : {Sizes{17, 9, 33, 3},
                              {1, 70, 40, 4},
                              {300, 20, 50, 2},
                              {40, 300, 3, 1},
                              {9, 4, 1, 20},
                              {0, 3, 4, 2},
                              {5, 0, 4, 2},
                              {5, 3, 0, 2},
                              {5, 3, 4, 0}})
      for (uint64_t seed : {1, 2})
        for (const Value& node : {grouped_product(dtype, size), weight_gradient(dtype, size)}) {
          KernelCase grouped_case(node, {}, false, seed);
          grouped_case.run();
          CHECK_MESSAGE(grouped_case.disagreement() == "", name(dtype), " ", size.m, " ", size.k,
                        " ", size.n, " ", size.e, " seed ", seed);
        }
}

TEST_CASE("grouped products read counts of every integer type") {
  for (DType counts : {DType::i64, DType::i32, DType::i16, DType::i8}) {
    KernelCase grouped_case(grouped_product(DType::f32, {20, 9, 33, 3}, counts));
    grouped_case.run();
    CHECK(grouped_case.disagreement() == "");
  }
}

TEST_CASE("grouped products copy neither transposed weights nor strided rows") {
  for (const Value& node : {grouped_product(DType::f32, {30, 17, 20, 3}),
                            weight_gradient(DType::f32, {30, 17, 20, 3})}) {
    const std::vector<Lie> lies = node->is("grouped_matmul")
                                      ? std::vector<Lie>{{{1, 0}, 3, 5}, {{0, 2, 1}, 2}}
                                      : std::vector<Lie>{{{0, 1}, 3, 5}, {{1, 0}, 2, 0, {}, {1}}};
    KernelCase grouped_case(node, lies);
    CHECK(grouped_case.choice().operand_order[0].empty());
    CHECK(grouped_case.choice().operand_order[1].empty());
    grouped_case.run();
    CHECK(grouped_case.disagreement() == "");
  }
}

TEST_CASE("grouped products give the same bits on any number of threads and allocate nothing") {
  const int before = thread_count();
  for (const Value& node : {grouped_product(DType::f32, {300, 100, 200, 3}),
                            weight_gradient(DType::bf16, {300, 100, 200, 3})}) {
    std::vector<std::vector<std::byte>> results;
    for (int threads : {1, 2, 5}) {
      set_thread_count(threads);
      KernelCase grouped_case(node);
      grouped_case.run();
      if (can_watch_allocations())
        CHECK(allocations_of([&] { grouped_case.run(); }).most_live == 0);
      results.push_back(grouped_case.result_bytes());
    }
    for (const auto& result : results) CHECK(result == results[0]);
  }
  set_thread_count(before);
}

TEST_CASE("the workspace of a product by rows suffices for any number of rows") {
  for (DType dtype : {DType::f32, DType::bf16, DType::f64})
    for (const Sizes& size : {Sizes{600, 300, 70, 1}, {40, 3, 5000, 1}})
      for (int threads : {1, 3, 16}) {
        Contraction task{.a_dtype = dtype,
                         .b_dtype = dtype,
                         .dtype = dtype,
                         .m = size.m,
                         .n = size.n,
                         .k = size.k,
                         .a = {.row = size.k, .column = 1},
                         .b = {.row = size.n, .column = 1},
                         .result = {.row = size.n, .column = 1}};
        const size_t enough = cpu::contraction_workspace_by_rows(task, threads);
        for (; task.m > 0; --task.m) CHECK(cpu::contraction_workspace(task, threads) <= enough);
      }
}

// As in decoding, two tokens choose two of eight experts. The other experts' weights, rows behind
// all groups and what other groups hold must have no influence.
TEST_CASE("weights of groups without rows are not read, on any backend") {
  const int64_t rows = 5, k = 6, n = 4, groups = 8;
  Random random(3);
  for (DType dtype : {DType::f32, DType::bf16}) {
    const Value all_x = random_values({dtype, {rows, k}}, -1, 1, random);
    const Value all_w = random_values({dtype, {groups, k, n}}, -1, 1, random);
    const std::vector<double> counts{0, 0, 1, 0, 0, 2, 0, 0};
    std::vector<double> x = elements(all_x), w = elements(all_w);
    for (size_t i = 3 * k; i < x.size(); ++i) x[i] = NAN;
    for (size_t e = 0; e < counts.size(); ++e)
      for (size_t i = 0; i < static_cast<size_t>(k * n) && counts[e] == 0; ++i)
        w[e * static_cast<size_t>(k * n) + i] = e % 2 == 0 ? NAN : INFINITY;
    Graph graph;
    graph.outputs = {grouped_matmul(constant(x, {rows, k}, dtype),
                                    constant(w, {groups, k, n}, dtype),
                                    constant(counts, {groups}, DType::i64))};
    for (const KernelLibrary* library : backends()) {
      INFO(library->name() << " " << name(dtype));
      const std::vector<double> got = elements(run_planned(graph, {}, *library).front());
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t column = 0; column < n; ++column) {
          double want = 0;
          const int64_t group = row == 0 ? 2 : 5;
          for (int64_t i = 0; i < k && row < 3; ++i)
            want += x[static_cast<size_t>(row * k + i)] *
                    w[static_cast<size_t>((group * k + i) * n + column)];
          const double off = std::fabs(got[static_cast<size_t>(row * n + column)] - want);
          CHECK(off <= (dtype == DType::f32 ? 1e-6 : 0.02));
        }
    }
  }
}

// Pages are memory whose protection a test can change, page by page.
class Pages {
 public:
  explicit Pages(size_t bytes) : bytes_(bytes) {
    at_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(at_ != MAP_FAILED);
  }
  ~Pages() { munmap(at_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(at_); }

 private:
  void* at_;
  size_t bytes_;
};

// The weights without rows are in pages whose read would end the process.
TEST_CASE("the kernel does not touch the memory of weights without rows") {
  const int64_t k = 64, n = 64, groups = 8;
  const auto matrix = static_cast<size_t>(k * n) * sizeof(float);
  REQUIRE(matrix % static_cast<size_t>(sysconf(_SC_PAGESIZE)) == 0);
  const Value node = grouped_product(DType::f32, {2, k, n, groups});
  const std::vector<Placement> at = dense(node->inputs);
  const cpu::Family& family = *cpu::find_family("grouped_matmul");
  const KernelChoice choice = *family.choose(*node.node(), at);
  Launch launch;
  launch.kind = Launch::Kind::library;
  launch.kernel = choice.kernel;
  launch.algorithm = choice.algorithm;
  launch.body = {node};
  launch.workspace = choice.workspace;
  for (size_t i = 0; i < at.size(); ++i) launch.operands.push_back({node->inputs[i], at[i]});
  launch.results = {{node, dense(std::span(&node, 1)).front()}};

  std::vector<float> x(static_cast<size_t>(2 * k), 1), y(static_cast<size_t>(2 * n), -1);
  std::vector<int64_t> counts{0, 1, 0, 0, 0, 1, 0, 0};
  const Pages w(groups * matrix);
  for (size_t group = 0; group < counts.size(); ++group) {
    auto* from = reinterpret_cast<float*>(w.data() + group * matrix);
    std::fill_n(from, k * n, static_cast<float>(group));
    if (counts[group] == 0) REQUIRE(mprotect(from, matrix, PROT_NONE) == 0);
  }
  const auto workspace = Buffer::allocate(choice.workspace);
  void* const operands[] = {x.data(), w.data(), counts.data()};
  void* const results[] = {y.data()};
  family.compile(launch)->run(operands, results, workspace->data);
  for (size_t i = 0; i < y.size(); ++i)
    CHECK(y[i] == static_cast<float>(k) * (i < static_cast<size_t>(n) ? 1 : 5));
}

TEST_CASE("a group's infinite gradient stays in the gradient of its own weight") {
  const std::vector<double> x{1, 2, 3}, dy{INFINITY, 1, 1};
  Graph graph;
  graph.outputs = {make_node(op("grouped_matmul_weight_gradient"),
                             {constant(x, {3, 1}, DType::f32), constant(dy, {3, 1}, DType::f32),
                              constant(std::vector<double>{1, 2}, {2}, DType::i64)})};
  for (const KernelLibrary* library : backends()) {
    INFO(library->name());
    CHECK(elements(run_planned(graph, {}, *library).front()) == std::vector<double>{INFINITY, 5});
  }
}

TEST_CASE("a row has the same bits whatever rows the other groups have") {
  Random random(4);
  const Value x = random_values({DType::f32, {40, 30}}, -1, 1, random);
  const Value w = random_values({DType::f32, {3, 30, 50}}, -1, 1, random);
  auto row = [&](const std::vector<double>& counts) {
    Graph graph;
    graph.outputs = {slice(grouped_matmul(x, w, constant(counts, {3}, DType::i64)), 0, 20, 21)};
    return elements(run_planned(graph, {}, *backends().back()).front());
  };
  CHECK(row({0, 40, 0}) == row({20, 1, 19}));
  CHECK(row({0, 40, 0}) == row({17, 9, 2}));
}
}  // namespace
}  // namespace weft::testing
