// Compares fused reductions and their consumers in the same kernel with the reference.
#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>

#include "tests/codegen/fused_launch.h"
#include "tests/codegen/inputs.h"
#include "weft/codegen/lower.h"
#include "weft/ops/ops.h"

using namespace weft;
using test::check;
using test::f32;
using test::over;

TEST_SUITE("codegen reduce") {
  TEST_CASE("sums over rows of every length are right") {
    for (int64_t n : {1, 2, 3, 10, 16, 17, 64, 65, 100, 1000, 5000})
      check({sum(f32({5, n}), over({1}))}, 1e-5);
  }
  TEST_CASE("sums over columns of every length are right") {
    for (int64_t n : {1, 2, 3, 10, 16, 17, 64, 65, 1000, 3000}) {
      check({sum(f32({5, n}), over({0}))}, 1e-5);
      check({sum(f32({37, n}), over({0}))}, 1e-5);
    }
  }
  TEST_CASE("sums over any axes of a rank-4 tensor are right") {
    for (Dims axes :
         {Dims{0}, Dims{1}, Dims{2}, Dims{3}, Dims{0, 1}, Dims{0, 2}, Dims{0, 3}, Dims{1, 2},
          Dims{1, 3}, Dims{2, 3}, Dims{0, 2, 3}, Dims{0, 1, 2}, Dims{0, 1, 2, 3}}) {
      check({sum(f32({4, 7, 5, 19}), over(axes))}, 1e-5);
      check({sum(f32({3, 1, 20, 6}), over(axes))}, 1e-5);
    }
  }
  TEST_CASE("reduction loops end with the axis that is contiguous in memory") {
    const Value rows = slice(slice(f32({8, 6, 10}), 1, 0, 5), 2, 0, 7);  // no two axes can merge
    const loop::Kernel kernel =
        loop::lower(test::FusedLaunch({sum(permute(rows, {2, 0, 1}), over({0, 1, 2}))}).launch);
    const auto load = std::ranges::find(kernel.code, loop::Op::load, &loop::Instruction::op);
    REQUIRE(load != kernel.code.end());
    CHECK(load->at.strides == Dims{60, 10, 1});
  }
  TEST_CASE("long reductions are split into chunks") {
    check({sum(f32({300000}), over({0}))}, 1e-4);
    check({sum(f32({2, 200003}), over({1}))}, 1e-4);
    check({sum(f32({20011, 10}), over({0}))}, 1e-4);
    check({sum(f32({3001, 70}), over({0})), max(f32({3001, 70}), over({0}))}, 1e-4);
    check({sum(f32({16, 40, 25, 25}), over({0, 2, 3}))}, 1e-4);
  }
  TEST_CASE("max, min, prod, argmax and argmin are right along each axis") {
    for (int axis : {0, 1}) {
      for (Shape shape : {Shape{9, 33}, Shape{70000, 3}, Shape{3, 70000}}) {
        Value x = f32(shape);
        check({max(x, over({axis})), min(x, over({axis})), argmax(x, axis, true),
               argmin(x, axis, true)});
      }
      check({prod(f32({11, 12}), over({axis}))}, 1e-4);
    }
  }
  TEST_CASE("the first of equal extremes wins and NaN wins over all") {
    auto fill = [](const Value&, int64_t i) { return static_cast<double>(i * 7 % 5); };
    check({argmax(f32({3, 100}), 1, true), argmin(f32({3, 100}), 1, true)}, 0, fill);
    check({argmax(f32({100, 3}), 0, true), argmin(f32({100, 3}), 0, true)}, 0, fill);
    auto with_nan = [](const Value&, int64_t i) {
      return i % 60 == 41 ? NAN : static_cast<double>(i % 9);
    };
    check({max(f32({4, 60}), over({1})), argmax(f32({4, 60}), 1, true)}, 0, with_nan);
    check({min(f32({60, 4}), over({0}))}, 0, with_nan);
    auto least = [](const Value&, int64_t) { return -INFINITY; };
    check({argmax(f32({4, 60}), 1, true), max(f32({4, 60}), over({1}))}, 0, least);
  }
  TEST_CASE("softmax is right along any axis") {
    for (int64_t n : {1, 3, 10, 17, 50, 1000}) check({softmax(f32({6, n}))}, 2e-6);
    check({softmax(f32({6, 50}), 0)}, 2e-6);
    check({softmax(f32({5, 20, 7}), 1)}, 2e-6);
    // A running sum of n numbers is off by about sqrt(n) / 2 roundings of 6e-8; the tolerance is
    // four times that.
    check({softmax(f32({30000, 3}), 0)}, 2e-5);
    check({log_softmax(f32({7, 129}))}, 4e-6);
  }
  TEST_CASE("layer norm is right with weight, bias and its statistics") {
    for (int64_t n : {1, 5, 64, 100, 768}) {
      Value y = layer_norm(f32({9, n}), reshape(f32({1, n}, 1), {n}), reshape(f32({1, n}, 2), {n}));
      check({y}, 2e-5);
    }
    Value x = f32({12, 96});
    Value centre = mean(x, over({1}));
    check({centre, x - centre}, 1e-5);
  }
  TEST_CASE("batch norm reduces all axes but the channels") {
    for (Shape shape : {Shape{8, 6, 5, 5}, Shape{4, 16, 40, 41}, Shape{64, 3}}) {
      Dims axes;
      for (int i = 0; i < shape.size(); ++i)
        if (i != 1) axes.push_back(i);
      Value x = f32(shape);
      Value centred = x - mean(x, over(axes));
      Value deviation = mean(centred * centred, over(axes));
      check({centred * rsqrt(deviation + 1e-5), deviation}, 1e-4);
      Value last = permute(f32({shape[0], 4, 3, shape[1]}), {0, 3, 1, 2});
      Value m = mean(last, over({0, 2, 3}));
      check({last - m, m}, 1e-5);
    }
  }
  TEST_CASE("a reduction and an elementwise result share a kernel") {
    Value x = f32({40, 70}), dy = f32({40, 70}, 1);
    Value dx = dy * tanh(x);
    check({dx, sum(dx, over({0}))}, 1e-5);
    check({dx, sum(dx, over({1}))}, 1e-5);
  }
  TEST_CASE("reductions along rows and across rows share a kernel") {
    for (Shape shape :
         {Shape{5, 3}, Shape{64, 16}, Shape{300, 67}, Shape{1, 40}, Shape{3000, 50}}) {
      test::set_other_targets(shape[0] == 5 || shape[0] == 300);  // one vector and less, and many
      Value x = f32(shape), dy = f32(shape, 1);
      check({sum(x, over({0})), sum(x, over({1}))}, 1e-4);
      check(
          {max(x, over({0})), softmax(dy), min(dy * x, over({0})), prod(x * 0.1 + 1.0, over({0}))},
          1e-5);
      Value xhat = layer_norm(x);
      check({sum(dy * xhat, over({0})), sum(dy, over({0})), xhat * dy}, 1e-3);
    }
    test::set_other_targets(true);
    Value image = f32({40, 6, 10, 12});  // rows span several axes that are not adjacent in memory
    Value turned = permute(image, {0, 2, 1, 3});
    check({sum(turned, over({0})), turned - mean(turned, over({1, 2, 3}))}, 1e-4);
    Value blocks = f32({7, 9, 30});  // several axes of rows
    check({sum(blocks, over({0, 1})), softmax(blocks)}, 1e-4);
    Value whole = input({DType::i32, {50, 20}}, 4), narrow = input({DType::bf16, {50, 20}}, 5);
    check({sum(whole, over({0})), max(whole, over({1}))});
    check({sum(narrow, over({0})), max(narrow, over({1}))}, 1e-2);
    test::set_other_targets(false);
  }
  TEST_CASE("reductions over empty axes return their identity") {
    check({sum(f32({3, 0}), over({1})), prod(f32({3, 0}), over({1}))});
    check({sum(f32({0, 3}), over({0}))});
    check({sum(f32({0, 3}), over({1}))});
    Value none = f32({0, 3}), empty = f32({3, 0});
    check({sum(none, over({0})), sum(none, over({1}))});
    check({sum(empty, over({0})), sum(empty, over({1}))});
  }
}
