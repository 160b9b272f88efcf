#include <doctest/doctest.h>

#include "tests/backends/kernel_case.h"
#include "tests/support/allocations.h"
#include "weft/base/host/parallel.h"
#include "weft/ops/ops.h"

namespace weft::testing {
namespace {

Value scatter(DType dtype, const Shape& into, const Shape& indices, DType index_type = DType::i64) {
  Shape updates = indices;
  for (int i = 1; i < into.size(); ++i) updates.push_back(into[i]);
  return scatter_add(input({dtype, into}, 0), input({index_type, indices}, 1),
                     input({dtype, updates}, 2));
}

TEST_CASE("scatter_add agrees with the reference: repeated and out-of-range indices, every type") {
  for (DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32,
                      DType::u32, DType::i16, DType::u16, DType::i8, DType::u8})
    for (auto [into, indices] : {std::pair<Shape, Shape>{{5, 3}, {17}},
                                 {{300, 70}, {8, 4}},
                                 {{1, 300}, {40}},
                                 {{7}, {100}},
                                 {{50, 2, 3}, {3, 3}},
                                 {{4, 17}, {0}},
                                 {{0, 3}, {4}},
                                 {{3, 0}, {4}}}) {
      KernelCase scatter_case(scatter(dtype, into, indices), {}, !is_float(dtype));
      scatter_case.run();
      CHECK_MESSAGE(scatter_case.disagreement().empty(), name(dtype), " ", to_string(into), " ",
                    scatter_case.disagreement());
    }
}

TEST_CASE("scatter_add reads indices of every integer type") {
  for (DType dtype : {DType::i64, DType::i32, DType::i16, DType::i8, DType::u8}) {
    KernelCase scatter_case(scatter(DType::f32, {20, 9}, {33}, dtype));
    scatter_case.run();
    CHECK(scatter_case.disagreement() == "");
  }
}

TEST_CASE("first_position agrees with the reference: strided indices of every type") {
  for (DType dtype : {DType::i64, DType::i32, DType::i16, DType::i8, DType::u8})
    for (auto [indices, rows] :
         {std::pair<Shape, int64_t>{{33}, 20}, {{4, 9}, 100}, {{}, 3}, {{0}, 5}, {{7}, 0}}) {
      KernelCase position_case(first_position(input({dtype, indices}, 0), rows));
      position_case.run();
      CHECK_MESSAGE(position_case.disagreement().empty(), name(dtype), " ", to_string(indices));
      if (can_watch_allocations())
        CHECK(allocations_of([&] { position_case.run(); }).most_live == 0);
    }
}

TEST_CASE("scatter_add into a broadcast scalar makes no copy of it") {
  KernelCase scatter_case(scatter(DType::f32, {40, 30}, {16}), {{{}, 0, 0, {0, 1}}});
  CHECK(scatter_case.choice().operand_order[0].empty());
  scatter_case.run();
  CHECK(scatter_case.disagreement() == "");
}

TEST_CASE("scatter_add can accumulate in place") {
  for (DType dtype : {DType::f32, DType::bf16, DType::i32}) {
    KernelCase scatter_case(scatter(dtype, {40, 30}, {16}));
    scatter_case.in_place();
    scatter_case.run();
    CHECK(scatter_case.disagreement() == "");
  }
}

TEST_CASE("scatter_add is bit-identical on any number of threads and allocates nothing") {
  const int before = thread_count();
  std::vector<std::vector<std::byte>> results;
  for (int threads : {1, 2, 5}) {
    set_thread_count(threads);
    KernelCase scatter_case(scatter(DType::f32, {10, 700}, {300}));
    scatter_case.run();
    if (can_watch_allocations()) CHECK(allocations_of([&] { scatter_case.run(); }).most_live == 0);
    results.push_back(scatter_case.result_bytes());
  }
  set_thread_count(before);
  for (const auto& result : results) CHECK(result == results[0]);
}
}  // namespace
}  // namespace weft::testing
