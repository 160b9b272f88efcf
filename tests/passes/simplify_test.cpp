#include <bit>
#include <cmath>
#include <functional>

#include <doctest/doctest.h>

#include "tests/passes/graphs.h"
#include "tests/support/interpreter.h"
#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"
#include "weft/passes/graph/fold.h"
#include "weft/passes/passes.h"

using namespace weft;
using namespace weft::testing;

namespace {
Value leaf(const Shape& shape, DType dtype = DType::f32) { return input({dtype, shape}, 0); }
Value node(std::string_view name, std::vector<Value> inputs, Attrs attrs = {}) {
  return make_node(op(name), std::move(inputs), std::move(attrs));
}
size_t node_count(const Value& value) { return Graph{.outputs = {value}}.nodes().size(); }
bool is_number(const Value& value, double number) {
  auto found = uniform_value(value);
  return value->is("scalar") && found && *found == number &&
         std::signbit(*found) == std::signbit(number);
}
uint64_t bits_of(double x) { return std::bit_cast<uint64_t>(x); }
}  // namespace

TEST_SUITE("simplify") {
  TEST_CASE("neutral operands are removed") {
    Value x = leaf({3, 4}), k = leaf({3}, DType::i32);
    CHECK(simplified(x * 1.0).node() == x.node());
    CHECK(simplified(1.0 * x).node() == x.node());
    CHECK(simplified(x / 1.0).node() == x.node());
    CHECK(simplified(x - 0.0).node() == x.node());
    CHECK(simplified(x + -0.0).node() == x.node());
    CHECK(simplified(k + 0).node() == k.node());
    CHECK(simplified(scalar(0, DType::i32) + k).node() == k.node());
    CHECK(simplified(neg(neg(x))).node() == x.node());
    CHECK(simplified(pow(x, scalar(1))).node() == x.node());
    CHECK(simplified(stop_gradient(x)).node() == x.node());
    CHECK(simplified(select(leaf({3, 4}, DType::boolean), x, x)).node() == x.node());
  }

  TEST_CASE("a concatenation of one uniform part is that part") {
    const Value one = node("concat", {full({2, 3}, 1.5)}, {{"axis", int64_t{0}}});
    CHECK(uniform_value(simplified(one)) == 1.5);
  }

  TEST_CASE("rewrites that would change bits are not applied") {
    Value x = leaf({3, 4});
    CHECK(simplified(x + 0.0)->is("add"));  // -0 + 0 is 0
    CHECK(simplified(x * 0.0)->is("mul"));  // NaN, infinity, -0
    CHECK(simplified(0.0 - x)->is("sub"));
    CHECK(simplified(x - x)->is("sub"));
    CHECK(simplified(x / 3.0)->is("div"));
    CHECK(simplified(pow(x, scalar(0.5)))->is("pow"));
    CHECK(simplified(sum(broadcast_to(leaf({1, 4}), {3, 4}), {.axes = {0}, .keepdim = true}))
              ->is("sum"));
    CHECK(simplified(exp(scalar(0.5)))->is("exp"));
    CHECK(simplified(logical_not(x < 1.0))->is("logical_not"));  // NaN
  }

  TEST_CASE("integers times zero fold to zero") {
    CHECK(is_number(simplified(leaf({3}, DType::i32) * 0), 0));
    CHECK(is_number(simplified(scalar(0, DType::i32) * leaf({3}, DType::i32)), 0));
  }

  TEST_CASE("negations merge into sums and differences") {
    Value x = leaf({3}), y = input({DType::f32, {3}}, 1);
    Value a = simplified(x + -y), b = simplified(x - -y), c = simplified(-x + y);
    CHECK(a->is("sub"));
    CHECK(a->inputs[1].node() == y.node());
    CHECK(b->is("add"));
    CHECK(c->is("sub"));
    CHECK(c->inputs[0].node() == y.node());
  }

  TEST_CASE("division by a power of two becomes a product where the inverse is a normal number") {
    Value x = leaf({3});
    Value y = simplified(x / 8.0);
    REQUIRE(y->is("mul"));
    CHECK(is_number(y->inputs[1], 0.125));
    CHECK(simplified(x / std::ldexp(1.0, 127))->is("div"));
    CHECK(simplified(leaf({3}, DType::f16) / 32768.0)->is("div"));
  }

  TEST_CASE("a square is a product instead of a power") {
    Value y = simplified(pow(leaf({3}), scalar(2)));
    CHECK(y->is("mul"));
    CHECK(y->inputs[0].node() == y->inputs[1].node());
  }

  TEST_CASE("a round-trip cast is removed exactly where the other type holds every number") {
    struct Range {
      DType dtype;
      bool fractions, negative;
      int digits, exponent;  // bits of the significand; all numbers are below 2^exponent
    };
    const std::vector<Range> ranges{
        {DType::boolean, false, false, 1, 1}, {DType::u8, false, false, 8, 8},
        {DType::i8, false, true, 7, 7},       {DType::u16, false, false, 16, 16},
        {DType::u32, false, false, 32, 32},   {DType::i16, false, true, 15, 15},
        {DType::i32, false, true, 31, 31},    {DType::i64, false, true, 63, 63},
        {DType::f8_e4m3, true, true, 4, 9},   {DType::f8_e5m2, true, true, 3, 16},
        {DType::f16, true, true, 11, 16},     {DType::bf16, true, true, 8, 128},
        {DType::f32, true, true, 24, 128},    {DType::f64, true, true, 53, 1024}};
    CHECK(ranges.size() == dtype_count - 1);  // all but i4x2, which is cast to u8 alone
    for (const Range& from : ranges)
      for (const Range& other : ranges) {
        const bool holds = other.digits >= from.digits && other.exponent >= from.exponent &&
                           other.negative >= from.negative && other.fractions >= from.fractions;
        CAPTURE(name(from.dtype));
        CAPTURE(name(other.dtype));
        const Value x = input({from.dtype, {4}}, 0);
        CHECK((simplified(cast(cast(x, other.dtype), from.dtype)).node() == x.node()) == holds);
      }
  }
  TEST_CASE("casts are removed only where no value can change") {
    Value x = leaf({3}, DType::f32), h = leaf({3}, DType::f16), k = leaf({3}, DType::i32);
    Value byte = leaf({3}, DType::u8), flag = leaf({3}, DType::boolean);
    CHECK(simplified(cast(cast(h, DType::f32), DType::f16)).node() == h.node());
    CHECK(simplified(cast(cast(k, DType::i64), DType::i32)).node() == k.node());
    CHECK(simplified(cast(cast(k, DType::f64), DType::i32)).node() == k.node());
    CHECK(simplified(cast(cast(flag, DType::f32), DType::boolean)).node() == flag.node());
    CHECK(node_count(simplified(cast(cast(h, DType::f32), DType::f64))) == 2);
    CHECK(node_count(simplified(cast(cast(byte, DType::i32), DType::f32))) == 2);
    CHECK(node_count(simplified(cast(cast(x, DType::f16), DType::f32))) == 3);
    CHECK(node_count(simplified(cast(cast(k, DType::f32), DType::i32))) == 3);  // 2^24 + 1
    CHECK(node_count(simplified(cast(cast(h, DType::bf16), DType::f16))) == 3);
    CHECK(node_count(simplified(cast(cast(k, DType::f64), DType::u8))) == 3);  // wraps or saturates
    CHECK(node_count(simplified(cast(cast(k, DType::u8), DType::i32))) == 3);
    CHECK(simplified(node("cast", {x}, {{"dtype", static_cast<int64_t>(DType::f32)}})).node() ==
          x.node());
  }

  TEST_CASE("consecutive movement operations merge") {
    Value x = leaf({4, 6});
    Value r = simplified(reshape(reshape(x, {24}), {2, 12}));
    CHECK(r->inputs[0].node() == x.node());
    CHECK(simplified(reshape(reshape(x, {24}), {4, 6})).node() == x.node());
    CHECK(simplified(permute(permute(x, {1, 0}), {1, 0})).node() == x.node());
    Value y = leaf({2, 3, 4});
    Value p = simplified(permute(permute(y, {1, 2, 0}), {1, 0, 2}));
    REQUIRE(p->is("permute"));
    CHECK(p->inputs[0].node() == y.node());
    CHECK(p.shape() == Shape{4, 3, 2});
    CHECK(simplified(broadcast_to(broadcast_to(leaf({1, 6}), {4, 6}), {4, 6}))->inputs[0].shape() ==
          Shape{1, 6});
    Value b = leaf({1, 1, 6});
    CHECK(simplified(broadcast_to(node("broadcast", {b}, {{"shape", Dims{1, 4, 6}}}), {3, 4, 6}))
              ->inputs[0]
              .node() == b.node());
    CHECK(simplified(flip(flip(x, {1}), {1})).node() == x.node());
    CHECK(simplified(flip(leaf({1, 6}), {0}))->is("input"));
    CHECK(node_count(simplified(slice(slice(x, 1, 1, 6, 2), 1, 1, 3))) == 2);
    CHECK(simplified(node("slice", {x},
                          {{"axis", int64_t{1}},
                           {"start", int64_t{0}},
                           {"stop", int64_t{6}},
                           {"step", int64_t{1}}}))
              .node() == x.node());
    CHECK(node_count(simplified(pad(pad(x, {1, 0}, {0, 2}), {1, 1}, {0, 0}))) == 2);
    CHECK(node_count(simplified(pad(pad(x, {1, 0}, {0, 2}, 1.0), {1, 1}, {0, 0}))) == 3);
  }

  TEST_CASE("slices pass through concatenations and pads") {
    Value a = leaf({4, 2}), b = input({DType::f32, {4, 3}}, 1);
    Value both = concat(std::vector{a, b}, 1);
    CHECK(simplified(slice(both, 1, 0, 2)).node() == a.node());
    CHECK(simplified(slice(both, 1, 2, 5)).node() == b.node());
    CHECK(simplified(slice(both, 1, 1, 4))->inputs[0]->is("concat"));
    CHECK(simplified(slice(slice(pad(a, {1, 2}, {3, 4}), 0, 1, 5), 1, 2, 4)).node() == a.node());
    CHECK(simplified(slice(pad(a, {1, 0}, {0, 0}), 0, 0, 3))->is("slice"));
  }

  TEST_CASE("every chain of movement operations keeps its elements after simplification") {
    for (uint64_t seed = 0; seed < 300; ++seed) {
      Random random(seed);
      Value x = random_values({DType::f32, {3, 4, 2}}, -1, 1, random), y = x;
      for (int i = 0; i < 6; ++i) {
        int axis = static_cast<int>(random.below(y.rank()));
        int64_t extent = y.dim(axis), start = random.below(extent);
        Dims low = Dims::filled(y.rank(), 0), high = low;
        low[axis] = random.below(3);
        high[axis] = random.below(3);
        switch (random.below(7)) {
          case 0:
            y = reshape(y, {y.elements() / y.dim(0), y.dim(0)});
            break;
          case 1:
            y = permute(y, y.rank() == 2 ? Dims{1, 0} : Dims{2, 0, 1});
            break;
          case 2:
            y = slice(y, axis, start, random.between(start + 1, extent), random.between(1, 3));
            break;
          case 3:
            y = flip(y, {axis});
            break;
          case 4:
            y = pad(y, low, high, random.below(2) ? 0 : 0.5);
            break;
          case 5:
            y = concat(std::vector{y, y}, axis);
            break;
          default:
            y = broadcast_to(unsqueeze(slice(y, axis, start, start + 1), 0), [&] {
              Shape shape{2};
              for (int k = 0; k < y.rank(); ++k) shape.push_back(k == axis ? 3 : y.dim(k));
              return shape;
            }());
            y = reshape(y, {y.dim(0) * y.dim(1), y.elements() / y.dim(0) / y.dim(1)});
        }
        if (y.elements() > 2000) break;
      }
      Value z = simplified(y);
      CAPTURE(seed);
      CHECK(node_count(z) <= node_count(y));
      CHECK(difference(interpret(z), interpret(y), 0) == "");
    }
  }

  TEST_CASE("gradients of all slices of a value merge into one, also when summed in float32") {
    const Value x = leaf({3, 4});
    for (DType type : {DType::f32, DType::bf16}) {
      const Value y = simplified(cast(x, type));
      auto part = [&](int64_t i) {
        return cast(pad(slice(y, 0, i, i + 1), {i, 0}, {2 - i, 0}), DType::f32);
      };
      CHECK(simplified(cast((part(2) + part(1)) + part(0), type)).node() == y.node());
      CHECK(simplified(cast(part(2) + part(0), type)).node() != y.node());
    }
  }

  TEST_CASE("reductions over single elements are removed") {
    Value x = leaf({1, 6, 1});
    CHECK(simplified(sum(x, {.axes = {0, 2}, .keepdim = true})).node() == x.node());
    CHECK(simplified(max(x, {.axes = {0}, .keepdim = true})).node() == x.node());
    Value y = simplified(sum(x, {.axes = {0, 1}, .keepdim = true}));
    CHECK(y->attrs.dims("axes") == Dims{1});
    CHECK(is_number(simplified(argmax(x, 0, true)), 0));
  }

  TEST_CASE("exactly rounded operations on constants fold in the dtype's rounding") {
    Value third = scalar(1) / scalar(3);
    CHECK(is_number(simplified(third), static_cast<double>(1.0F / 3.0F)));
    CHECK(is_number(simplified(scalar(0.1) + scalar(0.2)), static_cast<double>(0.1F + 0.2F)));
    CHECK(is_number(simplified(scalar(1, DType::f64) / scalar(3, DType::f64)), 1.0 / 3));
    CHECK(is_number(simplified(scalar(-0.0) * 1.5), -0.0));
    CHECK(is_number(simplified(sqrt(full({2, 2}, 2.0))), static_cast<double>(std::sqrt(2.0F))));
    CHECK(is_number(simplified(cast(scalar(2.7), DType::i32)), 2));
    CHECK(is_number(simplified(select(scalar(1) < scalar(2), scalar(5), scalar(6))), 5));
    CHECK(simplified(scalar(1e30) * scalar(1e30))->is("mul"));  // float32 overflows
    CHECK(simplified(scalar(1e9, DType::i32) + scalar(2e9, DType::i32))->is("add"));
    CHECK(is_number(simplified(floor_divide(scalar(-7, DType::i64), scalar(2, DType::i64))), -4));
  }

  TEST_CASE("folded constants are bit-identical to the reference") {
    const std::vector<std::function<Value(Value, Value)>> operations{
        [](Value a, Value b) { return a + b; },
        [](Value a, Value b) { return a - b; },
        [](Value a, Value b) { return a * b; },
        [](Value a, Value b) { return a / b; },
        [](Value a, Value b) { return maximum(a, b); },
        [](Value a, Value) { return sqrt(abs(a)); },
        [](Value a, Value b) { return select(a < b, a, b); },
        [](Value a, Value) { return floor(a) - round(a); },
        [](Value a, Value) { return cast(cast(a, DType::i32), DType::f32); }};
    Random random(3);
    for (DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16})
      for (const auto& operation : operations)
        for (int i = 0; i < 50; ++i) {
          Value a = scalar(random.unit() * 8 - 4, dtype), b = scalar(random.unit() * 8 - 4, dtype);
          Value y = operation(a, b), z = simplified(y);
          CHECK(z->is("scalar"));
          CHECK(bits_of(elements(interpret(z))[0]) == bits_of(elements(interpret(y))[0]));
        }
  }

  TEST_CASE("small arrays fold and large ones do not") {
    Value small = constant(std::vector<float>{1, 2, 3}, {3}), y = simplified(small * 2.0 + 1.0);
    REQUIRE(y->is("data"));
    CHECK(elements(y) == std::vector<double>{3, 5, 7});
    Random random(1);
    CHECK(simplified(random_values({DType::f32, {2000}}, -1, 1, random) * 2.0)->is("mul"));
  }

  TEST_CASE("sums of equal elements fold where every partial sum is exact") {
    CHECK(is_number(simplified(sum(ones({1000, 1000}))), 1e6));
    CHECK(simplified(sum(full({10}, 0.1)))->inputs.size() == 1);  // rounding depends on the order
    Value y = simplified(sum(ones({5000, 5000})));                // sums exceed 2^24
    CHECK(!uniform_value(y));
    CHECK(is_number(simplified(max(full({10}, 0.1))), static_cast<double>(0.1F)));
  }

  TEST_CASE("uniform constants fold through pads and concatenations") {
    const Value threes = full({2}, 3);
    auto joined = [&](size_t parts) {
      return simplified(node("concat", std::vector(parts, threes), {{"axis", int64_t{0}}}));
    };
    CHECK(uniform_value(joined(1)) == 3);
    CHECK(uniform_value(joined(3)) == 3);
    CHECK(uniform_value(simplified(pad(threes, {1}, {0}, 3))) == 3);
    CHECK(simplified(pad(threes, {1}, {0}, 2))->is("pad"));
  }

  TEST_CASE("elementwise functions move below broadcasts") {
    Value x = leaf({4, 1});
    Value y = simplified(tanh(broadcast_to(x, {4, 1000})));
    REQUIRE(y->is("broadcast"));
    CHECK(y->inputs[0]->is("tanh"));
    CHECK(y->inputs[0].shape() == Shape{4, 1});
    Value z = simplified(broadcast_to(x, {4, 9}) * 2.0 +
                         broadcast_to(input({DType::f32, {4, 1}}, 1), {4, 9}));
    CHECK(z->is("broadcast"));
    CHECK(simplified(broadcast_to(x, {4, 9}) + broadcast_to(leaf({1, 9}), {4, 9}))->is("add"));
  }
}

TEST_SUITE("common subexpressions") {
  TEST_CASE("equal nodes merge with commuted operands included") {
    Value x = leaf({3}), y = input({DType::f32, {3}}, 1);
    Value z = simplified((x + y) * (y + x));
    CHECK(z->inputs[0].node() == z->inputs[1].node());
    Value w = simplified((x - y) * (y - x));
    CHECK(w->inputs[0].node() != w->inputs[1].node());
    Value s = simplified(sum(tanh(x) + tanh(x)));
    CHECK(node_count(s) == 4 + (s->is("reshape") ? 1 : 0));
  }

  TEST_CASE("nodes that differ in attributes, type, sign of zero, variable or input do not merge") {
    Random random(1);
    Value x = leaf({4, 4});
    auto apart = [](const Value& a, const Value& b) {
      Graph graph = simplify({.outputs = {a, b}}, {});
      return graph.outputs[0].node() != graph.outputs[1].node();
    };
    CHECK(apart(sum(x, {.axes = {0}, .keepdim = false}), sum(x, {.axes = {1}, .keepdim = false})));
    CHECK(apart(slice(x, 0, 0, 2), slice(x, 0, 1, 3)));
    CHECK(apart(cast(x, DType::f16), cast(x, DType::bf16)));
    CHECK(apart(scalar(0.0), scalar(-0.0)));
    CHECK(apart(scalar(1, DType::f32), scalar(1, DType::f64)));
    CHECK(apart(input({DType::f32, {4}}, 0), input({DType::f32, {4}}, 1)));
    CHECK(apart(zero_variable("a", {DType::f32, {4}}), zero_variable("b", {DType::f32, {4}})));
    CHECK(apart(random_values({DType::f32, {4}}, 0, 1, random),
                random_values({DType::f32, {4}}, 0, 1, random)));
    RandomKey key{.step = scalar(0, DType::i64), .seed = 1, .stream = 2}, other = key;
    other.stream = 3;
    CHECK(apart(uniform(Shape{4}, key), uniform(Shape{4}, other)));
    CHECK(!apart(uniform(Shape{4}, key), uniform(Shape{4}, key)));
  }

  TEST_CASE("a seeded merge that ignores attributes is detected") {
    Value x = leaf({4, 4});
    Value y = simplified(slice(x, 0, 0, 2) - slice(x, 0, 1, 3), "cse-ignores-attrs");
    CHECK(y->inputs[0].node() == y->inputs[1].node());
  }
}

TEST_CASE("simplify preserves the results of random graphs and adds no nodes") {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Random random(seed);
    Graph graph = random_graph(random, 40), simple = simplify(graph, {});
    verify(simple);
    std::vector<Value> inputs = random_inputs(graph, random);
    std::vector<Value> want = interpret(graph, inputs), got = interpret(simple, inputs);
    CAPTURE(seed);
    CHECK(simple.nodes().size() <= graph.nodes().size());
    for (size_t i = 0; i < want.size(); ++i) CHECK(difference(got[i], want[i], 0) == "");
  }
}
