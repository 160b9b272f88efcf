// A team of 32 threads computes a few neighbouring columns. Each thread decodes a unit (some
// numbers of a block) of these columns at a time and multiplies all rows by it, then the team adds
// its sums. In a grouped product a team has one row, and its columns are in the matrix of that
// row's group.
#include "weft/backends/gpu/block_matmul.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "weft/backends/gpu/kernel_text.h"
#include "weft/base/error.h"
#include "weft/base/numbers/block_format.h"
#include "weft/base/numbers/rounding.h"
#include "weft/codegen/gpu_scalar.h"
#include "weft/ir/op_def.h"

namespace weft::gpu {
namespace {
constexpr int threads = 128, team = 32;
constexpr int64_t most_rows = 16, most_grouped_rows = 64;
constexpr int64_t few_rows = 2;  // up to these, one column per team: more teams hide latency

// A Layout says how a thread decodes a unit of block `b` to `to`. The unit's number in the block,
// `part`, is known at run time. `places` are the positions in the block at which the unit's runs of
// four neighbours begin.
struct Layout {
  int count;  // numbers of a unit
  std::vector<const char*> places;
  const char* decode;
};

constexpr const char* decode_bytes = R"(
  const f32 d = $prefix_half(b);
  for (i32 h = 0; h < 2; ++h) {
    const u32 word = $prefix_word(b + 2 + part * 8 + h * 4);
    for (i32 e = 0; e < 4; ++e) to[h * 4 + e] = d * (f32)(i8)(word >> 8 * e);
  })";
constexpr const char* decode_nibbles = R"(
  const f32 d = $prefix_half(b);
  const f32 least = $least;
  const u32 word = $prefix_word(b + $nibbles + part * 4);
  const u32 fifths = $fifths;
  for (i32 e = 0; e < 4; ++e) {
    const u32 low = word >> 8 * e & 15 | (fifths >> part * 4 + e & 1) << 4;
    const u32 high = word >> 8 * e + 4 & 15 | (fifths >> part * 4 + e + 16 & 1) << 4;
    to[e] = d * (f32)low + least;
    to[4 + e] = d * (f32)high + least;
  })";
// Groups of 32 numbers have a scale and a minimum of 6 bits each, whose upper bits are apart for
// the last four groups.
constexpr const char* decode_lines = R"(
  const i32 pair = part / 4, at = part % 4 * 8;
  const f32 d = $prefix_half(b), m = $prefix_half(b + 2);
  for (i32 side = 0; side < 2; ++side) {
    const i32 group = pair * 2 + side;
    const i32 scale = group < 4 ? b[4 + group] & 63 : b[8 + group] & 15 | b[group] >> 6 << 4;
    const i32 min = group < 4 ? b[8 + group] & 63 : b[8 + group] >> 4 | b[4 + group] >> 6 << 4;
    const f32 factor = d * (f32)scale, least = -m * (f32)min;
    for (i32 h = 0; h < 2; ++h) {
      const u32 word = $prefix_word(b + $nibbles + pair * 32 + at + h * 4) >> 4 * side;
      const u32 fifths = $fifths;
      for (i32 e = 0; e < 4; ++e)
        to[side * 8 + h * 4 + e] =
            factor * (f32)(word >> 8 * e & 15 | (fifths >> 8 * e & 1) << 4) + least;
    }
  })";
constexpr const char* decode_sixes = R"(
  const i32 side = part / 8, at = part % 8 * 4;
  const f32 d = $prefix_half(b + 208);
  const u32 upper = $prefix_word(b + 128 + side * 32 + at);
  for (i32 place = 0; place < 4; ++place) {
    const u32 word = $prefix_word(b + side * 64 + place % 2 * 32 + at) >> place / 2 * 4;
    const f32 scale = d * (f32)(i8)b[192 + side * 8 + place * 2 + at / 16];
    for (i32 e = 0; e < 4; ++e)
      to[place * 4 + e] =
          scale * (f32)((i32)(word >> 8 * e & 15 | (upper >> 8 * e + place * 2 & 3) << 4) - 32);
  })";

Layout layout_of(const BlockFormat& format) {
  switch (format.layout) {
    case BlockLayout::bytes:
      return {8, {"part * 8", "part * 8 + 4"}, decode_bytes};
    case BlockLayout::nibbles:
      return {8, {"part * 4", "part * 4 + 16"}, decode_nibbles};
    case BlockLayout::lines:
      return {16,
              {"part / 4 * 64 + part % 4 * 8", "part / 4 * 64 + part % 4 * 8 + 4",
               "part / 4 * 64 + part % 4 * 8 + 32", "part / 4 * 64 + part % 4 * 8 + 36"},
              decode_lines};
    case BlockLayout::sixes:
      return {16,
              {"part / 8 * 128 + part % 8 * 4", "part / 8 * 128 + part % 8 * 4 + 32",
               "part / 8 * 128 + part % 8 * 4 + 64", "part / 8 * 128 + part % 8 * 4 + 96"},
              decode_sixes};
  }
  WEFT_ASSERT(false, "no layout of blocks: {}", static_cast<int>(format.layout));
}

constexpr const char* helpers = R"(
typedef struct __attribute__((aligned(4 * sizeof($element)))) { $element at[4]; } $prefix_four;
DEVICE u32 $prefix_word(GLOBAL const u8* from) { return $word; }
DEVICE f32 $prefix_half(GLOBAL const u8* from) {
  return f16_to_f32(READ_ONLY((GLOBAL const u16*)from));
}
DEVICE void $prefix_decode(GLOBAL const u8* b, i32 part, f32* to) {$decode
}
)";
constexpr const char* whole_word = "READ_ONLY((GLOBAL const u32*)from)";
constexpr const char* half_words =
    "READ_ONLY((GLOBAL const u16*)from) | (u32)READ_ONLY((GLOBAL const u16*)(from + 2)) << 16";

constexpr const char* begin = R"(
  GLOBAL const u8* w = $w;
  GLOBAL const $element* x = $x;
  GLOBAL $element* out = $out;
  const i32 lane = (i32)THREAD % $team, member = (i32)THREAD / $team;
  const i32 first = ((i32)GROUP % $tiles * ($threads / $team) + member) * $own;
)";
// Rows after the rows of all groups have results of zero; their expert is one after the last.
constexpr const char* begin_grouped = R"(
  GLOBAL const $count* counts = $counts;
  const i64 row = (i32)GROUP / $tiles;
  i64 before = 0;
  i32 expert = 0;
  for (; expert < $experts; ++expert) {
    before += counts[expert] > 0 ? (i64)counts[expert] : 0;
    if (before > row) break;
  }
  x += row * $depth;
  out += row * $columns;
  w += (i64)expert * $columns * $blocks * $bytes;
  const i32 units = expert < $experts ? $units : 0;
)";
constexpr const char* multiply = R"(
  f32 sums[$own][$rows];
  for (i32 c = 0; c < $own; ++c)
    for (i32 r = 0; r < $rows; ++r) sums[c][r] = 0.0f;
#pragma unroll $unrolled
  for (i32 unit = lane; unit < $present; unit += $team) {
    const i32 block = unit / $parts, part = unit % $parts;
    f32 numbers[$own][$unit];
#pragma unroll
    for (i32 c = 0; c < $own; ++c) {
      const i64 column = first + c < $columns ? first + c : $columns - 1;
      $prefix_decode(w + (column * $blocks + block) * $bytes, part, numbers[c]);
    }
    const i32 places[$runs] = {$places};
#pragma unroll
    for (i32 r = 0; r < $rows; ++r)
#pragma unroll
      for (i32 run = 0; run < $runs; ++run) {
        const $prefix_four four =
            *(GLOBAL const $prefix_four*)(x + (i64)r * $depth + block * $numbers + places[run]);
#pragma unroll
        for (i32 e = 0; e < 4; ++e) {
          const f32 value = $loaded;
#pragma unroll
          for (i32 c = 0; c < $own; ++c)
            sums[c][r] = fmaf(value, numbers[c][run * 4 + e], sums[c][r]);
        }
      }
  }
)";
constexpr const char* add_by_shuffles = R"(
#pragma unroll
  for (i32 c = 0; c < $own; ++c)
#pragma unroll
    for (i32 r = 0; r < $rows; ++r) {
      f32 sum = sums[c][r];
#pragma unroll
      for (i32 distance = $team / 2; distance > 0; distance /= 2)
        sum += SHUFFLE_DOWN(sum, distance, $team);
      if (lane == 0 && first + c < $columns) out[r * $columns + first + c] = $stored;
    }
)";
constexpr const char* add_in_shared_memory = R"(
  SHARED f32 all[$threads];
  for (i32 c = 0; c < $own; ++c)
    for (i32 r = 0; r < $rows; ++r) {
      BARRIER;
      all[THREAD] = sums[c][r];
      for (i32 distance = $team / 2; distance > 0; distance /= 2) {
        BARRIER;
        if (lane < distance) all[THREAD] += all[(i32)THREAD + distance];
      }
      const f32 sum = all[THREAD];
      if (lane == 0 && first + c < $columns) out[r * $columns + first + c] = $stored;
    }
)";
}  // namespace

std::optional<KernelChoice> choose_matmul_blocks(const Node& node, std::span<const Placement>) {
  const Shape& result = node.type.shape;
  const int64_t columns = result.back(), depth = node.inputs[0].dim(-1);
  const int64_t rows = node.type.elements() / std::max<int64_t>(columns, 1);
  const bool is_grouped = node.inputs.size() == 3;
  if (!is_float(node.type.dtype) || size_of(node.type.dtype) > 4) return std::nullopt;
  if (rows == 0 || columns == 0 || depth == 0) return std::nullopt;
  if (rows > (is_grouped ? most_grouped_rows : most_rows)) return std::nullopt;
  constexpr int64_t most = std::numeric_limits<int32_t>::max() / most_grouped_rows;
  if (columns > most || depth > most) return std::nullopt;
  KernelChoice choice{.kernel = "weft:" + std::string(node.op->name), .alignment = 16};
  for (const Value& input : node.inputs) choice.operand_order.push_back(Dims::iota(input.rank()));
  return choice;
}

loop::GpuKernel matmul_blocks(const Launch& launch, loop::GpuLanguage language,
                              const std::string& prefix) {
  const Node& node = *launch.body.front().node();
  const BlockFormat& format = block_format(node.attrs.text("format"));
  const Layout layout = layout_of(format);
  const DType dtype = node.type.dtype;
  const int64_t columns = node.type.shape.back(), depth = node.inputs[0].dim(-1);
  const int64_t all_rows = node.type.elements() / columns;
  const bool is_grouped = node.inputs.size() == 3;
  const int64_t rows = is_grouped ? 1 : all_rows, own = rows <= few_rows ? 1 : 2;
  const int64_t tiles = ceil_div(columns, own * (threads / team));

  KernelText text(launch, language, prefix);
  const std::pair<const char*, int64_t> numbers[] = {
      {"threads", threads},
      {"team", team},
      {"tiles", tiles},
      {"own", own},
      {"rows", rows},
      {"columns", columns},
      {"depth", depth},
      {"numbers", format.numbers},
      {"bytes", format.bytes},
      {"blocks", depth / format.numbers},
      {"parts", format.numbers / layout.count},
      {"units", depth / layout.count},
      {"unit", layout.count},
      {"runs", static_cast<int64_t>(layout.places.size())},
      {"unrolled", rows <= few_rows ? 4 : 1},
      {"nibbles", (format.layout == BlockLayout::lines ? 16
                   : format.has_least                  ? 4
                                                       : 2) +
                      (format.bits != 5                      ? 0
                       : format.layout == BlockLayout::lines ? 32
                                                             : 4)},
  };
  for (const auto& [word, number] : numbers) text.set(word, number);
  std::string places;
  for (const char* place : layout.places)
    places += (places.empty() ? "" : ", ") + std::string(place);
  text.set("places", places);
  text.set("element", loop::memory_type(dtype));
  text.set("loaded", loop::from_memory("four.at[e]", dtype));
  text.set("stored", loop::to_memory("sum", dtype));
  // Blocks whose bytes are no multiple of four are aligned to two.
  text.set("word", format.bytes % 4 == 0 ? whole_word : half_words);
  text.set("least", format.has_least   ? "$prefix_half(b + 2)"
                    : format.bits == 5 ? "-16 * d"
                                       : "-8 * d");
  if (format.bits != 5)
    text.set("fifths", "0");
  else if (format.layout == BlockLayout::lines)
    text.set("fifths", "$prefix_word(b + 16 + at + h * 4) >> group");
  else
    text.set("fifths", format.has_least ? "$prefix_word(b + 4)" : "$prefix_word(b + 2)");
  text.set("decode", layout.decode);
  text.define(helpers);

  text.set("x", pointer("in", 0, launch.operands[0]));
  text.set("w", pointer("in", 1, launch.operands[1]));
  text.set("out", pointer("out", 0, launch.results[0]));
  text.set("present", is_grouped ? "units" : "$units");
  std::string body = begin;
  if (is_grouped) {
    text.set("counts", pointer("in", 2, launch.operands[2]));
    text.set("count", loop::memory_type(node.inputs[2].dtype()));
    text.set("experts", node.inputs[2].dim(0));
    body += begin_grouped;
  }
  body += multiply;
  body += language == loop::GpuLanguage::cuda ? add_by_shuffles : add_in_shared_memory;
  text.launch(tiles * (is_grouped ? all_rows : 1), threads, body);
  return text.finish(0);
}

}  // namespace weft::gpu
