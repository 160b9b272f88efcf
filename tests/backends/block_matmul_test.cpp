// Tests the CPU's product by a matrix in blocks. WEFT_ISA selects the instruction set
// (tools/test_isa.sh).
#include <cmath>
#include <cstring>

#include <doctest/doctest.h>

#include "tests/support/planned.h"
#include "tests/support/values.h"
#include "weft/base/host/parallel.h"
#include "weft/base/numbers/block_format.h"
#include "weft/device/registry.h"
#include "weft/ir/plan.h"
#include "weft/ops/blocks.h"
#include "weft/runtime/executable.h"
#include "weft/tensor/compile.h"

namespace weft::testing {
namespace {
std::vector<float> sine_numbers(size_t count, int seed) {
  std::vector<float> all(count);
  for (size_t i = 0; i < count; ++i)
    all[i] = std::sin(static_cast<float>(i) * 0.7F + static_cast<float>(seed)) *
             (1 + static_cast<float>(i % 7));
  return all;
}

// Weight is a matrix [n, k] in blocks.
struct Weight {
  std::vector<std::byte> bytes;
  std::vector<float> decoded;
  Tensor tensor;

  Weight(const BlockFormat& format, int64_t n, int64_t blocks)
      : bytes(static_cast<size_t>(n * blocks * format.bytes)),
        decoded(static_cast<size_t>(n * blocks * format.numbers)) {
    encode_blocks(format, sine_numbers(decoded.size(), 3), bytes);
    decode_blocks(format, bytes, decoded);
    tensor = tensor_over(nullptr, bytes.data(), {DType::u8, {n, blocks, format.bytes}});
  }
};

// Returns the product on the CPU, which must be one launch of the kernel.
std::vector<double> block_product(const Tensor& x, const Tensor& w, const BlockFormat& format,
                                  DType activations = DType::f32) {
  auto step = compile(
      [&](Tensor a, Tensor b) {
        return matmul_blocks(a, b, format.name, {.activations = activations});
      },
      {.device = "cpu"});
  const std::vector<Type> types = {x.type(), w.type()};
  const Plan& plan = step.prepare(types).plan();
  REQUIRE(plan.launches.size() == 1);
  REQUIRE(plan.launches[0].kernel ==
          (activations == DType::i8 ? "weft:matmul_blocks_int8" : "weft:matmul_blocks"));
  return step(x, w).to_doubles();
}

// Rounds x [m, k] to int8 as matmul_blocks does, in the order of its definition.
std::vector<double> rounded(const std::vector<double>& x) {
  std::vector<double> result(x.size());
  for (size_t from = 0; from < x.size(); from += 32) {
    float most = 0;
    for (size_t i = from; i < from + 32; ++i)
      most = std::max(most, std::abs(static_cast<float>(x[i])));
    const float scale = most / 127, inverse = most > 0x1p-100F ? 127 / most : 0;
    for (size_t i = from; i < from + 32; ++i)
      result[i] = std::nearbyint(static_cast<float>(x[i]) * inverse) * scale;
  }
  return result;
}

// Returns the greatest difference between a float32 product and the exact sum of its k terms, whose
// magnitudes sum to `size`.
double rounding(DType activations, double size, int64_t k) {
  const auto terms = static_cast<double>(k);
  // With int8 activations, each group of 16 or 32 is summed exactly. With float32, each lane sums a
  // sixteenth of the terms or more, in order.
  return size * 0x1p-24 * (activations == DType::i8 ? 8 + terms / 16 : 4 + terms / 4);
}

void check_block_product(const BlockFormat& format, DType dtype, int64_t m, int64_t n,
                         int64_t blocks, DType activations = DType::f32) {
  CAPTURE(format.name);
  CAPTURE(name(dtype));
  CAPTURE(m);
  CAPTURE(n);
  CAPTURE(blocks);
  const int64_t k = blocks * format.numbers;
  const Weight weight(format, n, blocks);
  const Tensor x = cast(tensor(sine_numbers(static_cast<size_t>(m * k), 1), {m, k}), dtype);
  const std::vector<double> got = block_product(x, weight.tensor, format, activations);
  std::vector<double> rows = x.to_doubles();
  if (activations == DType::i8) rows = rounded(rows);
  const double unit = dtype == DType::f32 ? 0 : dtype == DType::f16 ? 0x1p-10 : 0x1p-7;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0, size = 0;
      for (int64_t at = 0; at < k; ++at) {
        const double term =
            rows[static_cast<size_t>(i * k + at)] * weight.decoded[static_cast<size_t>(j * k + at)];
        sum += term, size += std::abs(term);
      }
      const double off = std::abs(got[static_cast<size_t>(i * n + j)] - sum);
      REQUIRE(off <= rounding(activations, size, k) + std::abs(sum) * unit);
    }
}
}  // namespace

TEST_CASE("the product of int8 activations agrees with rounded rows in every format") {
  for (const BlockFormat& format : block_formats())
    for (int64_t m : {1, 2, 4, 5, 8, 9, 16, 23})
      for (int64_t n : {1, 13, 32}) check_block_product(format, DType::f32, m, n, 3, DType::i8);
}

TEST_CASE("the product of int8 activations agrees around tiles and ranges, in every type") {
  const BlockFormat &small = block_format("Q5_1"), &large = block_format("Q6_K");
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (int64_t m : {1, 7, 18})
      for (int64_t n : {3, 4, 7, 8, 15, 16, 17, 50}) {
        check_block_product(small, dtype, m, n, 1, DType::i8);
        check_block_product(small, dtype, m, n, 33, DType::i8);
        check_block_product(large, dtype, m, n, 5, DType::i8);
      }
  check_block_product(small, DType::f32, 40, 300, 70,
                      DType::i8);  // rows that several threads round
}

TEST_CASE("integer products of the greatest quants do not overflow") {
  const BlockFormat& format = block_format("Q8_0");
  constexpr int64_t n = 16, blocks = 64, k = blocks * 32;
  for (int sign : {-1, 1}) {
    Weight weight(format, n, blocks);
    for (int64_t block = 0; block < n * blocks; ++block) {
      std::byte* at = weight.bytes.data() + block * format.bytes;
      at[0] = std::byte{0}, at[1] = std::byte{0x3c};  // a scale of 1
      std::fill_n(at + 2, 32, std::byte{0x80});       // -128
    }
    const std::vector<float> x(k, static_cast<float>(127 * sign));
    const std::vector<double> got =
        block_product(tensor(x, {1, k}), weight.tensor, format, DType::i8);
    for (double sum : got) CHECK(sum == -128.0 * 127 * k * sign);
  }
}

TEST_CASE("int8 activations of tiny, infinite and missing numbers") {
  const BlockFormat& format = block_format("Q4_0");
  const Weight weight(format, 20, 2);
  const auto with = [&](float odd, size_t at) {
    std::vector<float> x(64, 1);
    x[at] = odd;
    return block_product(tensor(x, {1, 64}), weight.tensor, format, DType::i8);
  };
  for (float odd : {HUGE_VALF, -HUGE_VALF, NAN})
    for (double sum : with(odd, 40)) CHECK(std::isnan(sum));
  const std::vector<float> tiny(64, 0x1p-120F), none(64, 0);
  for (const std::vector<float>& x : {tiny, none})
    for (double sum : block_product(tensor(x, {1, 64}), weight.tensor, format, DType::i8))
      CHECK(sum == 0);
  for (double sum : with(1e30F, 3)) CHECK(std::isfinite(sum));
}

TEST_CASE("the product agrees with decoded numbers for every format and number of rows") {
  for (const BlockFormat& format : block_formats())
    for (int64_t m : {1, 2, 3, 4, 5, 16, 17, 23}) check_block_product(format, DType::f32, m, 13, 2);
}

TEST_CASE("the product agrees at extents around tiles, ranges and groups, in every type") {
  const BlockFormat &small = block_format("Q5_1"), &large = block_format("Q6_K");
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (int64_t m : {1, 7, 18})
      for (int64_t n : {1, 2, 6, 7, 50}) {
        check_block_product(small, dtype, m, n, 1);
        check_block_product(small, dtype, m, n, 17);
        check_block_product(large, dtype, m, n, 3);
      }
  check_block_product(small, DType::f32, 20, 500, 70);  // several groups of columns
}

TEST_CASE("a row has the same bits among 40 rows, alone, and on any number of threads") {
  for (DType activations : {DType::f32, DType::i8}) {
    const BlockFormat& format = block_format("Q4_K");
    const int64_t blocks = 5, k = blocks * format.numbers, n = 301;
    const Weight weight(format, n, blocks);
    const Tensor all = tensor(sine_numbers(static_cast<size_t>(40 * k), 1), {40, k});
    const std::vector<double> together = block_product(all, weight.tensor, format, activations);
    const int before = thread_count();
    for (int threads : {1, 2, 3}) {
      set_thread_count(threads);
      for (int64_t rows : {1, 3, 16, 40}) {
        CAPTURE(threads);
        CAPTURE(rows);
        const std::vector<double> got =
            block_product(slice(all, 0, 40 - rows, 40), weight.tensor, format, activations);
        const bool same = std::equal(got.begin(), got.end(), together.end() - rows * n);
        CHECK(same);
      }
    }
    set_thread_count(before);
  }
}

}  // namespace weft::testing
