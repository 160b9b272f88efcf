// Compares attention from a cache, with windows and capped scores, with loops over its definition.
#include <algorithm>
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/interpreter.h"
#include "tests/support/planned.h"
#include "tests/support/values.h"
#include "weft/base/memory/buffer.h"
#include "weft/ops/ops.h"

using namespace weft;
using namespace weft::testing;

namespace {
struct Form {
  int64_t batch, heads, key_heads, queries, keys, depth, width;
  int64_t window = 0;
  double softcap = 0, scale = 0.3;
  std::vector<double> start = {};  // empty: none
};

// Computes the definition in float64, query by query.
std::vector<double> expected(const Form& f, const std::vector<double>& q,
                             const std::vector<double>& k, const std::vector<double>& v) {
  std::vector<double> y;
  for (int64_t b = 0; b < f.batch; ++b)
    for (int64_t h = 0; h < f.heads; ++h)
      for (int64_t t = 0; t < f.queries; ++t) {
        const int64_t shared = b * f.key_heads + h / (f.heads / f.key_heads);
        const int64_t position =
            t + (f.start.empty() ? 0 : static_cast<int64_t>(f.start[static_cast<size_t>(b)]));
        std::vector<double> row(static_cast<size_t>(f.width));
        double total = 0;
        for (int64_t s = 0; s < f.keys; ++s) {
          if (s > position || (f.window > 0 && s <= position - f.window)) continue;
          double score = 0;
          for (int64_t d = 0; d < f.depth; ++d)
            score += q[static_cast<size_t>(((b * f.heads + h) * f.queries + t) * f.depth + d)] *
                     k[static_cast<size_t>((shared * f.keys + s) * f.depth + d)];
          score *= f.scale;
          if (f.softcap > 0) score = f.softcap * std::tanh(score / f.softcap);
          const double weight = std::exp(score);
          total += weight;
          for (int64_t e = 0; e < f.width; ++e)
            row[static_cast<size_t>(e)] +=
                weight * v[static_cast<size_t>((shared * f.keys + s) * f.width + e)];
        }
        for (double value : row) y.push_back(value / total);
      }
  return y;
}

void check_attention(const Form& f, DType dtype) {
  Random random(7);
  auto draw = [&](int64_t heads, int64_t rows, int64_t columns, bool by_token) {
    const Shape shape{f.batch, heads, rows, columns};
    if (!by_token) return random_values({dtype, shape}, -2, 2, random);
    const Shape tokens{f.batch, rows, heads, columns};
    return permute(random_values({dtype, tokens}, -2, 2, random), {0, 2, 1, 3});
  };
  for (const bool by_token : {false, true}) {
    const Value q = draw(f.heads, f.queries, f.depth, by_token),
                k = draw(f.key_heads, f.keys, f.depth, by_token),
                v = draw(f.key_heads, f.keys, f.width, by_token);
    AttentionOptions options{
        .causal = true, .scale = f.scale, .window = f.window, .softcap = f.softcap};
    if (!f.start.empty()) options.start = interpret(constant(f.start, {f.batch}, DType::i64));
    Graph graph;
    graph.outputs = {attention(q, k, v, options)};
    const std::vector<double> want =
        expected(f, elements(interpret(q)), elements(interpret(k)), elements(interpret(v)));
    const double allowed = dtype == DType::f64 ? 1e-12 : dtype == DType::f32 ? 2e-6 : 0.02;
    for (const KernelLibrary* library : backends()) {
      INFO(library->name());
      const std::vector<double> got = elements(run_planned(graph, {}, *library).front());
      REQUIRE(got.size() == want.size());
      double worst = 0;
      for (size_t i = 0; i < got.size(); ++i)
        worst = std::max(worst, std::isnan(got[i]) ? INFINITY : std::fabs(got[i] - want[i]));
      CHECK(worst <= allowed * 4);
    }
  }
}
}  // namespace

TEST_CASE("attention from a cache agrees with a loop over its definition") {
  const Form forms[] = {
      {.batch = 3,
       .heads = 4,
       .key_heads = 2,
       .queries = 1,
       .keys = 150,
       .depth = 16,
       .width = 40,
       .start = {0, 149, 70}},
      {.batch = 2,
       .heads = 3,
       .key_heads = 3,
       .queries = 1,
       .keys = 70,
       .depth = 64,
       .width = 64,
       .start = {63, 64}},
      {.batch = 2,
       .heads = 4,
       .key_heads = 1,
       .queries = 17,
       .keys = 130,
       .depth = 8,
       .width = 24,
       .start = {0, 100}},
      {.batch = 2,
       .heads = 2,
       .key_heads = 2,
       .queries = 5,
       .keys = 200,
       .depth = 20,
       .width = 12,
       .window = 3,
       .start = {190, 1}},
      {.batch = 1,
       .heads = 6,
       .key_heads = 2,
       .queries = 90,
       .keys = 90,
       .depth = 32,
       .width = 32,
       .window = 70,
       .softcap = 0.7},
      {.batch = 1,
       .heads = 2,
       .key_heads = 1,
       .queries = 40,
       .keys = 40,
       .depth = 4,
       .width = 4,
       .softcap = 50},
      {.batch = 2,
       .heads = 2,
       .key_heads = 2,
       .queries = 3,
       .keys = 64,
       .depth = 5,
       .width = 7,
       .window = 1,
       .scale = -0.3,
       .start = {0, 61}},
  };
  for (const Form& form : forms)
    for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
      INFO(form.heads << " heads, " << form.keys << " keys, " << name(dtype));
      check_attention(form, dtype);
    }
}

TEST_CASE("keys beyond a query's position are not read") {
  const std::vector<double> nan(4 * 8, std::nan(""));
  const Value k =
      interpret(concat({full({1, 1, 3, 8}, 1), constant(nan, {1, 1, 4, 8}, DType::f32)}, 2));
  const Value q = interpret(full({1, 1, 1, 8}, 1));
  const Value start = interpret(constant(std::vector<double>{2}, {1}, DType::i64));
  Graph graph;
  graph.outputs = {attention(q, k, k, {.causal = true, .start = start})};
  for (const KernelLibrary* library : backends()) {
    if (library->name() == "reference") continue;  // multiplies their values by weights of 0
    INFO(library->name());
    for (double y : elements(run_planned(graph, {}, *library).front())) CHECK(y == 1);
  }
}
