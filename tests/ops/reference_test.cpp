// Tests the reference backend: layouts with offsets and any strides, and results known by hand.
#include "weft/backends/reference/reference.h"

#include <numeric>
#include <set>

#include <doctest/doctest.h>

#include "tests/ops/elements.h"
#include "tests/support/interpreter.h"
#include "tests/support/op_cases.h"
#include "weft/base/memory/buffer.h"
#include "weft/ops/autodiff.h"
#include "weft/ops/ops.h"

using namespace weft;
using namespace weft::testing;

namespace {
// Scattered is memory that holds a scattered value.
struct Scattered {
  std::shared_ptr<Buffer> memory;
  Access access;

  Scattered(const Value& value, Random& random) {
    const Placement at = scattered(value.shape(), random);
    // The last element is at most where all strides add up.
    int64_t last = at.offset;
    for (int axis = 0; axis < value.rank(); ++axis)
      last += std::abs(at.strides[axis]) * std::max<int64_t>(0, value.shape()[axis] - 1);
    memory = Buffer::allocate(static_cast<size_t>(last + 1) * size_of(value.dtype()));
    access = {value, at};
  }
  // Copies between a contiguous value and this memory, element by element.
  void each(const Value& dense, bool to_memory) const {
    size_t bytes = size_of(dense.dtype());
    for (int64_t i = 0; i < dense.elements(); ++i) {
      int64_t rest = i, at = access.at.offset;
      for (int axis = dense.rank() - 1; axis >= 0; --axis) {
        at += rest % dense.shape()[axis] * access.at.strides[axis];
        rest /= dense.shape()[axis];
      }
      std::byte* here = memory->data + static_cast<size_t>(at) * bytes;
      std::byte* there = dense->data() + static_cast<size_t>(i) * bytes;
      std::copy_n(to_memory ? there : here, bytes, to_memory ? here : there);
    }
  }
};

std::string run_scattered(const Value& y, Random& random) {
  static const auto library = reference_library();
  Launch launch;
  launch.kind = Launch::Kind::library;
  launch.kernel = "ref:" + std::string(y->op->name);
  launch.body = {y};
  std::vector<Scattered> operands;
  std::vector<void*> pointers;
  for (const Value& input : y->inputs) {
    operands.emplace_back(input, random);
    operands.back().each(interpret(input), true);
    launch.operands.push_back(operands.back().access);
    pointers.push_back(operands.back().memory->data);
  }
  Scattered result(y, random);
  launch.results = {result.access};
  void* results[] = {result.memory->data};
  library->compiler().compile(Plan{}, launch)->run(pointers.data(), results, nullptr);
  Value got = from_buffer(Buffer::allocate(y.type().bytes()), y.type());
  result.each(got, false);
  return difference(got, interpret(y), 0);
}
}  // namespace

TEST_CASE("every primitive supports offsets and strides of operands and result") {
  auto library = reference_library();
  for (const OpDef* def : registered_ops()) {
    if (!has_cases(*def) || def->decompose != nullptr) continue;
    for (uint64_t seed = 0; seed < 5; ++seed) {
      INFO(def->name << " seed " << seed);
      Random random(seed);
      CaseSource source{.random = random,
                        .operand = [&](const Type& type, double low, double high) {
                          return random_values(type, low, high, random);
                        }};
      DType dtype = random.pick(dtypes_of(*def));
      CHECK(run_scattered(draw_case(*def, dtype, source), random) == "");
    }
  }
}

TEST_CASE("the reference runs every primitive and overrides no composite") {
  auto library = reference_library();
  for (const OpDef* def : registered_ops()) {
    if (!has_cases(*def)) continue;
    INFO(def->name);
    Random random(1);
    CaseSource source{.random = random, .operand = [&](const Type& type, double low, double high) {
                        return random_values(type, low, high, random);
                      }};
    Value value = draw_case(*def, dtypes_of(*def).front(), source);
    CHECK(library->kernels().choose(*value.node(), {}).has_value() == (def->decompose == nullptr));
  }
}

TEST_CASE("results agree with values computed by hand") {
  Value x = numbers({1, 2, 3, 4, 5, 6}, {2, 3});
  CHECK(values(matmul(x, transpose(x))) == std::vector<double>{14, 32, 32, 77});
  CHECK(values(sum(x, {.axes = {0}})) == std::vector<double>{5, 7, 9});
  CHECK(values(argmax(numbers({3, 7, 7, 1}, {4}))) == std::vector<double>{1});
  CHECK(values(slice(x, 1, 0, 3, 2)) == std::vector<double>{1, 3, 4, 6});
  CHECK(values(flip(x, {1})) == std::vector<double>{3, 2, 1, 6, 5, 4});
  CHECK(values(pad(numbers({1, 2}, {2}), {1}, {2}, 9)) == std::vector<double>{9, 1, 2, 9, 9});
  CHECK(values(concat({x, x}, 0)) == std::vector<double>{1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6});
  Value image = numbers({1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 1, 3, 3});
  CHECK(values(conv(image, numbers({1, 0, 0, 1}, {1, 1, 2, 2}))) ==
        std::vector<double>{6, 8, 12, 14});
  CHECK(values(conv2d(image, numbers({1, 0, 0, 1}, {1, 1, 2, 2}))) ==
        std::vector<double>{6, 8, 12, 14});
  CHECK(values(conv1d(numbers({1, 2, 4}, {1, 1, 3}), numbers({-1, 1}, {1, 1, 2}))) ==
        std::vector<double>{1, 2});
  CHECK(values(max_pool(image, {.kernel = {2, 2}, .stride = {1, 1}})) ==
        std::vector<double>{5, 6, 8, 9});
  CHECK(values(avg_pool(image, {.kernel = {3, 3}})) == std::vector<double>{5});
  CHECK(values(global_avg_pool(numbers({1, 3, 5, 7, 2, 4, 10, 20}, {2, 2, 1, 2}))) ==
        std::vector<double>{2, 6, 3, 15});
  // The gradient of a product by a factor is the product of the others, some of which are zero.
  auto factors = [](const std::vector<double>& list) {
    const Value y = numbers(list, {3});
    return values(gradients(prod(y), std::vector{y})[0]);
  };
  CHECK(factors({2, 4, 5}) == std::vector<double>{20, 10, 8});
  CHECK(factors({2, 0, 5}) == std::vector<double>{0, 10, 0});
  CHECK(factors({0, 0, 5}) == std::vector<double>{0, 0, 0});
}

// Operations are additions, multiplications and functions of one element; moving elements has none.
TEST_CASE("the operation count of a node follows from its definition") {
  auto count = [](const Value& value) { return flops(*value.node()); };
  Value x = zeros({2, 3}), image = zeros({1, 4, 6, 6}),
        rows = constant(std::vector{0.0, 1.0}, {2}, DType::i32);
  CHECK(count(x + 1.0) == 6);
  CHECK(count(transpose(x)) == 0);
  CHECK(count(gather(x, rows)) == 0);
  CHECK(count(sum(x, {.axes = {0}, .keepdim = true})) == 6);
  CHECK(count(scatter_add(x, rows, zeros({2, 3}))) == 6);
  CHECK(count(first_position(rows, 5)) == 0);
  CHECK(count(matmul(x, transpose(x))) == 24);  // 2 x 2 sums of 3 products
  // 1 x 6 x 4 x 4 sums over 4 / 2 channels of 3 x 3; the gradients have as many products.
  Value weight = zeros({6, 2, 3, 3});
  Value y = conv(image, weight, {}, {.groups = 2});
  CHECK(count(y) == 2 * 96 * 18);
  for (const Value& gradient : gradients(sum(y), std::vector{image, weight}))
    CHECK(count(gradient) == 2 * 96 * 18);
  for (const Value& pooled :
       {max_pool(image, {.kernel = {2, 3}}), avg_pool(image, {.kernel = {2, 3}})}) {
    CHECK(count(pooled) == 144);  // 24 windows of 6
    CHECK(count(gradients(sum(pooled), std::vector{image})[0]) == 144);
  }
  CHECK(count(gelu(x)) == 5 * 6);
  CHECK(count(softmax(x)) ==
        5 * 6 + 2);  // maximum, difference, exp, sum, product; a division per row
  // Attention scales and normalizes 2 x 3 x 3 scores between two products of depth 4.
  Value q = zeros({1, 2, 3, 4});
  CHECK(count(attention(q, q, q)) == 2 * (2 * 18 * 4) + 18 + 5 * 18 + 6);
}

TEST_CASE("only products, windows and attention take the narrow type under mixed precision") {
  std::set<std::string_view> narrow;
  for (const OpDef* def : registered_ops())
    if (def->narrows) narrow.insert(def->name);
  CHECK(narrow == std::set<std::string_view>{
                      "attention", "attention_gradient", "avg_pool", "avg_pool_gradient", "conv",
                      "conv_input_gradient", "conv_weight_gradient", "grouped_matmul",
                      "grouped_matmul_weight_gradient", "matmul", "max_pool", "max_pool_gradient"});
}

TEST_CASE("concat, stack and split accept braced lists") {
  Value a = numbers({1, 2}, {2}), b = numbers({3}, {1});
  CHECK(values(concat({a, b, a}, 0)) == std::vector<double>{1, 2, 3, 1, 2});
  Value both = stack({a, a * 10}, -1);
  CHECK(both.shape() == Shape{2, 2});
  CHECK(values(both) == std::vector<double>{1, 10, 2, 20});
  Value x = numbers({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {2, 5});
  std::vector<Value> parts = split(x, {1, 3, 0, 1}, -1);
  REQUIRE(parts.size() == 4);
  CHECK(values(parts[0]) == std::vector<double>{0, 5});
  CHECK(values(parts[1]) == std::vector<double>{1, 2, 3, 6, 7, 8});
  CHECK(parts[2].shape() == Shape{2, 0});
  CHECK(values(parts[3]) == std::vector<double>{4, 9});
  CHECK(split(x, {2}, 0).size() == 1);
  CHECK(split(x, 2, 1).size() == 3);
  CHECK(split(x, std::vector<int64_t>{1, 1}, 0).size() == 2);
}

TEST_CASE("an index outside the axis reads zero and adds nowhere") {
  Value x = numbers({10, 20, 30}, {3});
  Value indices = numbers({2, -1, 0, 3}, {4}, DType::i64);
  CHECK(values(gather(x, indices)) == std::vector<double>{30, 0, 10, 0});
  CHECK(values(scatter_add(x, indices, numbers({1, 2, 3, 4}, {4}))) ==
        std::vector<double>{13, 20, 31});
}

TEST_CASE("embedding and one_hot select rows by index") {
  Value weight = numbers({1, 2, 3, 4, 5, 6}, {3, 2}), ids = numbers({2, 0}, {2}, DType::i32);
  CHECK(values(embedding(ids, weight)) == std::vector<double>{5, 6, 1, 2});
  CHECK(values(one_hot(ids, 3)) == std::vector<double>{0, 0, 1, 1, 0, 0});
}

TEST_CASE("sums of 16-bit numbers accumulate in a wider type") {
  CHECK(values(sum(ones({4096}, DType::bf16))) == std::vector<double>{4096});
  CHECK(values(sum(full({1000}, 100, DType::i16))) == std::vector<double>{100000});
}
