// Tests gradients where functions have a kink, a tie or a singular point, where a choice among
// subgradients is made: it is PyTorch's.
#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "tests/support/near.h"
#include "tests/support/planned.h"
#include "tests/support/values.h"
#include "weft/ops/autodiff.h"
#include "weft/ops/ops.h"

using namespace weft;
using namespace weft::testing;

namespace {
constexpr double inf = std::numeric_limits<double>::infinity();
using Doubles = std::vector<double>;

// A Row has the gradients by a and b of the sum of f(a, b), as PyTorch 2.13 gives them, and the
// sums of each one's gradients by a.
struct Row {
  const char* name;
  Value (*f)(const Value& a, const Value& b);
  Doubles a, b;
  Doubles by_a, by_b;
  Doubles second = {};  // of by_a; empty: PyTorch's is NaN, or has no elements
};

const std::vector<Row> rows = {
    {"maximum",
     [](const Value& a, const Value& b) { return maximum(a, b); },
     {0, 1, 2, inf},
     {0, 2, 1, inf},
     {0.5, 0, 1, 0.5},
     {0.5, 1, 0, 0.5},
     {0, 0, 0, 0}},
    {"minimum",
     [](const Value& a, const Value& b) { return minimum(a, b); },
     {0, 1, 2, inf},
     {0, 2, 1, inf},
     {0.5, 1, 0, 0.5},
     {0.5, 0, 1, 0.5},
     {0, 0, 0, 0}},
    {"clamp",
     [](const Value& a, const Value&) { return clamp(a, -1, 1); },
     {-1, 1, 0, 2},
     {},
     {1, 1, 1, 0},
     {},
     {0, 0, 0, 0}},
    {"hardtanh",
     [](const Value& a, const Value&) { return hardtanh(a, -1, 1); },
     {-1, 1, 0, 2},
     {},
     {0, 0, 1, 0},
     {},
     {0, 0, 0, 0}},
    {"relu6",
     [](const Value& a, const Value&) { return relu6(a); },
     {0, 6, 3, 7},
     {},
     {0, 0, 1, 0},
     {},
     {0, 0, 0, 0}},
    {"hardsigmoid times 6",
     [](const Value& a, const Value&) { return 6 * hardsigmoid(a); },
     {-3, 3, 0, 4},
     {},
     {0, 0, 1, 0},
     {},
     {0, 0, 0, 0}},
    {"hardswish",
     [](const Value& a, const Value&) { return hardswish(a); },
     {-3, 3, 0, 4},
     {},
     {0, 1, 0.5, 1},
     {},
     {0, 0, 1.0 / 3, 0}},
    {"relu",
     [](const Value& a, const Value&) { return relu(a); },
     {0, -0.0, 1, -1},
     {},
     {0, 0, 1, 0},
     {},
     {0, 0, 0, 0}},
    {"leaky_relu",
     [](const Value& a, const Value&) { return leaky_relu(a, 0.25); },
     {0, -0.0, 1, -1},
     {},
     {0.25, 0.25, 1, 0.25},
     {},
     {0, 0, 0, 0}},
    {"elu",
     [](const Value& a, const Value&) { return elu(a, 2); },
     {0, -0.0, 1, 100},
     {},
     {2, 2, 1, 1},
     {},
     {}},
    {"celu",
     [](const Value& a, const Value&) { return celu(a, 0.5); },
     {0, -0.0, 1, 100},
     {},
     {1, 1, 1, 1},
     {},
     {}},
    {"glu",
     [](const Value& a, const Value&) { return glu(a); },
     {1, 2, -120, 120},
     {},
     {0, 1, 0, 0},
     {},
     {0, 0, 0, 0}},
    {"silu",
     [](const Value& a, const Value&) { return silu(a); },
     {-120, 120},
     {},
     {0, 1},
     {},
     {0, 0}},
    {"softplus",
     [](const Value& a, const Value&) { return softplus(a); },
     {-120, 120},
     {},
     {0, 1},
     {},
     {0, 0}},
    {"mish",
     [](const Value& a, const Value&) { return mish(a); },
     {-120, 120},
     {},
     {0, 1},
     {},
     {0, 0}},
    {"log_sigmoid",
     [](const Value& a, const Value&) { return log_sigmoid(a); },
     {120, -120},
     {},
     {0, 1},
     {},
     {0, 0}},
    {"abs",
     [](const Value& a, const Value&) { return abs(a); },
     {0, -0.0, 1, -1},
     {},
     {0, 0, 1, -1},
     {},
     {0, 0, 0, 0}},
    {"softsign",
     [](const Value& a, const Value&) { return softsign(a); },
     {0, -0.0, 1, -1},
     {},
     {1, 1, 0.25, 0.25},
     {},
     {0, 0, -0.25, 0.25}},
    {"pow",
     [](const Value& a, const Value& b) { return pow(a, b); },
     {0, 0, 0, 0, 0, 0, 0},
     {0, 1, 2, 0.5, -1, 3, 1.5},
     {0, 1, 0, inf, -inf, 0, 0},
     {0, 0, 0, 0, -inf, 0, 0},
     {}},
    {"pow by 0",
     [](const Value& a, const Value&) { return pow(a, 0.0); },
     {0, -0.0, 1, -1},
     {},
     {0, 0, 0, 0},
     {},
     {0, 0, 0, 0}},
    {"pow by 1.5",
     [](const Value& a, const Value&) { return pow(a, 1.5); },
     {0, 1, 4, 0},
     {},
     {0, 1.5, 3, 0},
     {},
     {inf, 0.75, 0.375, inf}},
    {"sqrt",
     [](const Value& a, const Value&) { return sqrt(a); },
     {0, 4, 1, 0},
     {},
     {inf, 0.25, 0.5, inf},
     {},
     {}},
    {"rsqrt",
     [](const Value& a, const Value&) { return rsqrt(a); },
     {0, 4, 1, inf},
     {},
     {-inf, -0.0625, -0.5, 0},
     {},
     {}},
    {"atan2",
     [](const Value& a, const Value& b) { return atan2(a, b); },
     {0, 0, 1, 0},
     {0, -0.0, 0, -1},
     {0, 0, 0, -1},
     {0, 0, -1, 0},
     {}},
    {"norm",
     [](const Value& a, const Value&) { return norm(a); },
     {0, 0, 0, 0},
     {},
     {0, 0, 0, 0},
     {},
     {}},
    {"max",
     [](const Value& a, const Value&) { return max(a); },
     {2, 2, 1, -2},
     {},
     {0.5, 0.5, 0, 0},
     {},
     {0, 0, 0, 0}},
    {"min",
     [](const Value& a, const Value&) { return min(a); },
     {2, 2, 3, 2},
     {},
     {1 / 3.0, 1 / 3.0, 0, 1 / 3.0},
     {},
     {0, 0, 0, 0}},
    {"prod",
     [](const Value& a, const Value&) { return prod(a); },
     {0, 2, 3, 1},
     {},
     {6, 0, 0, 0},
     {},
     {11, 3, 2, 6}},
    {"prod of two zeros",
     [](const Value& a, const Value&) { return prod(a); },
     {0, 0, 3, 1},
     {},
     {0, 0, 0, 0},
     {},
     {3, 3, 0, 0}},
    {"logaddexp",
     [](const Value& a, const Value& b) { return logaddexp(a, b); },
     {0, 2, -3, 0},
     {0, 2, -3, 0},
     {0.5, 0.5, 0.5, 0.5},
     {0.5, 0.5, 0.5, 0.5},
     {0.25, 0.25, 0.25, 0.25}},
    {"stddev",
     [](const Value& a, const Value&) { return stddev(a); },
     {3, 3, 3, 3},
     {},
     {0, 0, 0, 0},
     {},
     {0, 0, 0, 0}},
    {"max_pool",
     [](const Value& a, const Value&) {
       return max_pool(reshape(a, {1, 1, 1, 4}), {.kernel = {1, 2}, .stride = {1, 1}});
     },
     {2, 2, 2, 1},
     {},
     {1, 1, 1, 0},
     {},
     {0, 0, 0, 0}},
    {"huber_loss",
     [](const Value& a, const Value&) { return huber_loss(a, 0.0, 1, Reduction::none); },
     {-1, 0, 1, 0.5},
     {},
     {-1, 0, 1, 0.5},
     {},
     {0, 1, 0, 1}},
    {"binary_cross_entropy",
     [](const Value& a, const Value& b) {
       return binary_cross_entropy(a, b, Reduction::none) * 0x1p-40;
     },
     {0, 0, 1, 1},
     {0, 1, 0, 1},
     {0, -1e12 * 0x1p-40, 1e12 * 0x1p-40, 0},
     {},
     {}},
};
}  // namespace

TEST_CASE("gradients at kinks, ties and singular points are PyTorch's") {
  Graph graph;
  std::vector<Value> inputs;
  const auto add = [&](const Doubles& numbers) {
    const Type type{DType::f32, {std::ssize(numbers)}};
    graph.inputs.push_back(input(type, static_cast<int>(inputs.size())));
    inputs.push_back(constant(numbers, type.shape, type.dtype));
    return graph.inputs.back();
  };
  for (const Row& row : rows) {
    const Value a = add(row.a), b = row.b.empty() ? a : add(row.b);
    std::vector<Value> all = gradients(sum(row.f(a, b)), std::vector{a, b});
    all.push_back(gradients(sum(all[0]), std::vector{a}).front());
    graph.outputs.insert(graph.outputs.end(), all.begin(), all.end());
  }
  for (const KernelLibrary* library : backends()) {
    CAPTURE(library->name());
    const std::vector<Value> got = run_planned(graph, inputs, *library);
    for (size_t i = 0; i < rows.size(); ++i) {
      CAPTURE(rows[i].name);
      const auto check = [&](size_t which, const Doubles& want) {
        const Doubles found = elements(got[3 * i + which]);
        for (size_t j = 0; j < want.size(); ++j) CHECK(found[j] == near(want[j]));
      };
      check(0, rows[i].by_a);
      check(1, rows[i].by_b);
      check(2, rows[i].second);
    }
  }
}
