// Tests block formats against the values and the bytes of the `gguf` package
// (tests/reference/make_gguf.py) and, for the quantizers of K formats, against bounds on their
// error.
#include "weft/base/numbers/block_format.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include <doctest/doctest.h>

#include "tests/io/helpers.h"
#include "tests/support/gguf_reference.h"
#include "tests/support/values.h"
#include "weft/io/gguf.h"

using namespace weft;
using namespace weft::test;
using namespace weft::testing;

namespace {
std::vector<float> decoded(const BlockFormat& format, std::span<const std::byte> blocks) {
  std::vector<float> numbers(blocks.size() / static_cast<size_t>(format.bytes) *
                             static_cast<size_t>(format.numbers));
  decode_blocks(format, blocks, numbers);
  return numbers;
}
std::vector<std::byte> encoded(const BlockFormat& format, std::span<const float> numbers) {
  std::vector<std::byte> blocks(numbers.size() / static_cast<size_t>(format.numbers) *
                                static_cast<size_t>(format.bytes));
  encode_blocks(format, numbers, blocks);
  return blocks;
}

// Returns the root mean square of the differences, relative to that of the numbers.
double relative_error(std::span<const float> numbers, std::span<const float> back) {
  double off = 0, all = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    off += std::pow(static_cast<double>(numbers[i]) - back[i], 2);
    all += std::pow(static_cast<double>(numbers[i]), 2);
  }
  return all > 0 ? std::sqrt(off / all) : off;
}
}  // namespace

TEST_CASE("blocks of every format decode to the bits of the gguf package") {
  const io::Gguf file = io::Gguf::open(reference_gguf);
  for (const BlockFormat& format : block_formats()) {
    INFO(format.name);
    const auto* entry = file.find(fmt::format("blocks.{}", format.name));
    REQUIRE(entry != nullptr);
    CHECK(entry->format == &format);
    CHECK(same_bits(decoded(format, file.bytes(*entry)), gguf_numbers(entry->name)));
  }
}

TEST_CASE("formats of 32 numbers encode to the bytes of the gguf package") {
  const std::vector<float> numbers = floats_of_hex(gguf_results()["to_quantize"]);
  size_t tried = 0;
  for (const auto& [name, bytes] : gguf_results()["quantized"].items()) {
    INFO(name);
    CHECK(encoded(block_format(name), numbers) == bytes_of_hex(bytes));
    ++tried;
  }
  CHECK(tried == 5);
}

TEST_CASE("K formats encode more exactly than evenly spaced levels over the range of each group") {
  Random random(3);
  std::vector<float> numbers(64 * 256);
  for (float& number : numbers)  // the sum of twelve uniform numbers is nearly normal
    for (int i = 0; i < 12; ++i) number += static_cast<float>(random.unit() - 0.5);
  // Scales of groups differ, as those of weights do.
  for (size_t i = 0; i < numbers.size(); ++i)
    numbers[i] *= 0.02F * static_cast<float>(1 + i / 32 % 5);
  struct Case {
    std::string_view name;
    size_t group;
    int levels;
    bool has_least;
  };
  for (const auto& [name, group, levels, has_least] :
       {Case{"Q4_K", 32, 16, true}, Case{"Q5_K", 32, 32, true}, Case{"Q6_K", 16, 64, false}}) {
    INFO(name);
    // The levels' ends are the least and the greatest number, with exact scales.
    std::vector<float> even;
    for (size_t at = 0; at < numbers.size(); at += group) {
      const std::span<const float> of(numbers.data() + at, group);
      const auto [low, high] = std::ranges::minmax(of);
      const float from = has_least ? low : -std::max(-low, high);
      const float step = ((has_least ? high : -from) - from) / static_cast<float>(levels - 1);
      for (float number : of) even.push_back(from + step * std::round((number - from) / step));
    }
    const BlockFormat& format = block_format(name);
    const double error = relative_error(numbers, decoded(format, encoded(format, numbers)));
    CHECK(error < relative_error(numbers, even));
    CHECK(error > relative_error(numbers, even) / 2);  // no format of as many bits does that
  }
}

TEST_CASE("formats encode zeros, one sign, constants and outliers") {
  std::vector<std::vector<float>> rows(6, std::vector<float>(256));
  for (size_t i = 0; i < 256; ++i) {
    rows[1][i] = static_cast<float>(i % 9 + 1);
    rows[2][i] = -static_cast<float>(i % 9 + 1);
    rows[3][i] = -0.375F;
    rows[4][i] = i == 77 ? 1000.0F : static_cast<float>(i % 3);
    rows[5][i] = 1e-30F * static_cast<float>(i);  // below what float16 scales express
  }
  for (const BlockFormat& format : block_formats())
    for (size_t row = 0; row < rows.size(); ++row) {
      INFO(format.name << " row " << row);
      const std::vector<float> back = decoded(format, encoded(format, rows[row]));
      for (float number : back) CHECK(std::isfinite(number));
      if (row == 0 || row == 5)
        for (float number : back) CHECK(number == 0);
      if (row >= 1 && row <= 4) CHECK(relative_error(rows[row], back) < 0.09);
    }
}

TEST_CASE("K formats encode what they decoded to nearly the same numbers") {
  const io::Gguf file = io::Gguf::open(reference_gguf);
  for (std::string_view name : {"Q4_K", "Q5_K", "Q6_K"}) {
    INFO(name);
    const BlockFormat& format = block_format(name);
    const auto* entry = file.find(fmt::format("blocks.{}", name));
    const std::vector<float> numbers = decoded(format, file.bytes(*entry));
    const double error = relative_error(numbers, decoded(format, encoded(format, numbers)));
    INFO(error);
    CHECK(error < 0.02);
  }
}

TEST_CASE("formats are found by name and by their number in files") {
  for (const BlockFormat& format : block_formats()) {
    CHECK(&block_format(format.name) == &format);
    CHECK(find_block_format(format.gguf_type) == &format);
  }
  CHECK(find_block_format(0) == nullptr);
  CHECK(error_of([] { block_format("Q3_K"); }) ==
        "usage: unknown block format 'Q3_K'. Known: Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, "
        "Q6_K.");
}
