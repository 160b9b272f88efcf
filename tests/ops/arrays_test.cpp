// Tests sorting, cumulative sums, gathers and scatters along an axis, and einsum against plain
// loops: in all types, on every backend, at edge cases. pytorch_test.cpp compares their values and
// gradients in float64 with PyTorch.
#include <algorithm>
#include <cmath>
#include <numeric>

#include <doctest/doctest.h>

#include "tests/ops/elements.h"
#include "tests/ops/refusals.h"
#include "tests/support/interpreter.h"
#include "tests/support/planned.h"
#include "tests/support/values.h"
#include "weft/ops/autodiff.h"

using namespace weft;
using namespace weft::testing;
using enum DType;

namespace {
using Doubles = std::vector<double>;

Doubles run_near(const Value& y) { return run(y, 1e-6); }
Doubles gradient(const Value& loss, const Value& x) {
  return run_near(gradients(loss, std::span(&x, 1)).front());
}

constexpr DType all_types[] = {f64, f32, bf16, f16, i64, i32, u32, i16, u16, i8, u8, boolean};
}  // namespace

TEST_CASE("argsort is stable with NaN last in every type") {
  for (DType dtype : all_types)
    for (bool descending : {false, true}) {
      INFO(name(dtype) << " descending " << descending);
      Random random(1);
      Value x = random_values({dtype, {3, 50, 2}}, is_float(dtype) ? -2 : 0, 9, random);
      if (is_float(dtype)) {  // ties, NaN, 0 and -0
        const Value whole = round(x);
        x = interpret(select(whole == 1, NAN, select(whole > 2, whole, whole * 0)));
      }
      const Doubles in = elements(x), got = run_near(argsort(x, 1, descending));
      auto above = [](double a, double b) { return std::isnan(a) ? !std::isnan(b) : a > b; };
      for (size_t row = 0; row < 6; ++row) {
        auto at = [&](size_t i) { return row / 2 * 100 + i * 2 + row % 2; };
        std::vector<size_t> order(50);
        std::iota(order.begin(), order.end(), 0);
        std::ranges::stable_sort(order, [&](size_t i, size_t j) {
          return descending ? above(in[at(i)], in[at(j)]) : above(in[at(j)], in[at(i)]);
        });
        for (size_t i = 0; i < 50; ++i) CHECK(got[at(i)] == static_cast<double>(order[i]));
      }
    }
}

// The expected order is that of np.argsort(kind="stable").
TEST_CASE("infinities sort below NaN and top-k values are in order") {
  const Value x = numbers({2, NAN, -1, 2, INFINITY, -INFINITY, 0}, {7});
  CHECK(run_near(argsort(x)) == Doubles{5, 2, 6, 0, 3, 4, 1});
  const TopK greatest = topk(x, 3), least = topk(x, 2, 0, false);
  CHECK(run_near(greatest.indices) == Doubles{1, 4, 0});
  CHECK(std::isnan(run_near(greatest.values)[0]));
  CHECK(run_near(least.values) == Doubles{-INFINITY, -1});
  CHECK(run_near(sort(numbers({3, 1, 2}, {3}, i32), 0, true)) == Doubles{3, 2, 1});
  CHECK(topk(x, 0).values.shape() == Shape{0});
  CHECK(run_near(sort(zeros({2, 0}))).empty());
  CHECK(run_near(argsort(zeros({0, 2}))).empty());
}

TEST_CASE("cumsum is exact for integers") {
  for (int64_t extent : {0, 1, 2, 4, 5, 17, 100})
    for (DType dtype : {i64, u8, boolean, f32}) {
      INFO(name(dtype) << " " << extent);
      Random random(2);
      const Value x = random_values({dtype, {2, extent, 3}}, 0, 9, random);
      const Value y = cumsum(is_float(dtype) ? round(x) : x, 1);
      CHECK(y.dtype() == (is_float(dtype) ? f32 : i64));
      Doubles expected = elements(interpret(is_float(dtype) ? round(x) : x));
      for (size_t i = 0; i < expected.size(); ++i)
        if (i / 3 % static_cast<size_t>(extent) > 0) expected[i] += expected[i - 3];
      CHECK(run_near(y) == expected);
    }
  const Doubles ones_of_half =
      run_near(cumsum(ones({3000}, f16), 0));  // 1 + 2048 is 2048 in float16
  CHECK(ones_of_half.back() == 3000);
}

TEST_CASE("norm and stddev of zeros have zero gradients and 16-bit norms do not overflow") {
  const Value zero = zeros({4}, f64);
  for (double order : {0.5, 1.0, 1.5, 2.0, 3.0, double{INFINITY}}) {
    INFO(order);
    CHECK(run_near(norm(zero, {}, order)) == Doubles{0});
    CHECK(gradient(norm(zero, {}, order), zero) == Doubles(4, 0));
  }
  const Value same = numbers({3, 3, 3}, {3}, f64);
  CHECK(run_near(stddev(same)) == Doubles{0});
  CHECK(gradient(stddev(same), same) == Doubles(3, 0));
  const Value large = numbers({300, 400}, {2}, f16);
  CHECK(run_near(norm(large)) == Doubles{500});
  CHECK(norm(large).dtype() == f16);
  CHECK(run_near(norm(numbers({3, -4, 0, 12}, {2, 2}, i32), {.axes = {1}})) == Doubles{5, 12});
  CHECK(run_near(norm(numbers({3, -4, 0}, {3}, i32), {}, 0)) == Doubles{2});
}

// The expected values are those of NumPy's tile, repeat, pad(mode="reflect") and tril.
TEST_CASE("tile, repeat, reflection padding and triangles agree with NumPy in every type") {
  CHECK(run_near(tile(numbers({1, 2}, {2}), {2, 2})) == Doubles{1, 2, 1, 2, 1, 2, 1, 2});
  CHECK(tile(arange(6).reshape({2, 3}), {2, 1, 2}).shape() == Shape{2, 2, 6});
  CHECK(run_near(tile(numbers({1, 2}, {1, 2}), {2})) == Doubles{1, 2, 1, 2});
  CHECK(tile(numbers({1, 2}, {1, 2}), {2}).shape() == Shape{1, 4});
  CHECK(run_near(tile(numbers({1, 2}, {2}), {0})).empty());
  CHECK(run_near(repeat(arange(4).reshape({2, 2}), 2, 0)) == Doubles{0, 1, 0, 1, 2, 3, 2, 3});
  CHECK(run_near(repeat(arange(2), 0, 0)).empty());
  CHECK(run_near(reflect_pad(arange(6).reshape({2, 3}), {1, 2}, {1, 0})) ==
        Doubles{5, 4, 3, 4, 5, 2, 1, 0, 1, 2, 5, 4, 3, 4, 5, 2, 1, 0, 1, 2});
  for (DType dtype : all_types) {
    INFO(name(dtype));
    const Value x = ones({3, 4}, dtype);
    CHECK(tril(x).dtype() == dtype);
    CHECK(run_near(tril(x, -1)) == Doubles{0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0});
    CHECK(run_near(triu(x, 2)) == Doubles{0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0});
  }
}

TEST_CASE("out-of-range indices along an axis read zeros and write nothing") {
  const Value x = numbers({1, 2, 3, 4, 5, 6}, {2, 3});
  const Value indices = numbers({3, 0, -1, 2}, {2, 2}, i32);
  CHECK(run_near(take_along_axis(x, indices)) == Doubles{0, 1, 0, 6});
  CHECK(gradient(sum(take_along_axis(x, indices)), x) == Doubles{1, 0, 0, 0, 0, 1});
  CHECK(run_near(put_along_axis(x, indices, 9)) == Doubles{9, 2, 3, 4, 5, 9});
  CHECK(run_near(index_put(x, numbers({2, 1, -1}, {3}, i64), 0)) == Doubles{1, 2, 3, 0, 0, 0});
}

TEST_CASE("the last of equal indices is written and the others have no gradient") {
  const Value x = numbers({1, 2, 3, 4}, {4}), values = numbers({5, 6, 7}, {3});
  const Value indices = numbers({2, 0, 2}, {3}, u8);
  const Value y = index_put(x, indices, values);
  CHECK(run_near(y) == Doubles{6, 2, 7, 4});
  CHECK(gradient(sum(y * y), values) == Doubles{0, 12, 14});
  CHECK(gradient(sum(y * y), x) == Doubles{0, 4, 0, 8});
  CHECK(run_near(put_along_axis(x.reshape({1, 4}), indices.reshape({1, 3}), values)) ==
        Doubles{6, 2, 7, 4});
  CHECK(run_near(index_put(x, zeros({0}, i32), zeros({0}))) == elements(x));
  const Value flags = numbers({1, 0, 0}, {3}, boolean);
  CHECK(run_near(index_put(flags, numbers({1}, {1}, i32), ones({1}, boolean))) == Doubles{1, 1, 0});
}

// The expected values are those of np.einsum.
TEST_CASE("einsum over integers and broadcast axes agrees with NumPy") {
  const Value a = arange(8).reshape({1, 2, 2, 2}), b = arange(6).reshape({3, 1, 2});
  const Value y = einsum("...ij,...j->...i", {a, b});
  CHECK(y.shape() == Shape{3, 2, 2});
  CHECK(run_near(y) == Doubles{1, 3, 5, 7, 3, 13, 23, 33, 5, 23, 41, 59});
  const Value sorted =
      einsum(" cba, b ", {arange(6).reshape({1, 2, 3}), numbers({1, 10}, {2}, i64)});
  CHECK(sorted.shape() == Shape{3, 1});
  CHECK(run_near(sorted) == Doubles{30, 41, 52});
  CHECK(run_near(einsum("i,i", {zeros({0}), zeros({0})})) == Doubles{0});
}

TEST_CASE("nearest-neighbour interpolation of integers agrees with PyTorch") {
  const Value x = arange(5).reshape({1, 1, 5});
  auto resized = [&](int64_t size) { return run_near(interpolate(x, {.size = {size}})); };
  CHECK(resized(7) == Doubles{0, 0, 1, 2, 2, 3, 4});  // floor(i 5 / 7)
  CHECK(resized(3) == Doubles{0, 1, 3});
  CHECK(resized(10) == Doubles{0, 0, 1, 1, 2, 2, 3, 3, 4, 4});
  CHECK(resized(1) == Doubles{0});
}

TEST_CASE("losses at the ends of their ranges are finite") {
  const Value p = numbers({0, 1, 0, 1}, {4}), t = numbers({0, 1, 1, 0}, {4});
  CHECK(run_near(binary_cross_entropy(p, t, Reduction::none)) ==
        Doubles{0, 0, 100, 100});  // PyTorch's bounds
  for (double slope : gradient(binary_cross_entropy(p, t), p)) CHECK(std::isfinite(slope));
  const Value logits = numbers({1000, -1000}, {2}), classes = numbers({0, 0}, {2});
  CHECK(run_near(binary_cross_entropy_with_logits(logits, classes, Reduction::none)) ==
        Doubles{1000, 0});
  const Value log_q = numbers({-INFINITY, 0}, {2}), certain = numbers({0, 1}, {2});
  CHECK(run_near(kl_div(log_q, certain, Reduction::sum)) == Doubles{0});
  CHECK(gradient(kl_div(log_q, certain), log_q) == Doubles{0, -0.5});
  const Value none = numbers({-1, 3}, {2}, i64);
  for (double loss : run_near(nll_loss(zeros({2, 3}), none, -100, Reduction::none)))
    CHECK(std::isnan(loss));
  CHECK(run_near(nll_loss(zeros({2, 3}), none, -1, Reduction::none))[0] == 0);
  CHECK(run_near(smooth_l1_loss(p, t, 0)) == run_near(l1_loss(p, t)));
  for (auto loss : {l1_loss, mse_loss, kl_div, binary_cross_entropy,
                    binary_cross_entropy_with_logits, hinge_loss})
    CHECK(loss(ones({3}, f16), ones({3}, f16), Reduction::none).type() == Type{f32, {3}});
}

TEST_CASE("array functions refuse invalid arguments") {
  const Value x = zeros({2, 3}), indices = zeros({2, 1}, i64), fractions = zeros({2, 1});
  const Value deep = zeros(Dims::filled(max_rank, 1)), image = zeros({1, 1, 4, 4});
  const std::string extents = "] the indices must have the extents of x, but along axis 1. Got ";
  check_calls({
      {"[norm] the order must be at least 0, or -infinity. Got -1.", [&] { norm(x, {}, -1); }},
      {"[norm] the order must be at least 0, or -infinity. Got nan.", [&] { norm(x, {}, NAN); }},
      {accepted, [&] { norm(x, {}, -INFINITY); }},
      {"[variance] needs more elements than its correction, 1. Got shape [1].",
       [] { stddev(zeros({1})); }},
      {accepted, [] { stddev(zeros({1}), {}, 0); }},
      {"[cumsum] axis 2 is out of range for rank 2.", [&] { cumsum(x, 2); }},
      {"[tile] counts must not be negative. Got [-1].", [&] { tile(x, {-1}); }},
      {"[repeat] the count must not be negative. Got -1.", [&] { repeat(x, -1, 0); }},
      {"[tril] needs a matrix [.., M, N]. Got [4].", [] { tril(zeros({4})); }},
      {"[triu] needs a matrix [.., M, N]. Got [4].", [] { triu(zeros({4})); }},
      {"[reflect_pad] one pair per axis. Got [1] and [0, 0] for rank 2.",
       [&] { reflect_pad(x, {1}, {0, 0}); }},
      {"[reflect_pad] amounts must be at least 0 and below the extent. Got 0 and 3 for axis 1 of "
       "extent 3.",
       [&] { reflect_pad(x, {1, 0}, {0, 3}); }},
      {accepted, [&] { reflect_pad(x, {1, 2}, {0, 2}); }},
      {accepted, [] { reflect_pad(zeros({0}), {0}, {0}); }},
      {"[take_along_axis] indices must be integers. Got f32. Hint: cast them.",
       [&] { take_along_axis(x, fractions); }},
      {"[take_along_axis" + extents + "[1, 3] and [2, 3].",
       [&] { take_along_axis(x, zeros({1, 3}, i64)); }},
      {accepted, [&] { take_along_axis(x, indices); }},
      {"[put_along_axis" + extents + "[2] and [2, 3].",
       [&] { put_along_axis(x, zeros({2}, i64), 0); }},
      {"[index_put] needs an axis to put along. Got a scalar.",
       [&] { index_put(scalar(0), indices, 0); }},
      {"[index_put] types differ. Got f64 into f32.",
       [&] { index_put(x, indices, zeros({3}, f64)); }},
      {"[index_put] indices must be integers. Got f32. Hint: cast them.",
       [&] { index_put(x, fractions, 0); }},
      {"[broadcast_to] [2] does not broadcast to [2, 1, 3]: axis 2.",
       [&] { index_put(x, indices, zeros({2})); }},
      {accepted, [&] { index_put(x, indices, zeros({3})); }},
      {"[argsort] rank is at most 7. Got [1, 1, 1, 1, 1, 1, 1, 1].", [&] { sort(deep); }},
      {"[topk] k must be in [0, 3]. Got 4.", [&] { topk(x, 4); }},
      {accepted, [&] { topk(x, 3); }},
      {"[interpolate] takes [N, C, spatial..]. Got f32[2, 3].",
       [&] { interpolate(x, {.size = {3}}); }},
      {"[interpolate] one size per spatial axis of [1, 1, 4, 4]. Got [3].",
       [&] { interpolate(image, {.size = {3}}); }},
      {"[interpolate] extents must be positive. Got 4 to 0 along axis 3.",
       [&] { interpolate(image, {.size = {3, 0}}); }},
      {"[interpolate] linear needs floating point. Got u8. Hint: cast it first.",
       [&] { interpolate(cast(image, u8), {.size = {3, 3}, .mode = Interpolation::linear}); }},
      {accepted, [&] { interpolate(cast(image, u8), {.size = {3, 3}}); }},
      {"[huber_loss] delta must be positive. Got 0.", [&] { huber_loss(x, x, 0); }},
      {"[smooth_l1_loss] beta must not be negative. Got -1.", [&] { smooth_l1_loss(x, x, -1); }},
      {"[nll_loss] log probabilities [2, 3] need labels [2]. Got [2, 1].",
       [&] { nll_loss(x, indices); }},
      {"[nll_loss] labels must be integers. Got f32[2]. Hint: cast(labels, DType::i64).",
       [&] { nll_loss(x, zeros({2})); }},
  });
}

TEST_CASE("einsum refuses a malformed equation with a usage error") {
  const Value x = zeros({2, 3});
  check_calls({
      {"[einsum] \"ij,jk\" names 2 operands. Got 1.", [&] { einsum("ij,jk", {x}); }},
      {"[einsum] \"i\" has 1 axes, operand 0 of \"i->i\" has 2.", [&] { einsum("i->i", {x}); }},
      {"[einsum] \"ijk...\" has 3 axes or more, operand 0 of \"ijk...\" has 2.",
       [&] { einsum("ijk...", {x}); }},
      {"[einsum] \"i1\" has '1' where a letter, a comma, \"->\" or one \"...\" may be.",
       [&] { einsum("i1", {x}); }},
      {"[einsum] \"......\" has '.' where a letter, a comma, \"->\" or one \"...\" may be.",
       [&] { einsum("......", {x}); }},
      {"[einsum] \"ij->j-\" has '-' where a letter, a comma, \"->\" or one \"...\" may be.",
       [&] { einsum("ij->j-", {x}); }},
      {"[einsum] axis j of \"ij,ji->i\" has extents 3 and 2.", [&] { einsum("ij,ji->i", {x, x}); }},
      {"[einsum] axis ... of \"...,...\" has extents 3 and 4.",
       [&] { einsum("...,...", {x, zeros({4})}); }},
      {"[einsum] axis k of the result of \"ij->k\" is in no operand.",
       [&] { einsum("ij->k", {x}); }},
      {"[einsum] the result of \"ij->ii\" has axis i twice.", [&] { einsum("ij->ii", {x}); }},
      {"[einsum] \"...j->j\" has \"...\" in its operands, but not in its result.",
       [&] { einsum("...j->j", {x}); }},
      {"[einsum] operands differ in type. Got f32 and f64.",
       [&] { einsum("ij,ij", {x, zeros({2, 3}, f64)}); }},
      {accepted, [&] { einsum("ij,ij", {x, x}); }},
  });
}
