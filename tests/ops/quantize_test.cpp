// Tests numbers of few bits, and products of two types, against loops over their definitions.
#include <algorithm>
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include "tests/ops/elements.h"
#include "tests/ops/refusals.h"
#include "tests/support/interpreter.h"
#include "tests/support/planned.h"
#include "tests/support/values.h"
#include "weft/ops/autodiff.h"

using namespace weft;
using namespace weft::testing;

namespace {
using Doubles = std::vector<double>;

// Returns the two's complement numbers of four bits in each byte, the low half first.
Doubles nibbles(const Doubles& bytes) {
  Doubles all;
  for (double byte : bytes)
    for (int half : {static_cast<int>(byte) & 15, static_cast<int>(byte) >> 4})
      all.push_back(half < 8 ? half : half - 16);
  return all;
}
}  // namespace

TEST_CASE("pack and unpack convert between bytes and pairs of 4-bit numbers") {
  const Value bytes = cast(reshape(arange(256), {2, 128}), DType::u8);
  const Value packed = cast(bytes, DType::i4x2);
  CHECK(packed.type().bytes() == 256);
  CHECK(run(unpack(packed)) == nibbles(elements(interpret(bytes))));
  CHECK(run(cast(pack(unpack(packed)), DType::u8)) == elements(interpret(bytes)));
  const Value wide = cast(arange(40) - 20, DType::i8);
  Doubles saturated;
  for (int i = -20; i < 20; ++i) saturated.push_back(std::clamp(i, -8, 7));
  CHECK(run(unpack(pack(wide))) == saturated);
}

TEST_CASE("dequantize scales each block of neighbours about its zero point") {
  Random random(5);
  const Value packed = random_values({DType::i4x2, {3, 8}}, 0, 255, random);
  const Value scale = random_values({DType::f32, {3, 4}}, 0.1, 2, random);
  const Value zero = random_values({DType::i8, {1, 4}}, -3, 3, random);
  const Doubles numbers = nibbles(elements(packed)), scales = elements(scale),
                zeros = elements(zero);
  Doubles want;
  for (size_t i = 0; i < 3; ++i)
    for (size_t j = 0; j < 16; ++j)
      want.push_back(
          static_cast<float>((numbers[i * 16 + j] - zeros[j / 4]) * scales[i * 4 + j / 4]));
  const Value y = dequantize(packed, scale, zero);
  CHECK(y.type() == Type{DType::f32, {3, 16}});
  CHECK(run(y) == want);
}

TEST_CASE("quantize is within half a unit of each number in every low-bit type") {
  Random random(6);
  const Value x = random_values({DType::f32, {4, 24}}, -3, 3, random);
  const Doubles exact = elements(x);
  for (const auto& [dtype, units] : {std::pair(DType::i8, 127.0), std::pair(DType::i4x2, 7.0)}) {
    INFO(name(dtype));
    for (int64_t block : {0, 8, 24}) {
      const auto [numbers, scale] = quantize(x, dtype, block);
      CHECK(scale.shape() == Shape{4, 24 / (block == 0 ? 24 : block)});
      const Doubles back = run(dequantize(numbers, scale)), scales = elements(interpret(scale));
      const size_t each = block == 0 ? 24 : static_cast<size_t>(block);
      for (size_t i = 0; i < exact.size(); ++i) {
        double largest = 0;
        for (size_t k = i / each * each; k < (i / each + 1) * each; ++k)
          largest = std::max(largest, std::abs(exact[k]));
        CHECK(scales[i / each] == doctest::Approx(largest / units).epsilon(1e-6));
        CHECK(std::abs(back[i] - exact[i]) <= scales[i / each] * 0.500001);
      }
    }
  }
  const auto [numbers, scale] = quantize(x, DType::f8_e4m3, 8);
  const Doubles back = elements(interpret(dequantize(numbers, scale)));
  for (size_t i = 0; i < exact.size(); ++i)
    CHECK(std::abs(back[i] - exact[i]) <= std::max(std::abs(exact[i]) / 16, 1e-4) * 1.00001);
  const Value nothing = zeros_like(x);
  CHECK(elements(interpret(quantize(nothing, DType::i8).scale)) == Doubles(4, 1));
}

TEST_CASE("quantize_affine rounds ties to even and saturates, by blocks about a zero") {
  const Value x =
      constant(std::vector<float>{0.25F, 0.75F, -9, 200, 0.125F, 0.375F, 1.25F, -80}, {2, 4});
  const Value scale = constant(std::vector<float>{0.5F, 0.25F}, {2, 1});
  const Value zero = cast(constant(std::vector<float>{3, 250}, {2, 1}), DType::u8);
  const Value numbers = quantize_affine(x, scale, zero, DType::u8);
  CHECK(numbers.type() == Type{DType::u8, {2, 4}});
  // x / scale is [0.5, 1.5, -18, 400] and [0.5, 1.5, 5, -320].
  CHECK(run(numbers) == Doubles{3, 5, 0, 255, 250, 252, 255, 0});
  CHECK(run(quantize_affine(x, scale, {}, DType::i8)) == Doubles{0, 2, -18, 127, 0, 2, 5, -128});
  CHECK(run(fake_quantize(x, scale, zero, DType::u8)) ==
        Doubles{0, 1, -1.5, 126, 0, 0.5, 1.25, -62.5});
  const Value large = constant(std::vector<float>{1e6F, -1e6F, 0.3F}, {3});
  const Value one = ones({1});
  CHECK(run(cast(quantize_affine(large, one, {}, DType::f8_e4m3), DType::f32)) ==
        Doubles{448, -448, 0.3125});
  CHECK(run(cast(quantize_affine(large, one, {}, DType::f8_e5m2), DType::f32)) ==
        Doubles{57344, -57344, 0.3125});
}

TEST_CASE("fake_quantize passes the gradient where x did not saturate, and none to its scale") {
  const Value x = constant(std::vector<float>{-70, -64, 0.3F, 63.4F, 64}, {5});
  const Value scale = constant(std::vector<float>{0.5F}, {1});
  const Value dy = constant(std::vector<float>{1, 2, 3, 4, 5}, {5});
  const Value y = fake_quantize(x, scale, {}, DType::i8);
  const std::vector<Value> slopes = gradients(sum(y * dy), std::vector<Value>{x, scale});
  CHECK(run(slopes[0]) == Doubles{0, 2, 3, 4, 0});
  CHECK(run(slopes[1]) == Doubles{0});
}

TEST_CASE("products of two types read their operands as stored on every backend") {
  struct Product {
    DType a, b, y;
  };
  using enum DType;
  for (const auto& [a, b, y] :
       {Product{f32, i8, f32}, Product{i8, f32, f32}, Product{f32, f8_e4m3, f32},
        Product{f8_e5m2, f8_e4m3, f32}, Product{f8_e4m3, f8_e4m3, f32}, Product{f16, bf16, f32},
        Product{f32, bf16, f32}, Product{bf16, u8, bf16}, Product{f16, i8, f16},
        Product{f64, f32, f64}, Product{i8, u8, i32}, Product{i16, i8, i32},
        Product{i64, i8, i64}}) {
    INFO(name(a) << " x " << name(b));
    Random random(7);
    // The extents are odd and exceed a tile, and the second factor has both orders in memory.
    const Value left = random_values({a, {2, 37, 70}}, -3, 3, random);
    const Value right = random_values({b, {45, 70}}, -3, 3, random);
    const Value product = matmul(left, transpose(right));
    CHECK(product.type() == Type{y, {2, 37, 45}});
    const double tolerance = y == bf16 ? 0.01 : y == f16 ? 1e-3 : is_float(y) ? 1e-6 : 0;
    const Doubles got = run(product, tolerance), l = elements(left), r = elements(right);
    double most = 0;
    for (size_t i = 0; i < 74; ++i)
      for (size_t j = 0; j < 45; ++j) {
        double sum = 0;
        for (size_t k = 0; k < 70; ++k) sum += l[i * 70 + k] * r[j * 70 + k];
        most = std::max(most, std::abs(got[i * 45 + j] - sum));
      }
    CHECK(most <= tolerance * 400);
  }
}

TEST_CASE("the gradient of a mixed product equals that of the product of converted operands") {
  Random random(8);
  const Value x = random_values({DType::f32, {5, 6}}, -1, 1, random);
  const Value stored = random_values({DType::i8, {7, 6}}, -9, 9, random);
  const Value narrow = random_values({DType::bf16, {6, 7}}, -1, 1, random);
  const auto slopes = [](const Value& y, std::vector<Value> of) {
    return gradients(sum(y * y), of);
  };
  const Value by_cast = matmul(x, transpose(cast(stored, DType::f32)));
  CHECK(run(slopes(matmul(x, transpose(stored)), {x})[0], 1e-6) ==
        elements(interpret(slopes(by_cast, {x})[0])));
  const std::vector<Value> mixed = slopes(matmul(x, narrow), {x, narrow});
  const std::vector<Value> plain = slopes(matmul(x, cast(narrow, DType::f32)), {x, narrow});
  for (size_t i = 0; i < 2; ++i) {
    CHECK(mixed[i].type() == plain[i].type());
    CHECK(run(mixed[i], 0.01) == elements(interpret(plain[i])));
  }
}

TEST_CASE("products of unsupported types and shapes are refused by name") {
  const Value f = zeros({2, 4}), i = zeros({4, 2}, DType::i32), q = zeros({4, 2}, DType::u8);
  const Value packed = cast(q, DType::i4x2);
  check_calls({
      {"[matmul] a float's other factor is a float or an integer of 8 bits. Got f32 and i32. "
       "Hint: cast(x, DType::f32).",
       [&] { matmul(f, i); }},
      {accepted, [&] { matmul(f, q); }},
      {"[matmul] an element of i4x2 holds 2 numbers. Got factors of f32 and i4x2. Hint: "
       "dequantize(x, scale).",
       [&] { matmul(f, packed); }},
      {"[add] numbers are only stored in i4x2. Hint: unpack(x).", [&] { add(packed, packed); }},
      {"[cast] an element of i4x2 holds 2 numbers. Got a cast from i4x2 to f32. Hint: "
       "unpack(x), pack(x) or dequantize(x, scale).",
       [&] { cast(packed, DType::f32); }},
      {"[cast] an element of i4x2 holds 2 numbers. Got a cast from f32 to i4x2. Hint: "
       "unpack(x), pack(x) or dequantize(x, scale).",
       [&] { cast(f, DType::i4x2); }},
      {accepted, [&] { cast(packed, DType::u8); }},
      {"[unpack] x must be i4x2, with an axis. Got u8[4, 2].", [&] { unpack(q); }},
      {"[pack] x must be i8, with a last axis of even extent. Got i8[2, 3].",
       [&] { pack(zeros({2, 3}, DType::i8)); }},
      {"[dequantize] each extent of the scale must divide that of the numbers. Got [4, 3] for "
       "[4, 4].",
       [&] { dequantize(packed, zeros({4, 3})); }},
      {accepted, [&] { dequantize(packed, zeros({4, 2})); }},
      {"[dequantize] each extent of the zero must divide that of the numbers. Got [3, 1] for "
       "[4, 4].",
       [&] { dequantize(packed, zeros({4, 2}), zeros({3, 1})); }},
      {"[dequantize] x must be i8, u8, i16, u16, i32, an 8-bit float or i4x2. Got i64.",
       [&] { dequantize(cast(i, DType::i64), zeros({4, 2})); }},
      {accepted, [&] { dequantize(i, zeros({4, 2})); }},
      {"[quantize] each extent of the scale must divide that of the numbers. Got [2, 3] for "
       "[2, 4].",
       [&] { quantize_affine(f, zeros({2, 3}), {}, DType::i8); }},
      {"[quantize] numbers are of i8, u8, i16, u16 or an 8-bit float. Got i32.",
       [&] { quantize_affine(f, zeros({1, 1}), {}, DType::i32); }},
      {"[quantize] x and the scale must be f64, f32, bf16 or f16. Got i32 and f32.",
       [&] { fake_quantize(i, zeros({1, 1}), {}, DType::i8); }},
      {"[dequantize] the scale must be f64, f32, bf16 or f16. Got i8.",
       [&] { dequantize(q, zeros({4, 2}, DType::i8)); }},
      {"[quantize] numbers are of i8, i4x2, f8_e4m3, f8_e5m2. Got u8.",
       [&] { quantize(f, DType::u8); }},
      {"[quantize] a block must divide the last axis. Got blocks of 3 for [2, 4].",
       [&] { quantize(f, DType::i8, 3); }},
  });
}
