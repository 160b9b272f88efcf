// Compares fused elementwise kernels with the reference, element by element.
#include <doctest/doctest.h>

#include "tests/codegen/fused_launch.h"
#include "weft/ops/ops.h"

using namespace weft;
using test::check;

TEST_SUITE("codegen elementwise") {
  TEST_CASE("elementwise addition handles vectors of every length") {
    for (int64_t n : {0, 1, 2, 3, 7, 15, 16, 17, 63, 64, 65, 127, 1000, 8192, 8193, 20011}) {
      Value a = input({DType::f32, {n}}, 0), b = input({DType::f32, {n}}, 1);
      check({a + b});
    }
  }
  TEST_CASE("elementwise operations handle scalars of rank 0") {
    Value a = input({DType::f32, {}}, 0), b = input({DType::f32, {}}, 1);
    check({a * b + 1.0});
  }
  TEST_CASE("operands broadcast along every axis up to rank 6") {
    Value a = input({DType::f32, {3, 5, 7}}, 0);
    for (Shape shape : {Shape{1, 5, 7}, Shape{3, 1, 7}, Shape{3, 5, 1}, Shape{1, 1, 7},
                        Shape{3, 1, 1}, Shape{1, 1, 1}})
      check({a * input({DType::f32, shape}, 1)});
    Value x = input({DType::f32, {2, 3, 1, 4, 2, 5}}, 0),
          y = input({DType::f32, {2, 1, 3, 4, 1, 5}}, 1);
    check({x - y});
  }
  TEST_CASE("operands may be transposed, sliced and flipped") {
    Value a = input({DType::f32, {33, 47}}, 0), b = input({DType::f32, {47, 33}}, 1);
    check({a + transpose(b)});
    check({slice(a, 1, 3, 40, 2) + slice(a, 1, 2, 39, 2)});
    check({flip(a, {1}) + flip(a, {0})});
    check({transpose(flip(a, {0, 1})) * b});
  }
  TEST_CASE("transposes of every size and type are right") {
    for (DType type : {DType::f32, DType::bf16, DType::i8, DType::f64, DType::boolean})
      for (Shape shape : {Shape{16, 16}, Shape{17, 16}, Shape{16, 17}, Shape{64, 300},
                          Shape{100, 33}, Shape{300, 129}})
        check({cast(transpose(input({type, shape}, 0)), DType::f32) * 2.0});
    Value x = input({DType::f32, {6, 20, 35}}, 0), y = input({DType::f32, {35, 20, 6}}, 1);
    check({permute(x, {2, 1, 0}) + y});
    check(
        {permute(x, {0, 2, 1}) * 2.0, permute(x, {0, 2, 1}) + input({DType::f32, {6, 35, 20}}, 2)});
    check({permute(x, {1, 2, 0}) * 2.0});
    check({flip(permute(x, {2, 1, 0}), {0, 2}) + y});
  }
  TEST_CASE("several results of a kernel share their inputs") {
    Value a = input({DType::f32, {19, 21}}, 0), b = input({DType::f32, {19, 21}}, 1);
    Value sum = a + b;
    check({sum, sum * a, maximum(sum, 0.0)});
  }
}
