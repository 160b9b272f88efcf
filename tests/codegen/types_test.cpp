// Compares element types, guards, gathers and random numbers in fused kernels with the reference.
#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "tests/codegen/fused_launch.h"
#include "tests/codegen/inputs.h"
#include "weft/ops/ops.h"

using namespace weft;
using test::check;
using test::over;

namespace {
constexpr DType all_types[] = {DType::boolean, DType::u8,   DType::i8,  DType::u16,
                               DType::i16,     DType::u32,  DType::i32, DType::i64,
                               DType::f16,     DType::bf16, DType::f32, DType::f64};
}  // namespace

TEST_SUITE("codegen types") {
  TEST_CASE("arithmetic and comparisons support every type") {
    for (DType type : all_types) {
      if (type == DType::boolean) continue;
      for (int64_t n : {5, 70}) {
        Value a = input({type, {3, n}}, 0), b = input({type, {3, n}}, 1);
        check({a + b, a - b, a * b, maximum(a, b), minimum(a, b), neg(a), abs(a), sign(a)});
        check({a < b, a <= b, a == b, a != b, a > b, a >= b, logical_and(a, b), logical_not(a)});
        check({select(a < b, a, b), remainder(a, abs(b) + 1), floor_divide(a, abs(b) + 1)});
      }
    }
  }
  TEST_CASE("floating-point division is correctly rounded") {
    for (DType type : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
      Value a = input({type, {1000}}, 0), b = input({type, {1000}}, 1);
      check({a / b, sqrt(abs(a)), reciprocal(b), floor(a * 5), ceil(a * 5), round(a * 5),
             trunc(a * 5)});
    }
  }
  TEST_CASE("mathematical functions support every floating type") {
    for (DType type : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
      double tolerance = type == DType::f64 ? 1e-14 : type == DType::f32 ? 1e-6 : 0.01;
      Value x = input({type, {3, 50}}, 0), y = input({type, {3, 50}}, 1);
      check(test::functions_of(x * 0.5), tolerance);
      check({sqrt(x), rsqrt(x), pow(abs(x), y), atan2(x, y)}, tolerance);
    }
  }
  TEST_CASE("casts between all types are right") {
    std::vector<DType> types(std::begin(all_types), std::end(all_types));
    types.insert(types.end(), {DType::f8_e4m3, DType::f8_e5m2});
    for (DType from : types)
      for (size_t bytes : {1, 2, 4, 8}) {  // one kernel for each width of results
        const Value x = input({from, {50}}, 0);
        std::vector<Value> casts;
        for (DType to : types)
          if (size_of(to) == bytes) casts.push_back(cast(x, to));
        check(casts);
      }
  }
  TEST_CASE("casts round once, truncate and saturate") {
    auto odd = [](const Value&, int64_t i) {
      constexpr double values[] = {0.5,        -0.5,        1.9999,
                                   -1.9999,    65519.99,    65520,
                                   1e30,       -1e30,       3.4e38,
                                   1e-40,      5.9e-8,      2.98e-8,
                                   2.981e-8,   1 + 0x1p-8,  1 + 0x1p-8 + 0x1p-40,
                                   1 + 0x3p-9, 1 + 0x1p-11, 1 + 0x1p-11 + 0x1p-45,
                                   2147483647, 2147483648,  -2147483649.0,
                                   INFINITY,   -INFINITY,   -0.0,
                                   127.5,      128,         255.9,
                                   256,        -1};
      return values[i % std::size(values)];
    };
    for (DType from : {DType::f32, DType::f64, DType::bf16, DType::f16})
      for (DType to : {DType::f16, DType::bf16, DType::f32})
        check({cast(input({from, {64}}, 0), to)}, 0, odd);
    Value nan = cast(input({DType::f64, {20}}, 0), DType::i32);
    check({nan}, 0, [](const Value&, int64_t i) { return i % 2 == 0 ? 3e9 : -3e9; });
  }
  TEST_CASE("reductions support every type") {
    for (DType type : all_types) {
      Value x = input({type, {20, 45}}, 0);
      double tolerance = type == DType::f16 || type == DType::bf16 ? 0.02
                         : is_float(type)                          ? 1e-5
                                                                   : 0;
      for (int axis : {0, 1}) {
        check({max(x, over({axis})), min(x, over({axis}))});
        if (type == DType::boolean) continue;
        check({sum(x, over({axis}))}, tolerance);
        check({argmax(x, axis, true)});
        check({sum(x, over({0, 1}))}, tolerance);
      }
    }
    Value many = input({DType::i64, {200000}}, 0);
    check({sum(many, over({0})), max(many, over({0}))});
    check({any(many == 3, over({0})), all(many != 11, over({0}))});
  }
  TEST_CASE("sums of 16-bit floats accumulate in float32") {
    auto ones = [](const Value&, int64_t) { return 1.0; };
    for (DType type : {DType::f16, DType::bf16})
      check({sum(input({type, {4096, 2}}, 0), over({0}))}, 0, ones);
  }
  TEST_CASE("pads fill with a value along any axis") {
    for (DType type : {DType::f32, DType::bf16, DType::i8, DType::boolean}) {
      Value x = input({type, {5, 6, 30}}, 0);
      check({pad(x, {0, 0, 1}, {0, 0, 2}, 1)});
      check({pad(x, {2, 0, 0}, {0, 3, 0}, 1)});
      check({pad(x, {1, 1, 1}, {1, 1, 1}, 0)});
    }
    Value x = input({DType::f32, {5, 30}}, 0);
    check({pad(exp(x), {1, 3}, {0, 0}, -1) * 2.0}, 1e-6);
    check({sum(pad(x, {0, 3}, {0, 4}), over({1}))}, 1e-5);
    check({pad(transpose(x), {2, 1}, {1, 2}, 5)});
  }
  TEST_CASE("concatenation works along any axis") {
    std::vector<Value> rows{input({DType::f32, {2, 21}}, 0), input({DType::f32, {3, 21}}, 1),
                            input({DType::f32, {1, 21}}, 2)};
    check({concat(rows, 0)});
    std::vector<Value> columns{input({DType::f32, {4, 21}}, 0), input({DType::f32, {4, 1}}, 1),
                               input({DType::f32, {4, 64}}, 2)};
    check({relu(concat(columns, 1))});
    std::vector<Value> computed{exp(columns[0]), columns[2] * 2.0};
    check({concat(computed, 1)}, 1e-6);
  }
  TEST_CASE("gathers of rows, columns and elements read zero for out-of-range indices") {
    auto fill = [](const Value& leaf, int64_t i) {
      return is_integer(leaf.dtype()) ? static_cast<double>(i * 5 % 11 - 2) : test::spread(leaf, i);
    };
    Value table = input({DType::f32, {7, 40}}, 0), ids = input({DType::i64, {3, 5}}, 1);
    check({gather(table, ids, 0)}, 0, fill);
    check({gather(table, ids, 1) * 2.0}, 0, fill);
    check({gather(transpose(table), ids, 0)}, 0, fill);
    check({gather(input({DType::bf16, {7}}, 0), input({DType::i32, {100}}, 1), 0)}, 0, fill);
    check({gather(input({DType::f64, {3, 7, 6}}, 0), input({DType::u8, {4}}, 1), 1)}, 0,
          [](const Value& leaf, int64_t i) {
            return is_integer(leaf.dtype()) ? i * 2.0 : test::spread(leaf, i);
          });
    check({sum(gather(table, ids, 0), over({1}))}, 1e-5, fill);
  }
  TEST_CASE("iota counts along any axis") {
    check({iota({4, 37}, 0), iota({4, 37}, 1)});
    check({iota({70}, 0, DType::f32) * 2.0});
    Value labels = input({DType::i64, {6, 1}}, 0);
    check({broadcast_to(labels, {6, 50}) == iota({6, 50}, 1)});
  }
  TEST_CASE("random numbers are bit-identical to the reference") {
    Value step = input({DType::i64, {}}, 0);
    RandomKey key{.step = step, .seed = 0x123456789abcdef, .stream = 77};
    auto steps = [](const Value& leaf, int64_t i) {
      return is_integer(leaf.dtype()) ? 12345.0 : test::spread(leaf, i);
    };
    check({uniform({3, 50}, key)}, 0, steps);
    check({uniform({7, 2, 3}, key)}, 0, steps);
    check({uniform({64}, key)}, 0, steps);
    check({uniform({100000}, key)}, 0, steps);
    check({uniform({5, 128}, key)}, 0, steps);
    check({sum(uniform({5, 128}, key), over({1}))}, 1e-5, steps);
    check({sum(uniform({128, 5}, key), over({0}))}, 1e-5, steps);
    check({transpose(input({DType::f32, {128, 40}}, 1)) * uniform({40, 128}, key)}, 0, steps);
    check({dropout(input({DType::f32, {40, 33}}, 1), 0.3, key)}, 0, steps);
    check({normal({300}, key)}, 1e-5, steps);
  }
}
