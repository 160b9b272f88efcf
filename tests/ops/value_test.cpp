// Tests the values of every registered op: every backend, through passes, plan and executable,
// against the interpreter, and the interpreter against independent results. All cases share how
// operands are drawn and results compared, so they are one file.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>

#include <doctest/doctest.h>

#include "tests/support/interpreter.h"
#include "tests/support/op_cases.h"
#include "tests/support/planned.h"
#include "weft/base/host/env.h"
#include "weft/base/memory/buffer.h"
#include "weft/base/numbers/hash.h"
#include "weft/ops/autodiff.h"
#include "weft/ops/ops.h"

using namespace weft;
using namespace weft::testing;

namespace {
// Returns random operands: plain elements or views of them, some with axes of extent 0.
CaseSource source_of_views(Random& random) {
  CaseSource source{.random = random,
                    .operand = [&random](const Type& type, double low, double high) {
                      return random_view(type, low, high, random);
                    }};
  return source;
}

// Gives every op its own shapes.
uint64_t seed_of(const OpDef& def, DType dtype, uint64_t seed) {
  return hash_combine(hash_combine(hash_text(def.name), static_cast<uint64_t>(dtype)), seed);
}

// Returns whether the error is the refusal of a device without float64, and the graph needs
// float64: for float64 values, or functions of integers.
bool is_float64_refused(const Error& error, const Graph& graph, DType dtype) {
  bool needs = !is_float(dtype);
  for (const Value& value : graph.nodes()) needs |= value.dtype() == DType::f64;
  return env_flag("WEFT_NO_FLOAT64") && needs && error.kind() == ErrorKind::device &&
         std::string_view(error.what()).find(" has no float64") != std::string_view::npos;
}
template <class Expected>
std::string tested(const Graph& graph, const Expected& expected, DType dtype,
                   const KernelLibrary& library) {
  try {
    return disagreement(run_planned(graph, {}, library), expected, library);
  } catch (const Error& error) {
    if (is_float64_refused(error, graph, dtype)) return "";
    throw;
  }
}
std::string tested(const Value& value, DType dtype, const KernelLibrary& library) {
  Graph graph;
  graph.outputs = {value};
  return tested(graph, interpret_with_errors(graph), dtype, library);
}

void test_all(uint64_t first_seed, uint64_t seeds) {
  for (const OpDef* def : registered_ops()) {
    if (!has_cases(*def) || !is_in_part(def->name)) continue;
    for (DType dtype : dtypes_of(*def))
      for (uint64_t seed = first_seed; seed < first_seed + seeds; ++seed) {
        Random random(seed_of(*def, dtype, seed));
        CaseSource source = source_of_views(random);
        Value value = draw_case(*def, dtype, source);
        for (const KernelLibrary* library : backends()) {
          INFO(library->name() << " " << def->name << " " << name(dtype) << " seed " << seed);
          CHECK(tested(value, dtype, *library) == "");
        }
      }
  }
}

// Tests the gradients of an op's weighted sum with respect to its float operands.
void test_gradients(DType dtype) {
  for (const OpDef* def : registered_ops()) {
    const bool has_gradient = def->kind != OpKind::leaf && def->test.no_gradient.empty();
    if (!has_gradient || !def->test.floats || !has_cases(*def) || !is_in_part(def->name)) continue;
    Random random(seed_of(*def, dtype, 3));
    std::vector<Value> operands;
    CaseSource source{.random = random, .operand = [&](const Type& type, double low, double high) {
                        Value operand = random_values(type, low, high, random);
                        if (type.dtype == dtype) operands.push_back(operand);
                        return operand;
                      }};
    const Value result = draw_case(*def, dtype, source);
    if (operands.empty() || !is_float(result.dtype())) continue;
    const Value loss = sum(result * random_values(result.type(), -1, 1, random));
    Graph graph;
    graph.outputs = gradients(loss, operands);
    const auto expected = interpret_with_errors(graph);
    for (const KernelLibrary* library : backends()) {
      INFO(library->name() << " " << def->name << " " << name(dtype));
      CHECK(tested(graph, expected, dtype, *library) == "");
    }
  }
}

// Tests each op with each extent of an axis, in one dtype or in all.
void test_sizes(const std::vector<int64_t>& extents, bool all_dtypes, uint64_t draws) {
  for (const OpDef* def : registered_ops()) {
    if (!has_cases(*def) || !is_in_part(def->name)) continue;
    std::vector<DType> dtypes = dtypes_of(*def);
    uint64_t chosen = hash_text(def->name) % dtypes.size();
    for (size_t d = 0; d < dtypes.size(); ++d)
      for (int64_t extent : extents)
        for (uint64_t seed = 0; seed < draws && (all_dtypes || d == chosen); ++seed) {
          Random random(
              seed_of(*def, dtypes[d], 1000 * (1 + static_cast<uint64_t>(extent)) + seed));
          CaseSource source = source_of_views(random);
          source.extents = {extent};
          INFO(def->name << " " << name(dtypes[d]) << " extent " << extent << " draw " << seed);
          Value value = extent == 0 ? draw_empty_case(*def, dtypes[d], source)
                                    : draw_case(*def, dtypes[d], source);
          bool made = value.defined();
          CHECK(made == !(extent == 0 && def->name == "scalar"));
          if (!value.defined()) continue;
          for (const KernelLibrary* library : backends()) {
            INFO(library->name() << " " << to_text(Graph{.outputs = {value}}));
            CHECK(tested(value, dtypes[d], *library) == "");
          }
        }
  }
}
// Other devices are tested by these cases alone, in slow tests, and have all types and extents.
const bool is_other_device = std::getenv("BACKEND") != nullptr;
}  // namespace

TEST_CASE("every op on every backend agrees with the interpreter") { test_all(0, 1); }

TEST_CASE("every op supports axes of extent 0, 1 and 17") {
  test_sizes({0, 1, 17}, false, 1);
  if (is_other_device) test_sizes({3}, false, 1);
}
TEST_CASE("gradients of every op on every backend agree with the interpreter") {
  test_gradients(DType::f32);
  if (is_other_device) test_gradients(DType::f64);
}

TEST_SUITE("slow ops") {
  TEST_CASE("every op on every backend agrees with the interpreter on many shapes") {
    test_all(100, 40);
  }
  TEST_CASE("every op supports axes of extent 0, 1, 3 and 17 in every type") {
    test_sizes({0, 1, 3, 17}, true, 4);
  }
  TEST_CASE("gradients of every op in float64 on every backend agree with the interpreter") {
    test_gradients(DType::f64);
  }
}

// A type that an op does not accept is a usage error, found before any backend is asked; the tests
// above cover accepted types.
namespace {
// Tests each op in every `stride`-th of the types that it does not take.
void test_other_types(uint64_t stride) {
  for (const OpDef* def : registered_ops()) {
    if (!has_cases(*def)) continue;
    const std::vector<DType> taken = dtypes_of(*def);
    for (int d = 0; d < dtype_count; ++d) {
      if ((hash_text(def->name) + static_cast<uint64_t>(d)) % stride != 0) continue;
      auto dtype = static_cast<DType>(d);
      if (std::ranges::find(taken, dtype) != taken.end()) continue;
      // The functions of these ops refuse bool or cast it, so no such node exists.
      bool cast_before = def->name == "sum" || def->name == "reciprocal" || def->name == "relu";
      if (dtype == DType::boolean && cast_before) continue;
      INFO(def->name << " " << name(dtype));
      std::vector<std::string> said;
      for (const KernelLibrary* library : backends()) try {
          Random random(seed_of(*def, dtype, 7));
          CaseSource source = source_of_views(random);
          said.push_back(tested(draw_case(*def, dtype, source), dtype, *library));
        } catch (const Error& error) {
          said.emplace_back(error.kind() == ErrorKind::usage ? "refused" : error.what());
        } catch (const InternalError& error) {
          said.emplace_back(error.what());
        }
      bool fine = said.front().empty() || said.front() == "refused";
      CHECK_MESSAGE(fine, said.front());
      for (const std::string& other : said) CHECK(other == said.front());
    }
  }
}
}  // namespace

TEST_CASE("a type that an op does not support is computed or refused alike on every backend") {
  test_other_types(is_other_device ? 1 : 3);
}
TEST_SUITE("slow ops") {
  TEST_CASE("every type that an op does not support is computed or refused alike") {
    test_other_types(1);
  }
}

// PyTorch gives the same results.
TEST_CASE("softmax over an empty axis is empty and logsumexp over an empty axis is -inf") {
  Value none = zeros({5, 0});
  for (const KernelLibrary* library : backends()) {
    INFO(library->name());
    auto run = [&](const Value& y) {
      Graph graph;
      graph.outputs = {y};
      return run_planned(graph, {}, *library).front();
    };
    CHECK(run(softmax(none)).shape() == Shape{5, 0});
    CHECK(run(log_softmax(none)).shape() == Shape{5, 0});
    CHECK(elements(run(logsumexp(none, {.axes = {1}}))) == std::vector<double>(5, -INFINITY));
    CHECK(elements(run(logsumexp(none, {.axes = {0}}))).empty());
  }
  CHECK_THROWS_AS(max(none, {.axes = {1}}), Error);
}

TEST_CASE("the decomposition of an elementwise composite agrees with its oracle") {
  for (const OpDef* def : registered_ops()) {
    if (def->kind != OpKind::composite || def->oracle == nullptr) continue;
    INFO(def->name);
    Random random(5);
    std::vector<Value> inputs;
    std::vector<double> in[3];
    for (std::vector<double>& operand : in) {
      const Value x = random_values({DType::f64, {200}}, -30, 30, random);
      operand = elements(x);
      if (std::ssize(inputs) < def->arity) inputs.push_back(x);
    }
    std::vector<double> got = elements(interpret(make_node(*def, inputs)));
    for (size_t i = 0; i < got.size(); ++i) {
      double want = def->oracle(in[0][i], in[1][i], in[2][i]);
      CHECK(std::fabs(got[i] - want) <= 1e-13 * std::fabs(want));
    }
  }
}

TEST_CASE("activations agree with the formulas of their papers") {
  struct Activation {
    std::string name;
    Value (*make)(const Value&);
    double (*exact)(double);
  };
  const std::vector<Activation> activations = {
      {"relu6", [](const Value& x) { return relu6(x); },
       [](double x) { return std::fmin(std::fmax(x, 0), 6); }},
      {"leaky_relu", [](const Value& x) { return leaky_relu(x, 0.2); },
       [](double x) { return x > 0 ? x : 0.2 * x; }},
      {"elu", [](const Value& x) { return elu(x, 0.7); },
       [](double x) { return x > 0 ? x : 0.7 * std::expm1(x); }},
      {"selu", [](const Value& x) { return selu(x); },
       [](double x) {
         return 1.0507009873554805 * (x > 0 ? x : 1.6732632423543772 * std::expm1(x));
       }},
      {"log_sigmoid", [](const Value& x) { return log_sigmoid(x); },
       [](double x) { return -std::log1p(std::exp(-x)); }},
      {"mish", [](const Value& x) { return mish(x); },
       [](double x) { return x * std::tanh(std::log1p(std::exp(x))); }},
      {"hardsigmoid", [](const Value& x) { return hardsigmoid(x); },
       [](double x) { return std::fmin(std::fmax(x / 6 + 0.5, 0), 1); }},
      {"hardswish", [](const Value& x) { return hardswish(x); },
       [](double x) { return x * std::fmin(std::fmax(x / 6 + 0.5, 0), 1); }},
      {"celu", [](const Value& x) { return celu(x, 0.7); },
       [](double x) { return std::fmax(0, x) + std::fmin(0, 0.7 * (std::exp(x / 0.7) - 1)); }},
      {"celu of a negative alpha", [](const Value& x) { return celu(x, -1.5); },
       [](double x) { return x > 0 ? x : -1.5 * std::expm1(x / -1.5); }},
      {"hardtanh", [](const Value& x) { return hardtanh(x); },
       [](double x) { return x < -1  ? -1.0
                             : x > 1 ? 1.0
                                     : x; }},
      {"softsign", [](const Value& x) { return softsign(x); },
       [](double x) { return x / (1 + std::fabs(x)); }},
  };
  for (const KernelLibrary* library : backends())
    for (DType dtype : {DType::bf16, DType::f16, DType::f32, DType::f64})
      for (const Activation& activation : activations) {
        INFO(library->name() << " " << activation.name << " " << name(dtype));
        double allowed = dtype == DType::f64 ? 1e-14 : dtype == DType::f32 ? 1e-6 : 0.005;
        Random random(6);
        Value x = random_values({dtype, {100}}, -8, 8, random);
        Graph graph;
        graph.outputs = {activation.make(x)};
        std::vector<double> got = elements(run_planned(graph, {}, *library).front());
        std::vector<double> in = elements(x);
        CHECK(graph.outputs[0].dtype() == dtype);
        for (size_t i = 0; i < in.size(); ++i) {
          double want = activation.exact(in[i]);
          CHECK(std::fabs(got[i] - want) <= allowed * std::fabs(want));
        }
      }
}

TEST_CASE("glu gates the first half of an axis by the sigmoid of the second") {
  Random random(7);
  Value x = random_values({DType::f64, {2, 6, 3}}, -4, 4, random);
  std::vector<double> in = elements(x);
  for (const KernelLibrary* library : backends()) {
    INFO(library->name());
    Graph graph;
    graph.outputs = {glu(x, 1)};
    Value y = run_planned(graph, {}, *library).front();
    REQUIRE(y.shape() == Shape{2, 3, 3});
    std::vector<double> got = elements(y);
    for (size_t i = 0; i < got.size(); ++i) {
      size_t at = i / 9 * 18 + i % 9;
      CHECK(std::fabs(got[i] - in[at] / (1 + std::exp(-in[at + 9]))) <= 1e-14);
    }
  }
  CHECK_THROWS_WITH_AS(glu(x), doctest::Contains("must be even. Got 3"), Error);
}

TEST_CASE("logarithms of powers and integer powers are exact") {
  for (const KernelLibrary* library : backends())
    for (DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
      INFO(library->name() << " " << name(dtype));
      auto run = [&](const Value& y) {
        Graph graph;
        graph.outputs = {y};
        return elements(run_planned(graph, {}, *library).front());
      };
      std::vector<double> whole, twos;
      for (int i = -14; i <= 15; ++i) whole.push_back(i), twos.push_back(std::ldexp(1.0, i));
      CHECK(run(log2(constant(twos, {30}, dtype))) == whole);
      CHECK(run(exp2(constant(whole, {30}, dtype))) == twos);
      CHECK(run(log10(constant(std::vector<double>{1, 10, 100}, {3}, dtype))) ==
            std::vector<double>{0, 1, 2});
    }
  Value far = constant(std::vector<double>{0x1p-149, 1e10, INFINITY, 0}, {4}, DType::f32);
  for (const KernelLibrary* library : backends()) {
    INFO(library->name());
    Graph graph;
    graph.outputs = {log2(far), log10(far)};
    std::vector<Value> got = run_planned(graph, {}, *library);
    CHECK(elements(got[0])[0] == -149);
    CHECK(elements(got[0])[2] == INFINITY);
    CHECK(elements(got[0])[3] == -INFINITY);
    CHECK(elements(got[1])[1] == 10);
  }
}

TEST_CASE("a constant of floats is float32 and one of doubles has the requested dtype") {
  const std::vector<float> narrow{0.1F, -2, 3};
  const Value value = constant(narrow, {3});
  CHECK(value.type() == Type{DType::f32, {3}});
  CHECK(elements(value) == std::vector<double>(narrow.begin(), narrow.end()));
  const std::vector<double> wide{0.1, -2};
  CHECK(elements(constant(wide, {2, 1}, DType::f64)) == wide);
}

TEST_CASE("64-bit integers keep all their bits") {
  int64_t big = (int64_t{1} << 60) + 1;
  auto values = [](std::vector<int64_t> list) {
    Random random(0);
    Value x = random_values({DType::i64, {static_cast<int64_t>(list.size())}}, 0, 0, random);
    for (size_t i = 0; i < list.size(); ++i)
      store_int(x->data(), DType::i64, static_cast<int64_t>(i), list[i]);
    return x;
  };
  auto first = [](const Value& x) { return load_int(x->data(), x.dtype(), 0); };
  Value a = values({big, -7}), b = values({3, 2});
  for (const KernelLibrary* library : backends()) {
    INFO(library->name());
    auto run = [&](const Value& y) {
      Graph graph;
      graph.outputs = {y};
      return run_planned(graph, {}, *library).front();
    };
    CHECK(first(run(a + b)) == big + 3);
    CHECK(first(run(a * b)) == big * 3);
    CHECK(first(run(-a)) == -big);
    CHECK(first(run(floor_divide(a, b))) == big / 3);
    CHECK(elements(run(floor_divide(a, b)))[1] == -4);
    CHECK(elements(run(remainder(a, b)))[1] == 1);
    CHECK(first(run(maximum(a, b))) == big);
    CHECK(first(run(sum(a))) == big - 7);
    CHECK(elements(run(a == a + 1))[0] == 0);
    CHECK(first(run(cast(a, DType::i8))) == 1);  // wraps
    CHECK(first(run(matmul(reshape(a, {1, 2}), reshape(b, {2, 1})))) == big * 3 - 14);
  }
}

// The numbers are those of NumPy 2, but for x / 0 and x % 0, which are 0 in weft.
TEST_CASE("integers without a sign wrap, divide, shift and compare") {
  using Doubles = std::vector<double>;
  constexpr int repeats = 20;  // so that vectors compute most of them
  for (const KernelLibrary* library : backends())
    for (const DType dtype : {DType::u16, DType::u32}) {
      INFO(library->name(), " ", name(dtype));
      const double top = std::ldexp(1.0, info(dtype).bits) - 1,
                   half = std::ldexp(1.0, info(dtype).bits - 1);
      const auto repeated = [](const Doubles& numbers) {
        Doubles all;
        for (int i = 0; i < repeats; ++i) all.insert(all.end(), numbers.begin(), numbers.end());
        return all;
      };
      const Shape shape{4 * repeats};
      const Value a = constant(repeated({top, 1, half + 7, 3}), shape, dtype),
                  b = constant(repeated({2, top, 3, 0}), shape, dtype);
      const std::pair<Value, Doubles> wanted[] = {
          {a + b, {1, 0, half + 10, 3}},
          {a - b, {top - 2, 2, half + 4, 3}},
          {a * b, {top - 1, top, half + 21, 0}},
          {-a, {1, top, half - 7, top - 2}},
          {floor_divide(a, b), {half - 1, 0, std::floor((half + 7) / 3), 0}},
          {remainder(a, b), {1, 1, std::fmod(half + 7, 3), 0}},
          {cast(a > b, dtype), {1, 0, 1, 1}},
          {maximum(a, b), {top, top, half + 7, 3}},
          {minimum(a, b), {2, 1, 3, 0}},
          {abs(a), {top, 1, half + 7, 3}},
          {sign(b), {1, 1, 1, 0}},
          {bitwise_not(a), {0, top - 1, half - 8, top - 3}},
          {shift_right(a, 3), {(top - 7) / 8, 0, half / 8, 0}},
          {shift_left(a, 3), {top - 7, 8, 56, 24}},
          {cast(a, DType::f64), {top, 1, half + 7, 3}},
          {cast(a, DType::i8), {-1, 1, 7, 3}},
          {cast(cast(a, DType::i8), dtype), {top, 1, 7, 3}},
          {pow(a, 2), {1, 1, 49, 9}}};
      Graph graph;
      for (const auto& [value, want] : wanted) graph.outputs.push_back(value);
      graph.outputs.insert(graph.outputs.end(),
                           {sum(a), max(a), min(b), argsort(slice(a, 0, 0, 4))});
      const std::vector<Value> got = run_planned(graph, {}, *library);
      size_t i = 0;
      for (const auto& [value, want] : wanted) {
        INFO(value->op->name);
        CHECK(elements(got[i++]) == repeated(want));
      }
      CHECK(elements(got[i]) == Doubles{repeats * (top + half + 11)});
      CHECK(elements(got[i + 1]) == Doubles{top});
      CHECK(elements(got[i + 2]) == Doubles{0});
      CHECK(elements(got[i + 3]) == Doubles{1, 3, 2, 0});
    }
}

TEST_CASE("a value is added to its own rows in another order") {
  const std::vector<double> numbers = {1, -2, 3, 4, -5, 6};
  for (const KernelLibrary* library : backends()) {
    INFO(library->name());
    const Value x = input({DType::f32, {3, 2}}, 0), kept = relu(x),
                order = constant(std::vector<double>{2, 1, 0}, {3}, DType::i64);
    Graph graph;
    graph.inputs = {x};
    graph.outputs = {kept + gather(kept, order)};
    const std::vector<Value> got =
        run_planned(graph, std::vector{constant(numbers, {3, 2}, DType::f32)}, *library);
    CHECK(elements(got[0]) == std::vector<double>{1, 6, 6, 8, 1, 6});
  }
}

TEST_CASE("sums over rows of a value and of its gathered rows read both from memory") {
  constexpr int64_t rows = 48, columns = 20;
  std::vector<double> numbers, order;
  for (int64_t i = 0; i < rows * columns; ++i)
    numbers.push_back(static_cast<double>(i * 37 % 64) / 32 - 1);
  for (int64_t i = 0; i < rows; ++i) order.push_back(static_cast<double>(rows - 1 - i));
  const Value given = constant(numbers, {rows, columns}, DType::f32);
  const ReduceOptions over{.axes = {1}};
  for (const KernelLibrary* library : backends()) {
    INFO(library->name());
    const Value x = input({DType::f32, {rows, columns}}, 0), e = exp(x),
                there = gather(e, constant(order, {rows}, DType::i64));
    Graph graph;
    graph.inputs = {x};
    graph.outputs = {sum(e * x, over) + sum(there * x, over)};
    const Value expected =
        interpret(sum(exp(given) * given, over) + sum(flip(exp(given), {0}) * given, over));
    CHECK(difference(run_planned(graph, std::vector{given}, *library)[0], expected, 1e-5) == "");
  }
}

TEST_CASE("a kernel that computes a value again gathers from it in memory") {
  for (const KernelLibrary* library : backends()) {
    INFO(library->name());
    const Value at = input({DType::i64, {2}}, 0);
    const Value count = scatter_add(zeros({2}), at, ones({2}));
    const Value divisor = select(count == 0, 1, count);
    Graph graph;
    graph.inputs = {at};
    graph.outputs = {index_put(1.5 / divisor, at, zeros({2})), gather(divisor, at)};
    const std::vector<Value> got = run_planned(
        graph, std::vector{constant(std::vector<double>{1, 1}, {2}, DType::i64)}, *library);
    CHECK(elements(got[0]) == std::vector<double>{1.5, 0});
    CHECK(elements(got[1]) == std::vector<double>{2, 2});
  }
}

TEST_CASE("bits are read as another type of their width, and back") {
  const std::vector<double> numbers = {1, -0.0, 0x1p-149, -2.5};
  std::vector<double> bits;
  bits.reserve(numbers.size());
  for (const double number : numbers)
    bits.push_back(std::bit_cast<int32_t>(static_cast<float>(number)));
  for (const KernelLibrary* library : backends()) {
    INFO(library->name());
    const Value floats = constant(numbers, {4}, DType::f32),
                bytes = constant(std::vector<double>{255, 1}, {2}, DType::u8);
    Graph graph;
    graph.outputs = {bitcast(floats, DType::i32), bitcast(bitcast(floats, DType::i32), DType::f32),
                     bitcast(bytes, DType::i8)};
    const std::vector<Value> got = run_planned(graph, {}, *library);
    CHECK(elements(got[0]) == bits);
    CHECK(difference(got[1], floats, 0) == "");
    CHECK(elements(got[2]) == std::vector<double>{-1, 1});
    CHECK(bitcast(floats, DType::f32).node() == floats.node());
  }
  CHECK_THROWS_AS(bitcast(constant(numbers, {4}, DType::f32), DType::i64), Error);
}

TEST_CASE("the floored quotients of infinities are those of Python") {
  const std::vector<double> a = {1, -1, 1, -1, 0, INFINITY, -INFINITY, INFINITY, INFINITY, NAN, 7},
                            b = {-INFINITY, INFINITY, INFINITY, -INFINITY, -INFINITY, 2,
                                 2,         INFINITY, 0,        2,         -2},
                            want = {-1, -1, 0, 0, -0.0, NAN, NAN, NAN, INFINITY, NAN, -4};
  for (const KernelLibrary* library : backends())
    for (DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
      INFO(library->name(), " ", name(dtype));
      Graph graph;
      graph.outputs = {floor_divide(constant(a, {11}, dtype), constant(b, {11}, dtype))};
      CHECK(difference(run_planned(graph, {}, *library).front(), constant(want, {11}, dtype), 0) ==
            "");
    }
}

TEST_CASE("casts from floats truncate, saturate and turn NaN into 0") {
  const std::vector<double> numbers = {2.9,           -2.9, 1e30,  -1e30,        NAN,
                                       300,           -5,   127.5, 2147483648.0, -2147483649.0,
                                       -2147483648.0, 255.5};
  using Doubles = std::vector<double>;
  const std::pair<DType, Doubles> wanted[] = {
      {DType::i8, {2, -2, 127, -128, 0, 127, -5, 127, 127, -128, -128, 127}},
      {DType::u8, {2, 0, 255, 0, 0, 255, 0, 127, 255, 0, 0, 255}},
      {DType::i16, {2, -2, 32767, -32768, 0, 300, -5, 127, 32767, -32768, -32768, 255}},
      {DType::u16, {2, 0, 65535, 0, 0, 300, 0, 127, 65535, 0, 0, 255}},
      {DType::u32, {2, 0, 4294967295.0, 0, 0, 300, 0, 127, 2147483648.0, 0, 0, 255}},
      {DType::i32,
       {2, -2, 2147483647, -2147483648.0, 0, 300, -5, 127, 2147483647, -2147483648.0, -2147483648.0,
        255}},
      {DType::boolean, Doubles(12, 1)}};
  for (const KernelLibrary* library : backends())
    for (DType from : {DType::f64, DType::f32})
      for (const auto& [to, want] : wanted)
        // One row is converted lane by lane, many are in vectors.
        for (int64_t rows : {1, 40}) {
          INFO(library->name(), " ", name(from), " to ", name(to), ", ", rows, " rows");
          Doubles in, expected;
          for (int64_t row = 0; row < rows; ++row) {
            in.insert(in.end(), numbers.begin(), numbers.end());
            expected.insert(expected.end(), want.begin(), want.end());
          }
          Graph graph;
          graph.outputs = {cast(constant(in, {std::ssize(in)}, from), to)};
          CHECK(elements(run_planned(graph, {}, *library).front()) == expected);
        }
}

TEST_CASE("a small cross entropy keeps its precision under large logits") {
  // log(1 + exp(-8)) and its gradient -p, p must be as exact next to 1024 as next to 0.
  for (const KernelLibrary* library : backends()) {
    INFO(library->name());
    for (double peak : {0.0, 1024.0}) {
      Graph graph;
      Value logits = constant(std::vector<double>{peak, peak - 8}, {1, 2}, DType::f32);
      Value loss = cross_entropy(logits, constant(std::vector<double>{0}, {1}, DType::i64));
      graph.outputs = {loss, gradients(loss, std::vector<Value>{logits}).front()};
      std::vector<Value> results = run_planned(graph, {}, *library);
      double p = 1 / (1 + std::exp(8.0));
      CHECK(std::abs(elements(results[0]).front() - std::log1p(std::exp(-8.0))) < 1.2e-7);
      CHECK(std::abs(elements(results[1])[0] + p) < 1.2e-7);
      CHECK(std::abs(elements(results[1])[1] - p) < 1.2e-7);
    }
  }
}
