#include <vector>

#include <doctest/doctest.h>

#include "tests/backends/kernel_case.h"
#include "tests/support/allocations.h"
#include "weft/base/host/parallel.h"
#include "weft/ops/autodiff.h"
#include "weft/ops/ops.h"

namespace weft::testing {
namespace {

struct PoolGeometry {
  Shape x;
  PoolOptions options;
};
const std::vector<PoolGeometry> pool_geometries = {
    {{2, 3, 8, 8}, {.kernel = {2, 2}}},
    {{2, 17, 9, 7}, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}},
    {{1, 65, 7, 7}, {.kernel = {3, 2}, .stride = {1, 2}}},
    {{3, 1, 5, 6}, {.kernel = {5, 6}}},
    {{2, 130, 6, 6}, {.kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}}},
    {{2, 4, 10, 10}, {.kernel = {2, 2}, .stride = {3, 3}}},
    {{1, 1, 1, 1}, {.kernel = {1, 1}}},
    {{0, 3, 4, 4}, {.kernel = {2, 2}}},
    {{2, 3, 1, 17}, {.kernel = {1, 4}, .stride = {1, 3}, .padding = {0, 2}}},
    {{1, 6, 13, 5}, {.kernel = {2, 2}, .stride = {5, 1}}},
    {{1, 31, 12, 6}, {.kernel = {5, 3}, .stride = {1, 1}, .padding = {2, 1}}},
};
const DType types[] = {DType::f32, DType::f64, DType::bf16, DType::f16};

void check_pool(const Value& node, bool whole = false) {
  KernelCase pool_case(node, {}, whole);
  pool_case.run();
  const std::string wrong = pool_case.disagreement();
  CHECK_MESSAGE(wrong.empty(), to_string(node->inputs[0].type()), " ", wrong);
}

Value gradient_node(const Value& x, const Value& y) {
  const Value wanted[] = {x};
  return gradients(y, wanted, input(y.type(), 1))[0];
}

TEST_CASE("max_pool and its gradient agree with the reference, ties included") {
  for (DType dtype : types)
    for (const PoolGeometry& geometry : pool_geometries)
      for (bool whole : {false, true}) {  // integers from -3 to 3 give many ties
        const Value x = input({dtype, geometry.x}, 0), y = max_pool(x, geometry.options);
        check_pool(y, whole);
        check_pool(gradient_node(x, y), whole);
      }
}

TEST_CASE("avg_pool and its gradient agree with the reference, with and without counted padding") {
  for (DType dtype : types)
    for (PoolGeometry geometry : pool_geometries)
      for (bool counts : {false, true}) {
        geometry.options.count_include_pad = counts;
        const Value x = input({dtype, geometry.x}, 0), y = avg_pool(x, geometry.options);
        check_pool(y);
        check_pool(gradient_node(x, y));
      }
}

TEST_CASE("pools and their gradients are bit-identical on any number of threads") {
  const int before = thread_count();
  for (DType dtype : types)
    for (const PoolGeometry& geometry : pool_geometries) {
      const Value x = input({dtype, geometry.x}, 0);
      for (const Value& y : {max_pool(x, geometry.options), avg_pool(x, geometry.options)})
        for (const Value& node : {y, gradient_node(x, y)}) {
          std::vector<std::vector<std::byte>> results;
          for (int threads : {1, 2, 5}) {
            set_thread_count(threads);
            KernelCase pool_case(node);
            pool_case.run();
            results.push_back(pool_case.result_bytes());
          }
          CHECK(results[1] == results[0]);
          CHECK(results[2] == results[0]);
        }
    }
  set_thread_count(before);
}

TEST_CASE("pooling allocates nothing while it runs") {
  if (!can_watch_allocations()) return;
  for (DType dtype : {DType::f32, DType::bf16}) {
    const Value x = input({dtype, {4, 32, 16, 16}}, 0);
    for (const Value& y :
         {max_pool(x, pool_geometries[1].options), avg_pool(x, pool_geometries[1].options)})
      for (const Value& node : {y, gradient_node(x, y)}) {
        KernelCase pool_case(node);
        pool_case.run();
        const Allocations used = allocations_of([&] { pool_case.run(); });
        CHECK(used.most_live == 0);
      }
  }
}
}  // namespace
}  // namespace weft::testing
