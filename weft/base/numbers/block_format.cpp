#include "weft/base/numbers/block_format.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/host/parallel.h"
#include "weft/base/numbers/dtype.h"
#include "weft/base/numbers/narrow.h"

namespace weft {
namespace {
constexpr int small = 32, large = 256;  // numbers per block; `large` in K formats

float half_at(const uint8_t* bytes) {
  return to_float(Half{static_cast<uint16_t>(bytes[0] | bytes[1] << 8)});
}
// Stores a number as float16 and returns what was stored.
float store_half(float number, uint8_t* bytes) {
  const auto half = narrow<Half>(number);
  bytes[0] = static_cast<uint8_t>(half.bits & 0xff);
  bytes[1] = static_cast<uint8_t>(half.bits >> 8);
  return to_float(half);
}

// Truncates to an integer within [low, high]; NaN becomes `low`.
int clamped(float number, int low, int high) {
  if (!(number > static_cast<float>(low))) return low;
  return number < static_cast<float>(high) ? static_cast<int>(number) : high;
}
int rounded(float number, int low, int high) { return clamped(std::round(number), low, high); }

// Reads and writes quants of 4 bits: the low nibbles of `each` bytes are the first `each` numbers.
int nibble(const uint8_t* bytes, int each, int i) {
  const int in_group = i % (2 * each), byte = bytes[i / (2 * each) * each + in_group % each];
  return in_group < each ? byte & 15 : byte >> 4;
}
void add_nibble(uint8_t* bytes, int each, int i, int q) {
  const int in_group = i % (2 * each);
  uint8_t& byte = bytes[i / (2 * each) * each + in_group % each];
  byte = static_cast<uint8_t>(byte | (q & 15) << (in_group < each ? 0 : 4));
}
float reciprocal_or_zero(float d) { return d == 0 ? 0 : 1 / d; }

// ---- formats of 32 numbers

void decode_q8_0(const uint8_t* block, float* numbers) {
  const float d = half_at(block);
  for (int i = 0; i < small; ++i)
    numbers[i] = d * static_cast<float>(static_cast<int8_t>(block[2 + i]));
}
void encode_q8_0(const float* numbers, uint8_t* block) {
  float most = 0;
  for (int i = 0; i < small; ++i) most = std::max(most, std::abs(numbers[i]));
  const float d = most / 127, inverse = reciprocal_or_zero(d);
  store_half(d, block);
  for (int i = 0; i < small; ++i)
    block[2 + i] = static_cast<uint8_t>(rounded(numbers[i] * inverse, -128, 127));
}

// A SmallFormat has blocks of 32 quants of `bits` bits: centred on zero (Q4_0, Q5_0), or with an
// offset, the least number of the block (Q4_1, Q5_1).
template <int bits, bool has_least>
struct SmallFormat {
  static constexpr int fifths = has_least ? 4 : 2, nibbles = fifths + (bits == 5 ? 4 : 0);
  static constexpr int levels = 1 << bits, bytes = nibbles + small / 2;

  static void decode(const uint8_t* block, float* numbers) {
    const float d = half_at(block), least = has_least ? half_at(block + 2) : 0;
    for (int i = 0; i < small; ++i) {
      int q = nibble(block + nibbles, small / 2, i);
      if (bits == 5) q |= (block[fifths + i / 8] >> (i % 8) & 1) << 4;
      numbers[i] =
          has_least ? d * static_cast<float>(q) + least : d * static_cast<float>(q - levels / 2);
    }
  }
  static void encode(const float* numbers, uint8_t* block) {
    std::fill_n(block, bytes, uint8_t{0});
    const std::span all(numbers, small);
    float d = 0, from = 0;
    if (has_least) {
      from = std::ranges::min(all);
      d = (std::ranges::max(all) - from) / (levels - 1);
      store_half(from, block + 2);
    } else {  // the number of the greatest magnitude becomes the quant that has no opposite
      const auto magnitude = [](float x) { return std::abs(x); };
      d = *std::ranges::max_element(all, {}, magnitude) / (-levels / 2);
    }
    store_half(d, block);
    const float inverse = reciprocal_or_zero(d);
    const float zero = has_least ? 0.5F : static_cast<float>(levels / 2) + 0.5F;
    for (int i = 0; i < small; ++i) {
      const int q = clamped((numbers[i] - from) * inverse + zero, 0, levels - 1);
      add_nibble(block + nibbles, small / 2, i, q);
      if (bits == 5)
        block[fifths + i / 8] = static_cast<uint8_t>(block[fifths + i / 8] | (q >> 4) << (i % 8));
    }
  }
};

// ---- K formats: 256 numbers in groups that have scales of their own

struct ScaleAndMin {
  int scale, min;
};
// Returns the scale and the min of a group, 6 bits each. Bytes 0 to 3 hold scales 0 to 3 and, in
// their upper two bits, the upper two bits of scales 4 to 7; bytes 4 to 7 hold the mins in the same
// way; bytes 8 to 11 hold the lower four bits of scales 4 to 7 and of mins 4 to 7.
ScaleAndMin scale_and_min(const uint8_t* packed, int group) {
  if (group < 4) return {packed[group] & 63, packed[group + 4] & 63};
  const int lower = packed[group + 4];
  return {(lower & 15) | packed[group - 4] >> 6 << 4, lower >> 4 | packed[group] >> 6 << 4};
}
void add_scale_and_min(uint8_t* packed, int group, ScaleAndMin of) {
  const auto add = [&](int at, int bits) { packed[at] = static_cast<uint8_t>(packed[at] | bits); };
  if (group < 4) {
    add(group, of.scale);
    add(group + 4, of.min);
  } else {
    add(group + 4, (of.scale & 15) | (of.min & 15) << 4);
    add(group - 4, of.scale >> 4 << 6);
    add(group, of.min >> 4 << 6);
  }
}

// Rounds to an integer within [low, high], ties to even. Adds a constant so large that float32 has
// no bits for the fraction, because such loops vectorize. Infinities and NaN give `low` or `high`.
float nearest_quant(float number, float low, float high) {
  constexpr float without_fractions = 0x1.8p23F;
  const float within = std::min(std::max(low, number), high);
  return (within + without_fractions) - without_fractions;
}

// A Line gives numbers as scale q - min, where q is an integer in [0, most].
struct Line {
  float scale = 0, min = 0;

  int quant(float number, int most) const {
    const float q = (number + min) * reciprocal_or_zero(scale);
    return static_cast<int>(nearest_quant(q, 0, static_cast<float>(most)));
  }
};

// A Fit has the squared error of a Line over the 32 numbers of a group, and the Line that linear
// regression fits to the same quants, with min >= 0.
struct Fit {
  float error = 0;
  Line refitted;
};
Fit fit(std::span<const float, 32> numbers, int most, const Line& line) {
  const float inverse = reciprocal_or_zero(line.scale), highest = static_cast<float>(most);
  std::array<float, 32> quants, errors;
  for (size_t i = 0; i < numbers.size(); ++i) {
    quants[i] = nearest_quant((numbers[i] + line.min) * inverse, 0, highest);
    const float off = line.scale * quants[i] - line.min - numbers[i];
    errors[i] = off * off;
  }
  constexpr float n = 32;
  float error = 0, sum_q = 0, sum_qq = 0, sum_x = 0, sum_qx = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    error += errors[i];
    sum_q += quants[i], sum_qq += quants[i] * quants[i];
    sum_x += numbers[i], sum_qx += quants[i] * numbers[i];
  }
  const float determinant = n * sum_qq - sum_q * sum_q;
  if (determinant <= 0) return {error, line};
  const float min = (sum_q * sum_qx - sum_qq * sum_x) / determinant;
  const float scale = min > 0 ? (n * sum_qx - sum_q * sum_x) / determinant : sum_qx / sum_qq;
  return {error, {std::max(scale, 0.0F), std::max(min, 0.0F)}};
}

// Searches for the line of least squared error: from several ranges, each refitted to the quants
// that it gives.
Line best_line(std::span<const float, 32> numbers, int most) {
  const float least = std::min(0.0F, std::ranges::min(numbers));
  const float range = std::ranges::max(numbers) - least;
  Line best{0, -least};
  if (range <= 0) return best;
  float best_error = HUGE_VALF;
  for (int shrink = -2; shrink <= 8; ++shrink) {
    Line line{range / (static_cast<float>(most) + 0.25F * static_cast<float>(shrink)), -least};
    for (int round = 0; round < 4; ++round) {
      const Fit found = fit(numbers, most, line);
      if (found.error < best_error) best_error = found.error, best = line;
      line = found.refitted;
    }
  }
  return best;
}

template <int bits>
struct LineFormat {  // Q4_K, Q5_K
  static constexpr int group = 32, groups = large / group, most = (1 << bits) - 1;
  static constexpr int scales = 4, fifths = 16, nibbles = fifths + (bits == 5 ? 32 : 0);
  static constexpr int bytes = nibbles + large / 2, most_scale = 63;

  static void decode(const uint8_t* block, float* numbers) {
    const float d = half_at(block), m = half_at(block + 2);
    for (int g = 0; g < groups; ++g) {
      const ScaleAndMin of = scale_and_min(block + scales, g);
      const float scale = d * static_cast<float>(of.scale), min = m * static_cast<float>(of.min);
      for (int i = 0; i < group; ++i) {
        int q = nibble(block + nibbles, group, g * group + i);
        if (bits == 5) q |= (block[fifths + i] >> g & 1) << 4;
        numbers[g * group + i] = scale * static_cast<float>(q) - min;
      }
    }
  }
  static void encode(const float* numbers, uint8_t* block) {
    std::fill_n(block, bytes, uint8_t{0});
    std::array<Line, groups> lines;
    float greatest_scale = 0, greatest_min = 0;
    for (int g = 0; g < groups; ++g) {
      lines[static_cast<size_t>(g)] = best_line(group_of(numbers, g), most);
      greatest_scale = std::max(greatest_scale, lines[static_cast<size_t>(g)].scale);
      greatest_min = std::max(greatest_min, lines[static_cast<size_t>(g)].min);
    }
    const float d = store_half(greatest_scale / most_scale, block);
    const float m = store_half(greatest_min / most_scale, block + 2);
    for (int g = 0; g < groups; ++g) {
      const auto of = group_of(numbers, g);
      const ScaleAndMin stored = nearest(of, lines[static_cast<size_t>(g)], d, m);
      add_scale_and_min(block + scales, g, stored);
      const Line line{d * static_cast<float>(stored.scale), m * static_cast<float>(stored.min)};
      for (int i = 0; i < group; ++i) {
        const int q = line.quant(of[static_cast<size_t>(i)], most);
        add_nibble(block + nibbles, group, g * group + i, q);
        if (bits == 5) block[fifths + i] = static_cast<uint8_t>(block[fifths + i] | (q >> 4) << g);
      }
    }
  }

 private:
  using Group = std::span<const float, group>;
  static Group group_of(const float* numbers, int g) { return Group(numbers + g * group, group); }
  // Returns the quantized scale and min of a group: of the rounded pair and its neighbours, the
  // pair of least squared error.
  static ScaleAndMin nearest(Group numbers, const Line& line, float d, float m) {
    const int scale = rounded(line.scale * reciprocal_or_zero(d), 0, most_scale);
    const int min = rounded(line.min * reciprocal_or_zero(m), 0, most_scale);
    ScaleAndMin best{scale, min};
    float best_error = HUGE_VALF;
    for (int s = std::max(scale - 1, 0); s <= std::min(scale + 1, most_scale); ++s)
      for (int t = std::max(min - 1, 0); t <= std::min(min + 1, most_scale); ++t) {
        const Line at{d * static_cast<float>(s), m * static_cast<float>(t)};
        if (const float error = fit(numbers, most, at).error; error < best_error)
          best_error = error, best = {s, t};
      }
    return best;
  }
};

struct Q6K {
  static constexpr int group = 16, groups = large / group, half = 128, zero = 32;
  static constexpr int pairs = large / 2, scales = pairs + large / 4, d_at = scales + groups;

  static void decode(const uint8_t* block, float* numbers) {
    const float d = half_at(block + d_at);
    for (int i = 0; i < large; ++i) {
      const int in_half = i % half, shift = in_half / 32 * 2;
      const int upper = block[pairs + i / half * 32 + i % 32] >> shift & 3;
      const int q = (nibble(block, half / 2, i) | upper << 4) - zero;
      const float scale = d * static_cast<float>(static_cast<int8_t>(block[scales + i / group]));
      numbers[i] = scale * static_cast<float>(q);
    }
  }
  static void encode(const float* numbers, uint8_t* block) {
    std::fill_n(block, d_at + 2, uint8_t{0});
    std::array<float, groups> best;
    for (int g = 0; g < groups; ++g)
      best[static_cast<size_t>(g)] = best_scale({numbers + g * group, group});
    const auto magnitude = [](float x) { return std::abs(x); };
    const float greatest = *std::ranges::max_element(best, {}, magnitude);
    const float d = store_half(greatest / -128, block + d_at), inverse = reciprocal_or_zero(d);
    for (int g = 0; g < groups; ++g) {
      const int s = rounded(best[static_cast<size_t>(g)] * inverse, -128, 127);
      block[scales + g] = static_cast<uint8_t>(s);
      const float to_quants = reciprocal_or_zero(d * static_cast<float>(s));
      for (int i = g * group; i < (g + 1) * group; ++i)
        add(block, i, rounded(numbers[i] * to_quants, -zero, zero - 1) + zero);
    }
  }

 private:
  static void add(uint8_t* block, int i, int q) {
    add_nibble(block, half / 2, i, q);
    uint8_t& upper = block[pairs + i / half * 32 + i % 32];
    upper = static_cast<uint8_t>(upper | (q >> 4) << (i % half / 32 * 2));
  }
  // Returns the scale s of least squared error of s q, where q is an integer in [-32, 31]. Each
  // trial scale maps the number of the greatest magnitude to within 1 of -32 or 31; the s that is
  // best for its quants q is a candidate.
  static float best_scale(std::span<const float> numbers) {
    const auto magnitude = [](float x) { return std::abs(x); };
    const float greatest = *std::ranges::max_element(numbers, {}, magnitude);
    float best = 0;
    float best_gain = 0;
    for (int step = -10; step <= 10; ++step)
      for (float end : {-32.0F, 31.0F}) {
        const float to_quants =
            (end + 0.1F * static_cast<float>(step)) * reciprocal_or_zero(greatest);
        float sum_qq = 0, sum_qx = 0;
        for (float number : numbers) {
          const float q = nearest_quant(number * to_quants, -zero, zero - 1);
          sum_qq += q * q, sum_qx += q * number;
        }
        // Sum (x - s q)^2 is least at s = sum qx / sum qq, by sum(qx)^2 / sum qq less than sum x^2.
        if (sum_qq > 0 && sum_qx * sum_qx / sum_qq > best_gain)
          best_gain = sum_qx * sum_qx / sum_qq, best = sum_qx / sum_qq;
      }
    return best;
  }
};

template <int bits, bool has_least>
constexpr BlockFormat small_format(std::string_view name, uint32_t gguf_type) {
  using Format = SmallFormat<bits, has_least>;
  return {name, gguf_type, small,          Format::bytes, BlockLayout::nibbles,
          bits, has_least, Format::decode, Format::encode};
}
template <int bits>
constexpr BlockFormat line_format(std::string_view name, uint32_t gguf_type) {
  using Format = LineFormat<bits>;
  return {name, gguf_type, large,          Format::bytes, BlockLayout::lines,
          bits, true,      Format::decode, Format::encode};
}
constexpr std::array formats{
    BlockFormat{"Q8_0", 8, small, 34, BlockLayout::bytes, 8, false, decode_q8_0, encode_q8_0},
    small_format<4, false>("Q4_0", 2),
    small_format<4, true>("Q4_1", 3),
    small_format<5, false>("Q5_0", 6),
    small_format<5, true>("Q5_1", 7),
    line_format<4>("Q4_K", 12),
    line_format<5>("Q5_K", 13),
    BlockFormat{"Q6_K", 14, large, 210, BlockLayout::sixes, 6, false, Q6K::decode, Q6K::encode},
};
}  // namespace

std::span<const BlockFormat> block_formats() { return formats; }

const BlockFormat& block_format(std::string_view name) {
  const auto* found = std::ranges::find(formats, name, &BlockFormat::name);
  const auto known = [] {
    std::string names;
    for (const BlockFormat& format : formats)
      names += fmt::format("{}{}", names.empty() ? "" : ", ", format.name);
    return names;
  };
  WEFT_CHECK(found != formats.end(), "unknown block format '{}'. Known: {}.", name, known());
  return *found;
}

const BlockFormat* find_block_format(uint32_t gguf_type) {
  const auto* found = std::ranges::find(formats, gguf_type, &BlockFormat::gguf_type);
  return found != formats.end() ? found : nullptr;
}

namespace {
// Calls `convert(i)` for each of the blocks after a check that both spans hold as many.
template <class Convert>
void for_each_block(const BlockFormat& format, size_t bytes, size_t numbers, Convert&& convert) {
  const auto block_bytes = static_cast<size_t>(format.bytes);
  const auto block_numbers = static_cast<size_t>(format.numbers);
  WEFT_ASSERT(bytes % block_bytes == 0 && bytes / block_bytes * block_numbers == numbers,
              "{} bytes of {} are not {} numbers", bytes, format.name, numbers);
  parallel_for(static_cast<int64_t>(bytes / block_bytes), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) convert(i * format.bytes, i * format.numbers);
  });
}
}  // namespace

void decode_blocks(const BlockFormat& format, std::span<const std::byte> blocks,
                   std::span<float> numbers) {
  const auto* from = reinterpret_cast<const uint8_t*>(blocks.data());
  for_each_block(format, blocks.size(), numbers.size(), [&](int64_t byte, int64_t number) {
    format.decode(from + byte, numbers.data() + number);
  });
}

void encode_blocks(const BlockFormat& format, std::span<const float> numbers,
                   std::span<std::byte> blocks) {
  auto* to = reinterpret_cast<uint8_t*>(blocks.data());
  for_each_block(format, blocks.size(), numbers.size(), [&](int64_t byte, int64_t number) {
    format.encode(numbers.data() + number, to + byte);
  });
}

}  // namespace weft
