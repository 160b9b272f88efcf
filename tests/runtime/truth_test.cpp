// Tests tensors in conditions: those without a truth value do not compile; others replace them.
#include <concepts>
#include <type_traits>

#include <doctest/doctest.h>

#include "weft/base/error.h"
#include "weft/tensor/tensor.h"

using namespace weft;

namespace {
template <class T>
concept Condition = requires(T x) { x ? 1 : 0; };
template <class A, class B>
concept Conjunction = requires(A a, B b) { a&& b; };
template <class A, class B>
concept Disjunction = requires(A a, B b) { a || b; };

static_assert(Condition<int> && Conjunction<int, int> && Disjunction<int, int>);
static_assert(!Condition<Tensor> && !Condition<Variable>);
static_assert(!std::constructible_from<bool, Tensor>);
// x[0] = y would assign to a temporary, and change nothing.
static_assert(std::assignable_from<Tensor&, Tensor> && !std::is_assignable_v<Tensor, Tensor>);
static_assert(!std::is_assignable_v<Tensor, int> && !std::is_assignable_v<Tensor&, int>);
static_assert(!Conjunction<Tensor, Tensor> && !Disjunction<Tensor, Tensor>);
static_assert(!Conjunction<Tensor, bool> && !Disjunction<bool, Tensor>);
static_assert(!Conjunction<Variable, Variable> && !Disjunction<Variable, Tensor>);

using Doubles = std::vector<double>;
}  // namespace

TEST_CASE("the operators & | ! combine bool tensors elementwise") {
  const Tensor a = tensor({1, 1, 0, 0}, {4}) == 1, b = tensor({1, 0, 1, 0}, {4}) == 1;
  CHECK((a & b).to_doubles() == Doubles{1, 0, 0, 0});
  CHECK((a | b).to_doubles() == Doubles{1, 1, 1, 0});
  CHECK((!a).to_doubles() == Doubles{0, 0, 1, 1});
  const Tensor x = tensor({-1.0, 0.5, 2.0}, {3});
  CHECK(((x > 0) & (x < 1)).to_doubles() == Doubles{0, 1, 0});
  CHECK((!(x > 0)).to_doubles() == Doubles{1, 0, 0});
  CHECK((!(x > 0)).dtype() == DType::boolean);
}

TEST_CASE("the operators & and | refuse numbers, where others are bitwise") {
  const Tensor whole = tensor({1, 2}, {2}), flags = whole == 1;
  CHECK_THROWS_WITH_AS(whole & flags,
                       doctest::Contains("[operator&] combines tensors of bool. Got "
                                         "i64[2]. Hint: logical_and(a, b)"),
                       Error);
  CHECK_THROWS_WITH_AS(flags | whole,
                       doctest::Contains("[operator|] combines tensors of bool. Got "
                                         "i64[2]. Hint: logical_or(a, b)"),
                       Error);
  CHECK_THROWS_WITH_AS(flags & 1, doctest::Contains("Got a number."), Error);
}

TEST_CASE("tensors and variables are defined once they are assigned") {
  Tensor x;
  Variable w;
  CHECK(!x.defined());
  CHECK(!w.defined());
  x = ones({2});
  w = Variable("w", {DType::f32, {}});
  CHECK(x.defined());
  CHECK(w.defined());
}
