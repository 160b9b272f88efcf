// Compares Philox with its published values, and distributions with their moments.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include <doctest/doctest.h>

#include "tests/ops/elements.h"
#include "tests/support/interpreter.h"
#include "tests/support/planned.h"
#include "tests/support/values.h"
#include "weft/base/numbers/philox.h"
#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"

using namespace weft;
using namespace weft::testing;

namespace {
RandomKey key(int64_t step, int64_t seed = 7, int64_t stream = 3) {
  return {.step = constant(std::vector<double>{static_cast<double>(step)}, {}, DType::i64),
          .seed = seed,
          .stream = stream};
}

double mean_of(const std::vector<double>& x) {
  return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
}
double deviation_of(const std::vector<double>& x) {
  double mean = mean_of(x), total = 0;
  for (double value : x) total += (value - mean) * (value - mean);
  return std::sqrt(total / static_cast<double>(x.size()));
}
}  // namespace

// The known answers are those of the authors' library, Random123 (kat_vectors).
TEST_CASE("philox agrees with the published test vectors") {
  using Words = std::array<uint32_t, 4>;
  uint32_t full = 0xffffffff;
  CHECK(philox({0, 0, 0, 0}, {0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox({full, full, full, full}, {full, full}) ==
        Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("element i of a uniform tensor is a function of seed, stream, step and i alone") {
  int64_t seed = (int64_t{5} << 40) + 9;
  std::vector<double> u = values(uniform({3, 7}, key(11, seed, 2)));
  for (int64_t i = 0; i < 21; ++i) {
    auto words = philox({static_cast<uint32_t>(i / 4), 0, 11, 2}, {9, 5 << 8});
    CHECK(u[static_cast<size_t>(i)] == (words[static_cast<size_t>(i % 4)] >> 8) * 0x1p-24);
  }
  CHECK(values(uniform({21}, key(11, seed, 2))) == u);
  CHECK(values(uniform({3, 7}, key(12, seed, 2))) != u);
  CHECK(values(uniform({3, 7}, key(11, seed + 1, 2))) != u);
  CHECK(values(uniform({3, 7}, key(11, seed, 3))) != u);
}

TEST_CASE("every backend draws bit-identical random numbers") {
  Graph graph;
  graph.outputs = {uniform({5, 13}, key(3)), bernoulli({40}, key(4), 0.3),
                   uniform({2, 3}, key(-1, -2, -3))};
  for (const KernelLibrary* library : backends()) {
    INFO(library->name());
    std::vector<Value> want = interpret(graph), got = run_planned(graph, {}, *library);
    for (size_t i = 0; i < want.size(); ++i) CHECK(difference(got[i], want[i], 0) == "");
  }
}

TEST_CASE("a part of a uniform tensor is drawn alone with the same bits on every backend") {
  const int64_t far = int64_t{3} << 40;
  auto drawn = [&](const Shape& shape, int64_t offset, const Dims& strides) {
    return make_node(op("random_uniform"), {key(3).step},
                     {{"shape", shape},
                      {"seed", int64_t{7}},
                      {"stream", int64_t{3}},
                      {"offset", offset},
                      {"strides", strides}});
  };
  const Value whole = uniform({6, 40}, key(3));
  Graph graph;
  graph.outputs = {drawn({2, 40}, 3 * 40, {40, 1}),   // a multiple of four: blocks of Philox
                   drawn({6, 33}, 5, {40, 1}),        // inside of blocks
                   drawn({4, 70}, far + 1, {80, 1}),  // beyond what 32 bits hold
                   drawn({40, 6}, 0, {1, 40})};       // transposed
  const std::vector<Value> want{slice(whole, 0, 3, 5), slice(whole, 1, 5, 38), Value(),
                                permute(whole, {1, 0})};
  for (const KernelLibrary* library : backends()) {
    INFO(library->name());
    const std::vector<Value> got = run_planned(graph, {}, *library);
    for (size_t i = 0; i < want.size(); ++i)
      if (want[i].defined()) CHECK(difference(got[i], interpret(want[i]), 0) == "");
    const std::vector<double> numbers = elements(got[2]);
    for (int64_t i = 0; i < 4 * 70; ++i)
      CHECK(numbers[static_cast<size_t>(i)] ==
            static_cast<double>(philox_uniform({.seed = 7, .stream = 3, .step = 3},
                                               far + 1 + i / 70 * 80 + i % 70)));
  }
}

TEST_CASE("a kernel draws the part that an operand names, with the same bits on every backend") {
  const Value whole = uniform({8, 40}, key(3)), columns = permute(whole, {1, 0});
  Graph graph;
  const Value part = input({DType::i64, {}}, 0);
  auto drawn = [&](const Shape& shape, int64_t every, const Dims& strides) {
    return make_node(op("random_uniform_part"), {key(3).step, part},
                     {{"shape", shape},
                      {"seed", int64_t{7}},
                      {"stream", int64_t{3}},
                      {"every", every},
                      {"offset", int64_t{0}},
                      {"strides", strides}});
  };
  graph.inputs = {part};
  graph.outputs = {drawn({2, 40}, 2 * 40, {40, 1}),  // whole blocks of Philox
                   drawn({8, 10}, 10, {40, 1}),      // inside of blocks
                   drawn({10, 8}, 10, {1, 40})};     // transposed
  for (const KernelLibrary* library : backends())
    for (int64_t i = 0; i < 4; ++i) {
      INFO(library->name(), ", part ", i);
      const std::vector<Value> want{slice(whole, 0, 2 * i, 2 * i + 2),
                                    slice(whole, 1, 10 * i, 10 * i + 10),
                                    slice(columns, 0, 10 * i, 10 * i + 10)};
      const std::vector<Value> got = run_planned(graph, std::array{key(i).step}, *library);
      for (size_t k = 0; k < want.size(); ++k)
        CHECK(difference(got[k], interpret(want[k]), 0) == "");
    }
}

TEST_CASE("distributions have their moments") {
  std::vector<double> u = values(uniform({20000}, key(0), -1, 3));
  CHECK(std::fabs(mean_of(u) - 1) < 0.03);
  CHECK(std::fabs(deviation_of(u) - 4 / std::sqrt(12.0)) < 0.02);
  CHECK(*std::min_element(u.begin(), u.end()) >= -1);
  CHECK(*std::max_element(u.begin(), u.end()) <= 3);
  std::vector<double> n = values(normal({20000}, key(0), 5, 2));
  CHECK(std::fabs(mean_of(n) - 5) < 0.05);
  CHECK(std::fabs(deviation_of(n) - 2) < 0.04);
  CHECK(std::fabs(mean_of(values(cast(bernoulli({20000}, key(0), 0.3), DType::f32))) - 0.3) < 0.02);
}

TEST_CASE("normal numbers are the Box-Muller transform of two streams") {
  std::vector<double> n = values(normal({50}, key(4), 1, 2));
  for (int64_t i = 0; i < 50; ++i) {
    double u = 1.0 - static_cast<double>(philox_uniform({.seed = 7, .stream = 3, .step = 4}, i));
    double v = philox_uniform({.seed = 7, .stream = second_stream(3), .step = 4}, i);
    double wanted = 1 + 2 * std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
    CHECK(std::fabs(n[static_cast<size_t>(i)] - wanted) < 1e-5);
  }
}

TEST_CASE("fills of host arrays agree with the generator's words in groups of sixteen blocks") {
  PhiloxKey host_key{.seed = (int64_t{5} << 40) + 9, .stream = 2, .step = -1};
  std::vector<float> u(200), n(200);
  fill_uniform(u, host_key, -2, 2);
  fill_normal(n, host_key, 0, 1);
  auto unit = [&](int64_t group, int64_t word, int64_t lane) {
    return static_cast<double>(philox_uniform(host_key, 4 * (16 * group + lane) + word));
  };
  for (int64_t i = 0; i < 200; ++i) {
    int64_t group = i / 64, word = i % 64 / 16, lane = i % 16;
    CHECK(u[static_cast<size_t>(i)] == -2 + 4 * unit(group, word, lane));
    double radius = std::sqrt(-2 * std::log(1 - unit(group, word & ~1, lane)));
    double angle = 2 * std::numbers::pi * (unit(group, word | 1, lane) - 0.5);
    double wanted = radius * (word % 2 == 0 ? std::cos(angle) : std::sin(angle));
    CHECK(std::fabs(n[static_cast<size_t>(i)] - wanted) < 2e-6);
  }
}

TEST_CASE("a random permutation holds every index once and differs from step to step") {
  std::vector<double> p = values(permutation(100, key(0))), sorted = p;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < sorted.size(); ++i) CHECK(sorted[i] == static_cast<double>(i));
  CHECK(p != sorted);
  CHECK(p != values(permutation(100, key(1))));
}

TEST_CASE("dropout zeroes its share of elements and scales the rest") {
  Value x = ones({10000});
  std::vector<double> y = values(dropout(x, 0.25, key(0)));
  double kept = 0;
  for (double value : y) {
    CHECK((value == 0 || std::fabs(value - 4.0 / 3) < 1e-6));
    kept += value != 0;
  }
  CHECK(std::fabs(kept / 10000 - 0.75) < 0.02);
  CHECK(dropout(x, 0, key(0)).node() == x.node());
}
