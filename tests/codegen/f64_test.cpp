// Tests float64 emulated with integers, on a device that pretends to lack it: arithmetic against
// the device's own instructions on the same source, functions against libm.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/support/no_float64.h"
#include "tests/support/skip.h"
#include "weft/backends/opencl/cl_device.h"
#include "weft/base/error.h"
#include "weft/codegen/f64_math.h"
#include "weft/ir/op_def.h"

using namespace weft;

namespace {
enum class Kind : uint8_t { f64, f32, integer };
struct Operation {
  const char* text;  // an expression of x, y, z
  Kind result;
};
constexpr Operation operations[] = {
    {"add_f64(x, y)", Kind::f64},
    {"sub_f64(x, y)", Kind::f64},
    {"mul_f64(x, y)", Kind::f64},
    {"div_f64(x, y)", Kind::f64},
    {"fma_f64(x, y, z)", Kind::f64},
    {"sqrt_f64(x)", Kind::f64},
    {"sqrt_f64(abs_f64(x))", Kind::f64},
    {"floor_f64(x)", Kind::f64},
    {"ceil_f64(x)", Kind::f64},
    {"trunc_f64(x)", Kind::f64},
    {"rint_f64(x)", Kind::f64},
    {"neg_f64(x)", Kind::f64},
    {"abs_f64(x)", Kind::f64},
    {"equal_f64(x, y)", Kind::integer},
    {"not_equal_f64(x, y)", Kind::integer},
    {"less_f64(x, y)", Kind::integer},
    {"less_equal_f64(x, y)", Kind::integer},
    {"greater_f64(x, y)", Kind::integer},
    {"greater_equal_f64(x, y)", Kind::integer},
    {"f64_to_f32(x)", Kind::f32},
    {"f64_to_odd_f32(x)", Kind::f32},
    {"f64_to_bool(x)", Kind::integer},
    {"f64_to_u8(x)", Kind::integer},
    {"f64_to_i8(x)", Kind::integer},
    {"f64_to_i16(x)", Kind::integer},
    {"f64_to_i32(x)", Kind::integer},
    {"f64_to_i64(x)", Kind::integer},
    {"bool_to_f64(less_f64(x, y))", Kind::f64},
    {"u8_to_f64((u8)i64_of_f64(x))", Kind::f64},
    {"i8_to_f64((i8)i64_of_f64(x))", Kind::f64},
    {"i16_to_f64((i16)i64_of_f64(x))", Kind::f64},
    {"i32_to_f64((i32)i64_of_f64(x))", Kind::f64},
    {"i64_to_f64(i64_of_f64(x))", Kind::f64},
    {"i64_to_f64(i64_of_f64(x) >> (i64_of_f64(y) & 63))", Kind::f64},
    {"f32_to_f64(f32_of_i32((i32)i64_of_f64(x)))", Kind::f64},
    {"F64(0.1, 0x3fb999999999999a)", Kind::f64},
    {"F64_INFINITY", Kind::f64},
    {"F64_NAN", Kind::f64},
};

double draw(std::mt19937_64& random) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  constexpr std::array<double, 24> specials{0.0,
                                            -0.0,
                                            1.0,
                                            -1.0,
                                            infinity,
                                            -infinity,
                                            NAN,
                                            0x1p-1074,
                                            0x1p-1022,
                                            -0x1p-1074,
                                            0x1.fffffffffffffp-1023,
                                            0x1.fffffffffffffp1023,
                                            -0x1.fffffffffffffp1023,
                                            0x1p63,
                                            -0x1p63,
                                            0x1p31,
                                            -2147483648.0,
                                            0x1.fffffffffffffp52,
                                            0x1p52 + 0.5,
                                            2.5,
                                            -0.5,
                                            0x1.fffffefp127,
                                            0x1.ffffffp127,
                                            0x1p-150};
  const uint64_t bits = random(), other = random();
  const uint64_t sign = other & 0x8000000000000000, fraction = bits & 0xfffffffffffff;
  const auto with_exponent = [&](uint64_t exponent, uint64_t all) {
    return std::bit_cast<double>(sign | exponent << 52 | all);
  };
  switch (other % 8) {
    case 0:
      return std::bit_cast<double>(bits);
    case 1:
      return specials[bits % specials.size()];
    case 2:  // subnormal
      return with_exponent(0, fraction >> (other >> 8) % 52);
    case 3:  // around the underflow of float32
      return with_exponent(1023 - 152 + (other >> 8) % 32, fraction);
    case 4:  // few bits, for ties
      return with_exponent(1023 - 60 + (other >> 8) % 120,
                           (bits & 7) << (bits >> 8) % 50 & 0xfffffffffffff);
    case 5:
      return std::ldexp(static_cast<double>(static_cast<int64_t>(bits) >> 50), -2);
    default:
      return with_exponent(1023 - 60 + (other >> 8) % 120, fraction);
  }
}
// Returns a number that often cancels most bits of x in a sum or difference.
double draw_near(std::mt19937_64& random, double x) {
  const uint64_t bits = random();
  if (bits % 2 == 0 || !std::isfinite(x)) return draw(random);
  const uint64_t steps = (bits >> 8 & 3) - 1;  // -1 to 2; wraps around
  const double near = std::bit_cast<double>(std::bit_cast<uint64_t>(x) + steps);
  return (bits >> 16 & 1) == 0 ? near : -near;
}

// Evaluates `texts`, expressions of type i64, for triples x, y, z of `inputs`.
std::vector<uint64_t> results_on(gpu::Device& device, const std::vector<std::string>& texts,
                                 const std::vector<double>& inputs) {
  const size_t count = inputs.size() / 3;
  std::string source;
  for (size_t i = 0; i < texts.size(); ++i)
    source += fmt::format(
        "KERNEL(64) number{}(GLOBAL u8* in_memory, i64 in_at, GLOBAL u8* out_memory, i64 out_at)"
        " {{\n  const u64 i = GROUP * 64 + THREAD;\n"
        "  GLOBAL const f64* in = (GLOBAL const f64*)(in_memory + in_at) + i * 3;\n"
        "  const f64 x = in[0], y = in[1], z = in[2];\n"
        "  ((GLOBAL i64*)(out_memory + out_at))[i * {} + {}] = {};\n}}\n",
        i, texts.size(), i, texts[i]);
  std::vector<uint64_t> results(count * texts.size());
  const auto in = device.allocate(inputs.size() * sizeof(double)),
             out = device.allocate(results.size() * sizeof(uint64_t));
  device.write(in->data, inputs.data(), in->bytes);
  const gpu::Program program = device.compile(source);
  for (size_t i = 0; i < texts.size(); ++i)
    device.launch(device.function(program, fmt::format("number{}", i)),
                  std::vector<void*>{in->data, out->data}, static_cast<int64_t>(count / 64), 64);
  device.read(results.data(), out->data, out->bytes);
  return results;
}

bool same(Kind kind, uint64_t a, uint64_t b) {
  if (kind == Kind::f64 && std::isnan(std::bit_cast<double>(a)))
    return std::isnan(std::bit_cast<double>(b));
  if (kind == Kind::f32 && std::isnan(std::bit_cast<float>(static_cast<uint32_t>(a))))
    return std::isnan(std::bit_cast<float>(static_cast<uint32_t>(b)));
  return a == b;
}

// Returns null and reports why if there is no device.
std::unique_ptr<gpu::Device> open_device() {
  try {
    return opencl::open_device();
  } catch (const Error& error) {
    testing::skipped(error.what());
    return nullptr;
  }
}
std::unique_ptr<gpu::Device> open_without_float64() {
  const test::NoFloat64 none;
  return open_device();
}

void check_operations(uint64_t seed, size_t count) {
  const auto hardware = open_device(), integers = open_without_float64();
  if (hardware == nullptr) return;
  std::mt19937_64 random(seed);
  std::vector<double> inputs;
  for (size_t i = 0; i < count; ++i) {
    const double x = draw(random), y = draw_near(random, x);
    inputs.insert(inputs.end(), {x, y, draw_near(random, x * y)});
  }
  std::vector<std::string> texts;
  for (const Operation& operation : operations) {
    constexpr std::array<const char*, 3> bits{"i64_of_f64", "(u32)i32_of_f32", ""};
    texts.push_back(
        fmt::format("{}({})", bits[static_cast<size_t>(operation.result)], operation.text));
  }
  const std::vector<uint64_t> want = results_on(*hardware, texts, inputs),
                              got = results_on(*integers, texts, inputs);
  for (size_t op = 0; op < std::size(operations); ++op) {
    int wrong = 0;
    for (size_t i = 0; i < count; ++i) {
      const size_t at = i * std::size(operations) + op;
      if (same(operations[op].result, want[at], got[at]) || wrong++ > 2) continue;
      MESSAGE(fmt::format("{} is {:#x}, not {:#x}, for x {:a}, y {:a}, z {:a}", operations[op].text,
                          got[at], want[at], inputs[3 * i], inputs[3 * i + 1], inputs[3 * i + 2]));
    }
    CHECK_MESSAGE(wrong == 0, std::string(operations[op].text));
  }
}

struct MathFunction {
  std::string_view name;
  long double (*exact)(long double);
  double ulps;
};
constexpr MathFunction held[] = {
    {"exp", std::exp, 2},     {"exp2", std::exp2, 2},   {"expm1", std::expm1, 3},
    {"log", std::log, 2},     {"log2", std::log2, 3},   {"log10", std::log10, 3},
    {"log1p", std::log1p, 3}, {"sin", std::sin, 2},     {"cos", std::cos, 2},
    {"tan", std::tan, 4},     {"asin", std::asin, 4},   {"acos", std::acos, 4},
    {"atan", std::atan, 3},   {"sinh", std::sinh, 4},   {"cosh", std::cosh, 4},
    {"tanh", std::tanh, 4},   {"asinh", std::asinh, 5}, {"acosh", std::acosh, 5},
    {"atanh", std::atanh, 4}, {"erf", std::erf, 3},     {"erfc", std::erfc, 8},
};

// A function with its exact value: those above, and other formulas against the C library in double.
struct Tested {
  std::string_view name;
  std::function<long double(long double)> exact;
  double ulps;
};
std::vector<Tested> tested_functions() {
  std::vector<Tested> all;
  for (const MathFunction& each : held) all.push_back({each.name, each.exact, each.ulps});
  for (const loop::F64Formula& formula : loop::f64_formulas()) {
    const OpDef* def = find_op(formula.name);
    const bool is_held =
        std::ranges::find(held, formula.name, &MathFunction::name) != std::end(held);
    if (is_held || def == nullptr || def->function == nullptr) continue;
    const auto in_double = [def](long double x) -> long double {
      return def->function(static_cast<double>(x));
    };
    all.push_back({def->name, in_double, 3});
  }
  return all;
}

// Returns the distance of `got` from `want` in ULPs of the double nearest to `want`.
double ulps_apart(double got, long double want) {
  if (std::isnan(want) || std::isnan(got))
    return std::isnan(want) && std::isnan(got) ? 0 : INFINITY;
  const auto nearest = static_cast<double>(want);
  if (std::signbit(got) != std::signbit(nearest)) return INFINITY;
  if (got == nearest) return 0;
  // The threshold of rounding to infinity is half a unit above the largest number.
  if (std::isinf(got) || std::isinf(nearest))
    return std::isfinite(got) ? std::fabs(got) > 0x1.ffffffffffff0p1023L ? 1 : INFINITY
           : std::fabs(want) > 0x1.ffffffffffff0p1023L ? 1
                                                       : INFINITY;
  const int exponent = std::max(std::ilogb(nearest == 0 ? 0x1p-1074 : nearest), -1022);
  return static_cast<double>(std::fabs(got - want) / std::ldexp(1.0L, exponent - 52));
}

void check_functions(uint64_t seed, size_t count) {
  const auto device = open_without_float64();
  if (device == nullptr) return;
  std::mt19937_64 random(seed);
  std::vector<double> inputs;
  for (size_t i = 0; i < count; ++i) {
    // The inputs cover the usual range of most functions, and all numbers.
    std::uniform_real_distribution<double> near(-2, 2), wide(-30, 30), widest(-750, 750);
    const double x = i % 4 == 0   ? near(random)
                     : i % 4 == 1 ? wide(random)
                     : i % 4 == 2 ? widest(random)
                                  : draw(random);
    const double y = i % 2 == 0 ? near(random) * 20 : draw(random);
    inputs.insert(inputs.end(), {x, y, std::fabs(x)});
  }
  std::vector<std::string> texts{"i64_of_f64(pow_f64(z, y))", "i64_of_f64(pow_f64(x, rint_f64(y)))",
                                 "i64_of_f64(atan2_f64(x, y))"};
  const std::vector<Tested> functions = tested_functions();
  for (const Tested& function : functions)
    texts.push_back(fmt::format("i64_of_f64({}_f64(x))", function.name));
  const std::vector<uint64_t> got = results_on(*device, texts, inputs);
  std::vector<std::pair<double, std::string>> worst(texts.size());
  for (size_t i = 0; i < count; ++i) {
    const double x = inputs[3 * i], y = inputs[3 * i + 1], z = inputs[3 * i + 2];
    auto compare = [&](size_t which, long double exact) {
      const auto result = std::bit_cast<double>(got[i * texts.size() + which]);
      const double apart = ulps_apart(result, exact);
      if (apart > worst[which].first)
        worst[which] = {
            apart, fmt::format("{}: {} ULP for x {:a}, y {:a}: {:a}, not {:a}", texts[which], apart,
                               x, y, result, static_cast<double>(exact))};
    };
    compare(0, std::pow(static_cast<long double>(z), static_cast<long double>(y)));
    // glibc's long double function is wrong for x = -inf and huge y.
    const double whole = std::rint(y);
    compare(1, std::isinf(x)
                   ? static_cast<long double>(std::pow(x, whole))
                   : std::pow(static_cast<long double>(x), static_cast<long double>(whole)));
    compare(2, std::atan2(static_cast<long double>(x), static_cast<long double>(y)));
    for (size_t f = 0; f < functions.size(); ++f) compare(3 + f, functions[f].exact(x));
  }
  constexpr double of_pow = 1, of_atan2 = 4;
  for (size_t which = 0; which < texts.size(); ++which) {
    INFO(worst[which].second);
    CHECK(worst[which].first <= (which < 2    ? of_pow
                                 : which == 2 ? of_atan2
                                              : functions[which - 3].ulps));
  }
}

// Integer powers are computed in float64 and truncated, so one unit too small is off by one.
void check_whole_powers() {
  const auto device = open_without_float64();
  if (device == nullptr) return;
  std::vector<double> inputs, want;
  for (int base = -256; base < 256; ++base) {
    double power = 1;
    for (int exponent = 0; exponent < 64; ++exponent, power *= base) {
      const bool exact = std::fabs(power) <= 0x1p53;
      inputs.insert(inputs.end(),
                    {static_cast<double>(base), exact ? static_cast<double>(exponent) : 0, 0});
      want.push_back(exact ? power : 1);
    }
  }
  const std::vector<uint64_t> got = results_on(*device, {"i64_of_f64(pow_f64(x, y))"}, inputs);
  int wrong = 0;
  for (size_t i = 0; i < want.size(); ++i) wrong += got[i] != std::bit_cast<uint64_t>(want[i]);
  CHECK(wrong == 0);
}
}  // namespace

TEST_SUITE("codegen float64") {
  TEST_CASE("float64 by integers has the bits of the hardware's") { check_operations(1, 1 << 15); }
  TEST_CASE("functions of float64 by integers are within a few ULP") {
    check_functions(1, 1 << 12);
  }
  TEST_CASE("powers of whole numbers by integers are exact") { check_whole_powers(); }
}
TEST_SUITE("slow codegen float64") {
  TEST_CASE("float64 by integers has the bits of the hardware's, of millions of numbers") {
    for (uint64_t seed = 2; seed < 66; ++seed) check_operations(seed, 1 << 18);
  }
  TEST_CASE("functions of float64 by integers are within a few ULP, of millions of numbers") {
    for (uint64_t seed = 2; seed < 10; ++seed) check_functions(seed, 1 << 17);
  }
}
