#include <doctest/doctest.h>

#include "tests/backends/kernel_case.h"
#include "tests/support/allocations.h"
#include "weft/base/host/parallel.h"
#include "weft/ops/ops.h"

namespace weft::testing {
namespace {

TEST_CASE("argsort agrees with the reference: ties, every type, both directions") {
  for (DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32,
                      DType::u32, DType::i16, DType::u16, DType::i8, DType::u8, DType::boolean})
    for (const Shape& shape : {Shape{100}, Shape{7, 33}, Shape{2, 3, 1}, Shape{3, 0}, Shape{0, 3}})
      for (bool descending : {false, true}) {
        INFO(name(dtype) << " " << to_string(shape) << " descending " << descending);
        KernelCase sort_case(argsort(input({dtype, shape}, 0), -1, descending), {}, true);
        CHECK(sort_case.choice().kernel == "weft:argsort");
        sort_case.run();
        CHECK(sort_case.disagreement() == "");
      }
}

TEST_CASE("argsort gives the same order on any number of threads and allocates nothing") {
  const int before = thread_count();
  std::vector<std::vector<std::byte>> results;
  for (int threads : {1, 2, 5}) {
    set_thread_count(threads);
    KernelCase sort_case(argsort(input({DType::f32, {30, 500}}, 0)), {}, true);
    sort_case.run();
    if (can_watch_allocations()) CHECK(allocations_of([&] { sort_case.run(); }).most_live == 0);
    results.push_back(sort_case.result_bytes());
  }
  set_thread_count(before);
  for (const auto& result : results) CHECK(result == results[0]);
}
}  // namespace
}  // namespace weft::testing
