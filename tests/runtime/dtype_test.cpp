// Tests number types: stores round to nearest, and operations refuse types that are only stored.
#include "weft/base/numbers/dtype.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/values.h"
#include "weft/base/error.h"
#include "weft/ops/ops.h"
#include "weft/tensor/tensor.h"

using namespace weft;
using namespace weft::testing;

namespace {
constexpr DType narrow_types[] = {DType::f8_e4m3, DType::f8_e5m2, DType::f16, DType::bf16};

double rounded(double number, DType dtype) {
  uint16_t bits = 0;
  store(&bits, dtype, 0, number);
  return load(&bits, dtype, 0);
}

// Returns all numbers of a type in ascending order, without NaNs and with one zero.
std::vector<double> numbers_of(DType dtype) {
  std::vector<double> all;
  const FloatFormat& format = info(dtype).format;
  for (uint64_t bits = 0; bits < uint64_t{1} << info(dtype).bits; ++bits)
    if (const double number = from_bits(bits, format); !std::isnan(number)) all.push_back(number);
  std::ranges::sort(all);
  all.erase(std::ranges::unique(all).begin(), all.end());
  return all;
}
}  // namespace

// Sources: OCP 8-bit Floating Point Specification (2023), tables 1 and 2; IEEE 754 binary16.
TEST_CASE("formats have the limits of their standards") {
  struct Extremes {
    DType dtype;
    double largest, least_normal, least;
  };
  for (const auto& [dtype, largest, least_normal, least] :
       {Extremes{DType::f8_e4m3, 448, 0x1p-6, 0x1p-9},
        Extremes{DType::f8_e5m2, 57344, 0x1p-14, 0x1p-16},
        Extremes{DType::f16, 65504, 0x1p-14, 0x1p-24},
        Extremes{DType::bf16, 0x1.fep127, 0x1p-126, 0x1p-133}}) {
    CAPTURE(name(dtype));
    const std::vector<double> numbers = numbers_of(dtype);
    const auto zero = std::ranges::lower_bound(numbers, 0.0);
    CHECK(*(zero + 1) == least);
    const bool has_infinities = std::isinf(numbers.back());
    CHECK(has_infinities == (dtype != DType::f8_e4m3));
    CHECK(*(numbers.end() - (has_infinities ? 2 : 1)) == largest);
    CHECK(std::ldexp(1.0, info(dtype).format.least_exponent()) == least_normal);
    CHECK(std::isnan(rounded(std::numeric_limits<double>::quiet_NaN(), dtype)));
  }
  CHECK(rounded(HUGE_VAL, DType::f8_e4m3) == 448);
  CHECK(rounded(-1e30, DType::f8_e4m3) == -448);
  CHECK(rounded(-61440, DType::f8_e5m2) == -HUGE_VAL);
}

TEST_CASE("conversions round to nearest with ties to even") {
  Random random(1);
  for (const DType dtype : narrow_types) {
    CAPTURE(name(dtype));
    const std::vector<double> numbers = numbers_of(dtype);
    for (size_t i = 0; i + 1 < numbers.size(); ++i) {
      const double low = numbers[i], high = numbers[i + 1];
      if (std::isinf(low) || std::isinf(high)) continue;
      if (numbers.size() > 1000 && random.below(16) != 0) continue;
      const double half = low + (high - low) / 2;
      CHECK(rounded(low, dtype) == low);
      CHECK(rounded(std::nextafter(half, low), dtype) == low);
      CHECK(rounded(std::nextafter(half, high), dtype) == high);
      const bool low_is_even = to_bits(low, info(dtype).format) % 2 == 0;
      CHECK(rounded(half, dtype) == (low_is_even ? low : high));
    }
  }
}

TEST_CASE("storage-only types are moved and cast and refused elsewhere") {
  const Tensor x = tensor(std::vector<float>{1, -0.3F, 500, 0.001F, -448, 0}, {2, 3});
  const Tensor stored = cast(x, DType::f8_e4m3);
  const Tensor back = cast(transpose(stored), DType::f32);
  const std::vector<double> got = back.to_doubles();
  const std::vector<double> want{1, 0.001953125, -0.3125, -448};
  CHECK(std::vector<double>(got.begin(), got.begin() + 4) == want);
  CHECK(got[4] == 448);
  CHECK(got[5] == 0);
  try {
    (void)(stored + stored);
    FAIL("added");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    CHECK(std::string_view(error.what())
              .find("[add] numbers are only stored in f8_e4m3. Hint: cast(x, DType::f32).") !=
          std::string_view::npos);
  }
}
