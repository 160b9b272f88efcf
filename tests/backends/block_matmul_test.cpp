// The CPU's product by a matrix in blocks. WEFT_ISA selects the instruction set
// (tools/test_isa.sh).
#include <cmath>
#include <cstring>

#include <doctest/doctest.h>

#include "tests/support/planned.h"
#include "tests/support/values.h"
#include "weft/base/block_format.h"
#include "weft/base/parallel.h"
#include "weft/device/registry.h"
#include "weft/ir/plan.h"
#include "weft/ops/blocks.h"
#include "weft/runtime/executable.h"
#include "weft/tensor/compile.h"

namespace weft::testing {
namespace {
std::vector<float> numbers(size_t count, int seed) {
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
    encode_blocks(format, numbers(decoded.size(), 3), bytes);
    decode_blocks(format, bytes, decoded);
    tensor = tensor_over(nullptr, bytes.data(), {DType::u8, {n, blocks, format.bytes}});
  }
};

// Returns the product on the CPU, which must be one launch of the kernel.
std::vector<double> product(const Tensor& x, const Tensor& w, const BlockFormat& format) {
  auto step = compile([&](Tensor a, Tensor b) { return matmul_blocks(a, b, format.name); },
                      {.device = "cpu"});
  const std::vector<Type> types = {x.type(), w.type()};
  const Plan& plan = step.prepare(types).plan();
  REQUIRE(plan.launches.size() == 1);
  REQUIRE(plan.launches[0].kernel == "weft:matmul_blocks");
  return step(x, w).to_doubles();
}

void check(const BlockFormat& format, DType dtype, int64_t m, int64_t n, int64_t blocks) {
  CAPTURE(format.name);
  CAPTURE(name(dtype));
  CAPTURE(m);
  CAPTURE(n);
  CAPTURE(blocks);
  const int64_t k = blocks * format.numbers;
  const Weight weight(format, n, blocks);
  const Tensor x = cast(tensor(numbers(static_cast<size_t>(m * k), 1), {m, k}), dtype);
  const std::vector<double> rows = x.to_doubles(), got = product(x, weight.tensor, format);
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
      // Each lane sums a sixteenth of the terms or more, in order.
      REQUIRE(off <= size * 0x1p-24 * (4 + static_cast<double>(k) / 4) + std::abs(sum) * unit);
    }
}
}  // namespace

TEST_CASE("the product agrees with decoded numbers for every format and number of rows") {
  for (const BlockFormat& format : block_formats())
    for (int64_t m : {1, 2, 3, 4, 5, 16, 17, 23}) check(format, DType::f32, m, 13, 2);
}

TEST_CASE("the product agrees at extents around tiles, ranges and groups, in every type") {
  const BlockFormat &small = block_format("Q5_1"), &large = block_format("Q6_K");
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (int64_t m : {1, 7, 18})
      for (int64_t n : {1, 2, 6, 7, 50}) {
        check(small, dtype, m, n, 1);
        check(small, dtype, m, n, 17);
        check(large, dtype, m, n, 3);
      }
  check(small, DType::f32, 20, 500, 70);  // several groups of columns
}

TEST_CASE("a row has the same bits among 40 rows, alone, and on any number of threads") {
  const BlockFormat& format = block_format("Q4_K");
  const int64_t blocks = 5, k = blocks * format.numbers, n = 301;
  const Weight weight(format, n, blocks);
  const Tensor all = tensor(numbers(static_cast<size_t>(40 * k), 1), {40, k});
  const std::vector<double> together = product(all, weight.tensor, format);
  const int before = thread_count();
  for (int threads : {1, 2, 3}) {
    set_thread_count(threads);
    for (int64_t rows : {1, 3, 16, 40}) {
      CAPTURE(threads);
      CAPTURE(rows);
      const std::vector<double> got = product(slice(all, 0, 40 - rows, 40), weight.tensor, format);
      const bool same = std::equal(got.begin(), got.end(), together.end() - rows * n);
      CHECK(same);
    }
  }
  set_thread_count(before);
}

}  // namespace weft::testing
