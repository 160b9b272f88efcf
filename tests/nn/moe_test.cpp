// Tests the sparse mixture of experts against loops over plain arrays in which every expert
// computes every token.
#include "weft/nn/moe.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include <doctest/doctest.h>

#include "tests/models/reference.h"
#include "tests/support/near.h"
#include "tests/support/temporary_folder.h"
#include "weft/io/load.h"
#include "weft/tensor/compile.h"

using namespace weft;
using namespace weft::testing;

namespace {
using Doubles = std::vector<double>;
constexpr size_t tokens = 7, width = 5, inner = 6, experts = 4;

// Returns numbers in [-1, 1), others for each stream.
Doubles drawn(size_t count, uint64_t stream) {
  Doubles elements(count);
  for (size_t i = 0; i < count; ++i) elements[i] = formula_uniform(stream, i, 1);
  return elements;
}
double silu_of(double x) { return x / (1 + std::exp(-x)); }

struct Moe : nn::Module {
  explicit Moe(const nn::SparseMoeOptions& options) : layer(*this, "moe", width, inner, options) {
    uint64_t stream = 1;
    for (const Variable& weight : parameters())
      write(weight, drawn(static_cast<size_t>(weight.type().elements()), stream++));
  }
  nn::SparseMoe layer;
};

// Returns the sum over the chosen experts of weight times result, for x[tokens, width].
Doubles dense(const Moe& moe, const Doubles& x, size_t chosen, bool normalized) {
  const Doubles gate = read(moe.layer.gate.weight), w1 = read(moe.layer.experts.w1);
  const Doubles w2 = read(moe.layer.experts.w2), w3 = read(moe.layer.experts.w3);
  // Returns row `row` of matrix e of stacked matrices [.., rows, columns] times a vector.
  auto times = [](const Doubles& w, size_t e, size_t rows, size_t row, std::span<const double> v) {
    const auto from = w.begin() + static_cast<std::ptrdiff_t>((e * rows + row) * v.size());
    return std::inner_product(v.begin(), v.end(), from, 0.0);
  };
  Doubles y(tokens * width, 0.0);
  for (size_t t = 0; t < tokens; ++t) {
    const std::span<const double> token(x.data() + t * width, width);
    Doubles p(experts);
    for (size_t e = 0; e < experts; ++e) p[e] = std::exp(times(gate, 0, experts, e, token));
    const double all = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& each : p) each /= all;
    Doubles sorted = p;
    std::ranges::sort(sorted, std::greater());
    const double least = sorted[chosen - 1];
    const double kept = std::accumulate(sorted.begin(), sorted.begin() + chosen, 0.0);
    for (size_t e = 0; e < experts; ++e) {
      Doubles hidden(inner);
      for (size_t i = 0; i < inner; ++i)
        hidden[i] = silu_of(times(w1, e, inner, i, token)) * times(w3, e, inner, i, token);
      const double weight = p[e] < least ? 0 : p[e] / (normalized ? kept : 1);
      for (size_t i = 0; i < width; ++i)
        y[t * width + i] += weight * times(w2, e, width, i, hidden);
    }
  }
  return y;
}
}  // namespace

TEST_CASE("a sparse mixture of experts agrees with the dense computation in float64") {
  nn::BuildScope scope({.dtype = DType::f64});
  const Doubles x = drawn(tokens * width, 9);
  for (int64_t chosen = 1; chosen <= static_cast<int64_t>(experts); ++chosen)
    for (bool normalized : {true, false}) {
      INFO(chosen << " experts, normalized " << normalized);
      const Moe moe(
          {.num_experts = experts, .num_experts_per_tok = chosen, .norm_topk_prob = normalized});
      const Tensor y = moe.layer(constant(x, {1, tokens, width}, DType::f64));
      CHECK(y.shape() == Shape{1, tokens, width});
      check_close(y.to_doubles(), dense(moe, x, static_cast<size_t>(chosen), normalized), 1e-13,
                  "result");
    }
}

TEST_CASE("a sparse mixture of experts computes in its type and rounds like its products") {
  const Doubles x = drawn(tokens * width, 9);
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    nn::BuildScope scope({.dtype = dtype});
    const Moe moe({.num_experts = experts});
    const Tensor rounded = constant(x, {tokens, width}, dtype);
    const Tensor y = moe.layer(rounded);
    CHECK(y.dtype() == dtype);
    const Doubles got = y.to_doubles(), want = dense(moe, rounded.to_doubles(), 2, true);
    const double unit = dtype == DType::f32 ? 1e-7 : dtype == DType::bf16 ? 0x1p-8 : 0x1p-11;
    for (size_t i = 0; i < got.size(); ++i) CHECK(std::fabs(got[i] - want[i]) <= 20 * unit);
  }
}

TEST_CASE("gradients of a sparse mixture of experts agree with finite differences") {
  nn::BuildScope scope({.dtype = DType::f64});
  const Moe moe({.num_experts = experts, .norm_topk_prob = false});
  const Variable x("x", {DType::f64, {tokens, width}});
  write(x, drawn(tokens * width, 9));
  const Tensor factors = constant(drawn(tokens * width, 10), {tokens, width}, DType::f64);
  auto loss = [&] { return sum(moe.layer(x.value()) * factors); };
  std::vector<Variable> variables = moe.parameters();
  REQUIRE(variables.size() == 4);
  variables.push_back(x);
  const std::vector<Tensor> gradients = grad(loss(), variables);
  constexpr double step = 1e-5;
  for (size_t v = 0; v < variables.size(); ++v) {
    const Doubles got = gradients[v].to_doubles();
    Doubles values = read(variables[v]);
    for (size_t i = 0; i < values.size(); i += 3) {
      auto at = [&](double value) {
        std::swap(values[i], value);
        write(variables[v], values);
        std::swap(values[i], value);
        return loss().item();
      };
      const double slope = (at(values[i] + step) - at(values[i] - step)) / (2 * step);
      INFO(variables[v].name() << " element " << i << ": " << got[i] << ", not " << slope);
      CHECK(std::fabs(got[i] - slope) <= 1e-8);
    }
    write(variables[v], values);
  }
}

// One token is read, as in decoding: six of the eight experts have no row.
TEST_CASE("a token reads the weights of its own experts alone") {
  const Moe moe({.num_experts = 8});
  const Tensor x = constant(drawn(width, 9), {1, width}, DType::f32);
  const Tensor chosen = topk(linear(x, moe.layer.gate.weight.value()), 2).indices;
  const Doubles before = moe.layer(x).to_doubles(), two = chosen.to_doubles();
  for (const Variable& weight :
       {moe.layer.experts.w1, moe.layer.experts.w2, moe.layer.experts.w3}) {
    Doubles values = read(weight);
    for (size_t i = 0; i < values.size(); ++i) {
      const auto expert = static_cast<double>(i / (values.size() / 8));
      if (std::ranges::find(two, expert) == two.end()) values[i] = NAN;
    }
    write(weight, values);
  }
  CHECK(moe.layer(x).to_doubles() == before);
}

TEST_CASE("a sparse mixture of experts loads Mixtral's published names") {
  struct Block : nn::Module {
    nn::SparseMoe moe{*this, "block_sparse_moe", width, inner, {.num_experts = 3}};
  };
  test::TemporaryFolder folder;
  std::vector<Variable> published;
  auto publish = [&](const std::string& name, const Shape& shape) {
    published.emplace_back("model.layers.0.block_sparse_moe." + name, Type{DType::f32, shape});
    const auto count = static_cast<size_t>(published.back().type().elements());
    write(published.back(), drawn(count, published.size()));
  };
  publish("gate.weight", {3, width});
  for (const char* expert : {"0", "1", "2"}) {
    const std::string begin = std::string("experts.") + expert;
    publish(begin + ".w1.weight", {inner, width});
    publish(begin + ".w2.weight", {width, inner});
    publish(begin + ".w3.weight", {inner, width});
  }
  io::save_safetensors(folder.file("m"), published);
  Block block;
  io::load(block, folder.file("m"),
           {.prefix = "model.layers.0.",
            .stack = {{"*experts.{}.w1.weight", "*experts.w1"},
                      {"*experts.{}.w2.weight", "*experts.w2"},
                      {"*experts.{}.w3.weight", "*experts.w3"}}});
  CHECK(read(block.moe.gate.weight) == read(published[0]));
  const Variable stacks[] = {block.moe.experts.w1, block.moe.experts.w2, block.moe.experts.w3};
  for (size_t which = 0; which < 3; ++which) {
    Doubles want;
    for (size_t expert = 0; expert < 3; ++expert) {
      const Doubles part = read(published[1 + 3 * expert + which]);
      want.insert(want.end(), part.begin(), part.end());
    }
    CHECK(read(stacks[which]) == want);
  }
}

TEST_CASE("impossible mixtures of experts are refused with their limit") {
  nn::Module root;
  CHECK_THROWS_WITH_AS(nn::SparseMoe(root, "a", 4, 8, {.num_experts = 4, .num_experts_per_tok = 5}),
                       "[sparse_moe] num_experts_per_tok must be from 1 to num_experts (4). Got 5.",
                       Error);
  CHECK_THROWS_WITH_AS(nn::SparseMoe(root, "a", 4, 8, {.num_experts_per_tok = 0}),
                       "[sparse_moe] num_experts_per_tok must be from 1 to num_experts (8). Got 0.",
                       Error);
  CHECK_THROWS_WITH_AS(nn::SparseMoe(root, "a", 4, 8, {.activation = "sillu"}),
                       doctest::Contains("[sparse_moe] unknown activation \"sillu\". Known: relu"),
                       Error);
  CHECK_THROWS_WITH_AS(
      nn::SparseMoe(root, "a", 4, 8)(zeros({2, 5})),
      doctest::Contains("[sparse_moe] \"a\" takes 4 features in the last axis. Got f32[2, 5]."),
      Error);
}
