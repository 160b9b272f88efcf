// Compares functions of f32 with libm in double: all on samples, and those with a formula in
// vector_math.cpp on all 2^32 inputs (slow).
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "tests/codegen/fused_launch.h"
#include "weft/base/host/parallel.h"
#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"

using namespace weft;

namespace {
// A Bound is the largest error of a formula; other functions round the result of double.
struct Bound {
  std::string_view name;
  double ulps;
};
constexpr Bound bounds[] = {{"exp", 2},     {"exp2", 0.51},  {"expm1", 2}, {"log", 2},
                            {"log2", 0.51}, {"log10", 0.51}, {"log1p", 2}, {"tanh", 2},
                            {"erf", 2},     {"sin", 2},      {"cos", 2},   {"sqrt", 0.5001},
                            {"rsqrt", 2}};
constexpr double rounded = 0.5001;

double bound_of(const OpDef& def) {
  const auto* found = std::ranges::find(bounds, def.name, &Bound::name);
  return found == std::end(bounds) ? rounded : found->ulps;
}
std::vector<const OpDef*> functions() {
  std::vector<const OpDef*> all = {&op("sqrt"), &op("rsqrt")};
  for (const OpDef* def : registered_ops())
    if (def->function != nullptr) all.push_back(def);
  return all;
}

// Returns the distance of `got` from `want` in ULPs of the float nearest to `want`.
double ulps_apart(float got, double want) {
  if (std::isnan(want) || std::isnan(got))
    return std::isnan(want) && std::isnan(got) ? 0 : INFINITY;
  auto nearest = static_cast<float>(want);
  if (got == nearest) return 0;
  if (std::isinf(nearest) || std::isinf(got))
    return std::isinf(nearest) && std::isinf(got)           ? INFINITY
           : std::fabs(std::fabs(want) - 0x1p128) < 0x1p106 ? 1
                                                            : INFINITY;
  int exponent = std::max(std::ilogb(nearest == 0 ? 0x1p-149 : nearest), -126);
  return std::fabs(got - want) / std::ldexp(1.0, exponent - 23);
}

struct Evaluator {
  static constexpr int64_t count = 1 << 16;
  CompiledKernel kernel;
  explicit Evaluator(const OpDef& def) {
    test::FusedLaunch fused({make_node(def, {input({DType::f32, {count}}, 0)})});
    kernel = compile_cpu(fused.launch);
  }
  void operator()(const float* x, float* y) const {
    void* operands[] = {const_cast<float*>(x)};
    void* results[] = {y};
    kernel.stages[0].fn(operands, results, nullptr, nullptr, 0, kernel.stages[0].extent);
  }
};

// Returns zeros, infinities, NaN, the least and the largest numbers, and every power of two with
// its neighbours, each with both signs.
std::vector<float> special_inputs() {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> x = {0, infinity, NAN, std::numeric_limits<float>::max()};
  for (int exponent = -149; exponent < 128; ++exponent) {
    const float power = std::ldexp(1.0f, exponent);
    x.insert(x.end(), {power, std::nextafter(power, 0.0f), std::nextafter(power, infinity)});
  }
  for (float a : {0.5f, 1.5f, 3.0f, 10.0f, 88.0f, 100.0f}) x.push_back(a);
  const size_t count = x.size();
  for (size_t i = 0; i < count; ++i) x.push_back(-x[i]);
  return x;
}

// Returns the worst error and its input over the bit patterns first, first + step, ... below 2^32.
std::pair<double, float> worst(const OpDef& def, uint64_t first, uint64_t step) {
  Evaluator apply(def);
  auto blocks = static_cast<int64_t>((0x100000000 / step) / Evaluator::count);
  std::vector<std::pair<double, float>> found(static_cast<size_t>(thread_count()), {0.0, 0.0f});
  parallel_for(thread_count(), [&](int64_t begin, int64_t end) {
    std::vector<float> x(Evaluator::count), y(Evaluator::count);
    for (int64_t part = begin; part < end; ++part)
      for (int64_t block = part; block < blocks; block += thread_count()) {
        for (size_t i = 0; i < x.size(); ++i)
          x[i] = std::bit_cast<float>(
              static_cast<uint32_t>(first + (static_cast<uint64_t>(block) * x.size() + i) * step));
        apply(x.data(), y.data());
        for (size_t i = 0; i < x.size(); ++i) {
          double error = ulps_apart(y[i], evaluate(def, x[i]));
          if (error > found[static_cast<size_t>(part)].first)
            found[static_cast<size_t>(part)] = {error, x[i]};
        }
      }
  });
  return *std::max_element(found.begin(), found.end());
}
}  // namespace

TEST_SUITE("codegen maths") {
  TEST_CASE("functions of f32 are within 2 ULP on a million inputs") {
    for (const OpDef* def : functions()) {
      auto [error, at] = worst(*def, 1234567 % 4096, 4096);
      INFO(def->name << ": " << error << " ULP at " << at);
      CHECK(error <= bound_of(*def));
    }
  }
  TEST_CASE("functions of f32 are within 2 ULP for special inputs and results") {
    const std::vector<float> special = special_inputs();
    std::vector<float> x(Evaluator::count), y(Evaluator::count);
    for (size_t i = 0; i < x.size(); ++i) x[i] = special[i % special.size()];
    for (const OpDef* def : functions()) {
      Evaluator apply(*def);
      apply(x.data(), y.data());
      for (size_t i = 0; i < special.size(); ++i) {
        const double want = evaluate(*def, x[i]), error = ulps_apart(y[i], want);
        INFO(def->name << "(" << x[i] << ") = " << y[i]);
        CHECK(error <= bound_of(*def));
        if (want == 0) CHECK(std::signbit(y[i]) == std::signbit(want));
        if (std::isinf(x[i]) && !std::isnan(want)) CHECK(y[i] == static_cast<float>(want));
      }
    }
  }
  TEST_CASE(
      "formulas of f32 call no library function except CUDA's fast ones and what OpenCL lacks") {
    constexpr std::string_view in_f32[] = {"exp", "expm1", "log", "log1p", "tanh", "erf"};
    constexpr std::string_view in_f64[] = {"exp2", "log2", "log10", "sin", "cos"};
    for (const Bound& bound : bounds) {
      const test::FusedLaunch fused({make_node(op(bound.name), {input({DType::f32, {100}}, 0)})});
      const auto calls = [&](loop::GpuLanguage language) {
        return std::ranges::count(fused.loops(language).code, loop::Op::call,
                                  &loop::Instruction::op);
      };
      INFO(bound.name);
      CHECK(calls(loop::GpuLanguage::opencl) == std::ranges::count(in_f64, bound.name));
      CHECK(calls(loop::GpuLanguage::cuda) == std::ranges::count(in_f32, bound.name));
    }
  }
  TEST_CASE("pow of f32 is within 2 ULP including special cases") {
    constexpr float specials[] = {0.0f,  -0.0f,  1.0f,    -1.0f, 2.0f,        -2.0f,
                                  3.0f,  -3.0f,  0.5f,    -0.5f, INFINITY,    -INFINITY,
                                  NAN,   1e-40f, -1e-40f, 1e30f, 16777216.0f, 16777217.0f,
                                  0.33f, 2.5f,   -2.5f};
    constexpr int64_t many = std::size(specials), random = 200000;
    std::vector<float> x, y;
    for (float a : specials)
      for (float b : specials) x.push_back(a), y.push_back(b);
    for (int64_t i = 0; i < random; ++i) {
      x.push_back(static_cast<float>(std::exp(30 * std::sin(static_cast<double>(i)))));
      y.push_back(static_cast<float>(6 * std::sin(static_cast<double>(i) * 0.77)));
    }
    Shape shape{many * many + random};
    test::FusedLaunch fused({pow(input({DType::f32, shape}, 0), input({DType::f32, shape}, 1))});
    CompiledKernel kernel = compile_cpu(fused.launch);
    std::vector<float> z(x.size());
    std::vector<void*> operands;
    operands.reserve(fused.operand_leaf.size());
    for (const Value& leaf : fused.operand_leaf)
      operands.push_back(leaf->attrs.integer("index") == 0 ? x.data() : y.data());
    void* results[] = {z.data()};
    run_kernel(kernel, operands.data(), results, nullptr);
    for (size_t i = 0; i < x.size(); ++i) {
      double error =
          ulps_apart(z[i], std::pow(static_cast<double>(x[i]), static_cast<double>(y[i])));
      if (error > 2)
        FAIL_CHECK("pow(" << x[i] << ", " << y[i] << ") = " << z[i] << ": " << error << " ULP");
    }
  }
}

TEST_SUITE("slow codegen maths") {
  TEST_CASE("functions of f32 are within 2 ULP on all inputs") {
    for (const Bound& bound : bounds) {
      auto [error, at] = worst(op(bound.name), 0, 1);
      MESSAGE(std::string(bound.name) << ": " << error << " ULP at " << at);
      CHECK(error <= bound.ulps);
    }
  }
}
