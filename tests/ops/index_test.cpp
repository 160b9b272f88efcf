// Tests indexing and the operators of tensors. The expected values are NumPy's for x =
// arange(24).reshape(2, 3, 4) with the index in the case's text.
#include <doctest/doctest.h>

#include "tests/ops/elements.h"
#include "tests/ops/refusals.h"
#include "tests/support/interpreter.h"
#include "tests/support/values.h"
#include "weft/ops/autodiff.h"

using namespace weft;
using namespace weft::testing;

namespace {
using Doubles = std::vector<double>;
Value cube() { return reshape(arange(24), {2, 3, 4}); }
Value list_of(std::initializer_list<double> list, DType dtype = DType::f32) {
  return constant(Doubles(list), {static_cast<int64_t>(list.size())}, dtype);
}
}  // namespace

TEST_CASE("indexing reads the elements that NumPy reads") {
  const Value x = cube();
  struct Case {
    const char* numpy;
    Value value;
    Shape shape;
    Doubles elements;
  };
  const Doubles second = {12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23};
  const std::vector<Case> cases = {
      {"x[1]", x[1], {3, 4}, second},
      {"x[-1]", x[-1], {3, 4}, second},
      {"x[1,2,3]", x[{1, 2, 3}], {}, {23}},
      {"x[0,1:3]", x[{0, range(1, 3)}], {2, 4}, {4, 5, 6, 7, 8, 9, 10, 11}},
      {"x[:,-1]", x[{range(), -1}], {2, 4}, {8, 9, 10, 11, 20, 21, 22, 23}},
      {"x[:,:,1::2]",
       x[{range(), range(), range(1, to_end, 2)}],
       {2, 3, 2},
       {1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23}},
      {"x[...,-3:]",
       x[{ellipsis, range(-3, to_end)}],
       {2, 3, 3},
       {1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15, 17, 18, 19, 21, 22, 23}},
      {"x[...,0]", x[{ellipsis, 0}], {2, 3}, {0, 4, 8, 12, 16, 20}},
      {"x[1,...,2]", x[{1, ellipsis, 2}], {3}, {14, 18, 22}},
      {"x[1,...]", x[{1, ellipsis}], {3, 4}, second},
      {"x[0,1,...,2]", x[{0, 1, ellipsis, 2}], {}, {6}},
      {"x[:1,1:-1,0:4:3]", x[{range(1), range(1, -1), range(0, 4, 3)}], {1, 1, 2}, {4, 7}},
      {"x[0,None,:2,None,1,None]",
       x[{0, newaxis, range(2), newaxis, 1, newaxis}],
       {1, 2, 1, 1},
       {1, 5}},
      {"x[None,...,None]", x[{newaxis, ellipsis, newaxis}], {1, 2, 3, 4, 1}, values(x)},
      {"x[1:1]", x[{range(1, 1)}], {0, 3, 4}, {}},
      {"x[()]", x[{}], {2, 3, 4}, values(x)},
  };
  for (const Case& each : cases) {
    INFO(each.numpy);
    CHECK(each.value.shape() == each.shape);
    CHECK(values(each.value) == each.elements);
  }
}

TEST_CASE("tensors of integers as indices read what NumPy reads") {
  const Value x = cube(), rows = list_of({1, 0, -1}, DType::i32),
              columns = list_of({2, -3, 0}, DType::i64),
              pair = reshape(list_of({0, 1}, DType::u8), {2, 1});
  struct Case {
    const char* numpy;  // with rows = [1, 0, -1], columns = [2, -3, 0], pair = [[0], [1]]
    Value value;
    Shape shape;
    Doubles elements;
  };
  const std::vector<Case> cases = {
      {"x[0][rows]", x[0][rows], {3, 4}, {4, 5, 6, 7, 0, 1, 2, 3, 8, 9, 10, 11}},
      {"x[0,columns]", x[{0, columns}], {3, 4}, {8, 9, 10, 11, 0, 1, 2, 3, 0, 1, 2, 3}},
      {"x[...,columns][1]",
       x[{1, ellipsis, columns}],
       {3, 3},
       {14, 13, 12, 18, 17, 16, 22, 21, 20}},
      {"x[rows,columns]", x[{rows, columns}], {3, 4}, {20, 21, 22, 23, 0, 1, 2, 3, 12, 13, 14, 15}},
      {"x[1,rows,columns]", x[{1, rows, columns}], {3}, {18, 13, 20}},
      {"x[0][pair,columns]", x[0][{pair, columns}], {2, 3}, {2, 1, 0, 6, 5, 4}},
      {"x[1:,None,pair,2]", x[{range(1, 2), newaxis, pair, 2}], {1, 1, 2, 1}, {14, 18}},
  };
  for (const Case& each : cases) {
    INFO(each.numpy);
    CHECK(each.value.shape() == each.shape);
    CHECK(values(each.value) == each.elements);
  }
  const Value outside = list_of({2, -3}, DType::i64);
  CHECK(values(x[{0, 0, outside + 2}]) == Doubles{0, 3});  // 4 is outside
  CHECK(values(x[{0, outside, zeros({2}, DType::i64)}]) == Doubles{8, 0});
  const Value scores = reshape(cast(arange(6), DType::f32), {3, 2});
  const Value loss = sum(scores[{arange(3), list_of({1, 0, 1}, DType::i64)}] * 3);
  CHECK(values(gradients(loss, std::vector{scores}).front()) == Doubles{0, 3, 3, 0, 0, 3});
}

TEST_CASE("a loop over a tensor goes through its rows") {
  std::vector<Doubles> rows;
  for (const Tensor& row : cube()[1]) rows.push_back(values(row));
  CHECK(rows == std::vector<Doubles>{{12, 13, 14, 15}, {16, 17, 18, 19}, {20, 21, 22, 23}});
  check_calls({{"[rows] a scalar has no rows. Hint: x.item() is its number.",
                [] { return *scalar(1).begin(); }}});
}

TEST_CASE("an invalid index is reported in one line with the axis and its extent") {
  const Value x = cube();
  check_calls({
      {"[index] 2 is out of range for axis 0 of extent 2.", [&] { return x[2]; }},
      {accepted, [&] { return x[-2]; }},
      {"[index] -3 is out of range for axis 0 of extent 2.", [&] { return x[-3]; }},
      {"[index] 4 is out of range for axis 2 of extent 4.", [&] { return x[{0, ellipsis, 4}]; }},
      {"[index] 4 indices are more than the axes of [2, 3, 4].", [&] { return x[{0, 0, 0, 0}]; }},
      {accepted, [&] { return x[{0, 0, 0, ellipsis, newaxis}]; }},
      {"[index] only one ellipsis can stand for axes. Got 2.",
       [&] { return x[{ellipsis, ellipsis}]; }},
      {"[index] a mask selects a number of elements that is known only when the graph runs. Hint: "
       "where(mask, x, 0).",
       [&] { return x[x > 3]; }},
      {"[index] a tensor of indices has integers. Got f32[1].", [&] { return x[list_of({1})]; }},
      {"[index] tensors of indices must be neighbours.",
       [&] { return x[{arange(2), range(), arange(2)}]; }},
      {"[slice] 1:5 is out of range for axis 2 of extent 4.",
       [&] { return x[{0, 0, range(1, 5)}]; }},
      {accepted, [&] { return x[{0, 0, range(1, 4)}]; }},
      {"[slice] step must be positive. Got -1. Hint: flip reverses.",
       [&] { return x[{range(0, to_end, -1)}]; }},
      {"[index] this tensor is empty: it was never assigned.", [] { return Value()[0]; }},
  });
}

TEST_CASE("elements outside an index have zero gradient") {
  const Value x = cast(cube(), DType::f64), y = x[{1, range(0, to_end, 2), -1}];
  Doubles expected(24, 0);
  expected[15] = expected[23] = 1;
  CHECK(values(gradients(sum(y), std::span(&x, 1)).front()) == expected);
}

TEST_CASE("ranges count as in Python") {
  auto listed = [](const IndexRange& range) {
    std::vector<int64_t> list(range.begin(), range.end());
    CHECK(range.size() == static_cast<int64_t>(list.size()));
    return list;
  };
  using List = std::vector<int64_t>;
  CHECK(listed(range(3)) == List{0, 1, 2});
  CHECK(listed(range(2, 5)) == List{2, 3, 4});
  CHECK(listed(range(-1, 8, 4)) == List{-1, 3, 7});
  CHECK(listed(range(5, 0, -2)) == List{5, 3, 1});
  CHECK(listed(range(5, 5)).empty());
  CHECK(listed(range(5, 2)).empty());
  CHECK(listed(range(2, 5, -1)).empty());
  CHECK(listed(range(-3)).empty());
}

TEST_CASE("compound assignment rebinds its left side and leaves aliases unchanged") {
  Value x = list_of({5, 7, -9});
  const Value before = x;
  x += 1;
  CHECK(values(x) == Doubles{6, 8, -8});
  x -= list_of({1, 2, 3});
  CHECK(values(x) == Doubles{5, 6, -11});
  x *= 2;
  CHECK(values(x) == Doubles{10, 12, -22});
  x /= 4;
  CHECK(values(x) == Doubles{2.5, 3, -5.5});
  x %= 2;
  CHECK(values(x) == Doubles{0.5, 1, 0.5});  // sign of the divisor
  CHECK(values(before) == Doubles{5, 7, -9});
  check_calls({{"[add] shapes do not broadcast. Got [3] and [2]: axis 0 has 3 and 2.",
                [&] { x += zeros({2}); }},
               {"[remainder] shapes do not broadcast. Got [3] and [2]: axis 0 has 3 and 2.",
                [&] { return x % zeros({2}); }}});
}

// The expected values are those of NumPy, e.g. 7 - np.array([2, -3]).
TEST_CASE("a scalar on either side of an operator is weakly typed") {
  const Value whole = list_of({2, -3}, DType::i64), half = list_of({2, -3}, DType::f16);
  const std::vector<std::pair<Value, Doubles>> of_integers = {
      {7 + whole, {9, 4}}, {7 - whole, {5, 10}}, {7 * whole, {14, -21}}, {7 % whole, {1, -2}}};
  for (const auto& [value, expected] : of_integers) {
    CHECK(value.dtype() == DType::i64);
    CHECK(values(value) == expected);
  }
  CHECK(((int64_t{1} << 40) * whole).dtype() == DType::i64);
  CHECK((7 / whole).dtype() == DType::f32);
  CHECK((0.5 + whole).dtype() == DType::f32);
  CHECK((0.5F * half).dtype() == DType::f16);
  CHECK((7U - half).dtype() == DType::f16);
  CHECK(values(whole % 2) == Doubles{0, 1});
}

TEST_CASE("methods agree with the functions of the same name") {
  const Value x = list_of({3, -1, 2, 0, 5, 4}).reshape({2, 3});
  CHECK(x.shape() == Shape{2, 3});
  CHECK(values(x.sum()) == Doubles{13});
  CHECK(values(x.sum(0)) == Doubles{3, 4, 6});
  CHECK(values(x.sum({0, -1})) == Doubles{13});
  CHECK(x.sum(-1, true).shape() == Shape{2, 1});
  CHECK(values(x.mean(0)) == Doubles{1.5, 2, 3});
  CHECK(values(x.prod(1)) == Doubles{-6, 0});
  CHECK(values(x.max(1)) == Doubles{3, 5});
  CHECK(values(x.min({0, 1})) == Doubles{-1});
  CHECK(values((x > 4).any(1)) == Doubles{0, 1});
  CHECK(values((x >= 0).all(1)) == Doubles{0, 1});
  CHECK(values(x.argmax(0)) == Doubles{0, 1, 1});
  CHECK(values(x.argmin(-1)) == Doubles{1, 0});
  CHECK(values(x.argmin()) == Doubles{1});
  CHECK(values(x.argmax()) == Doubles{4});
  CHECK(x.argmax({}, true).shape() == Shape{1, 1});
  CHECK(x.argmax().shape() == Shape{});
  CHECK(values(x.transpose()) == Doubles{3, 0, -1, 5, 2, 4});
  CHECK(values(x.permute({1, 0})) == values(x.transpose(0, 1)));
  CHECK(x.flatten().shape() == Shape{6});
  CHECK(x.unsqueeze(1).shape() == Shape{2, 1, 3});
  CHECK(x.unsqueeze(1).squeeze(1).shape() == Shape{2, 3});
  CHECK(x.broadcast_to({4, 2, 3}).shape() == Shape{4, 2, 3});
  CHECK(x.cast(DType::i32).dtype() == DType::i32);
  check_calls({{"[reshape] element counts differ. Got [2, 3] (6) to [5] (5).",
                [&] { return x.reshape({5}); }}});
}
