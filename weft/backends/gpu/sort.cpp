// Each launch merges pairs of sorted runs of positions: a thread for each position counts by binary
// search how many of the other run precede it. Equal elements of the left run come first
// (stability).
#include "weft/backends/gpu/sort.h"

#include <algorithm>
#include <limits>

#include "weft/backends/gpu/kernel_text.h"
#include "weft/base/memory/alignment.h"
#include "weft/base/memory/buffer.h"
#include "weft/base/numbers/rounding.h"
#include "weft/codegen/gpu_scalar.h"

namespace weft::gpu {
namespace {
constexpr int threads = 256;

// Maps an element to an integer of the same order: 0 and -0 are equal, NaN is greatest.
constexpr const char* key_of_float = R"(
DEVICE i64 $prefix_key(GLOBAL const $bits* x, $wide at) {
  const i64 size = (i64)(x[at] & $magnitude);
  if (size > $infinity) return 0x7fffffffffffffff;
  return x[at] >> $sign ? -size : size;
}
)";
constexpr const char* key_of_integer = R"(
DEVICE i64 $prefix_key(GLOBAL const $bits* x, $wide at) { return (i64)x[at]; }
)";

// Positions are relative to the row. `own` is the start of the run of `at`, `both` is the start of
// the pair of runs, and `low` and `high` bound the place in the other run.
constexpr const char* merge = R"(
  const $wide i = ($wide)GROUP * $threads + THREAD;
  if (i >= $elements) return;
  GLOBAL u8* scratch = scratch_memory + scratch_at;
  GLOBAL const $bits* x = (GLOBAL const $bits*)($x);
  GLOBAL const i32* from = (GLOBAL const i32*)(scratch + $from);
  GLOBAL $position* to = $to;
  const $wide row = i / $extent * $extent;
  const i32 at = (i32)(i - row), own = at / $run * $run, both = at / $pair * $pair;
  const i32 first = own == both ? both + $run : both;
  i32 low = first < $extent ? first : $extent;
  i32 high = first + $run < $extent ? first + $run : $extent;
  const i32 others = low, mine = $mine;
  const i64 key = $prefix_key(x, row + mine);
  while (low < high) {
    const i32 middle = low + (high - low) / 2;
    const i64 other = $prefix_key(x, row + $other);
    if (own == both ? other $before key : !(key $before other))
      low = middle + 1;
    else
      high = middle;
  }
  to[row + both + (at - own) + (low - others)] = mine;
)";

// Returns the bytes of a list of positions. Launches alternate between two lists (double
// buffering).
size_t list_bytes(int64_t elements) {
  return aligned(static_cast<size_t>(elements) * sizeof(int32_t));
}

void define_key(KernelText& text, DType dtype) {
  if (!is_float(dtype)) {
    text.set("bits", loop::memory_type(dtype));
    return text.define(key_of_integer);
  }
  const int64_t infinity = dtype == DType::f64    ? 0x7ff0000000000000
                           : dtype == DType::f32  ? 0x7f800000
                           : dtype == DType::bf16 ? 0x7f80
                                                  : 0x7c00;
  const auto bits = static_cast<int64_t>(8 * size_of(dtype));
  text.set("bits", "u" + std::to_string(bits));
  text.set("sign", bits - 1);
  text.set("magnitude", std::numeric_limits<int64_t>::max() >> (64 - bits));
  text.set("infinity", infinity);
  text.define(key_of_float);
}
}  // namespace

std::optional<KernelChoice> choose_argsort(const Node& node, std::span<const Placement>) {
  if (node.type.shape.back() > 1 << 30) return std::nullopt;
  return KernelChoice{.kernel = "weft:argsort",
                      .operand_order = {Dims::iota(node.type.shape.size())},
                      .workspace = 2 * list_bytes(node.type.elements())};
}

loop::GpuKernel argsort(const Launch& launch, loop::GpuLanguage language,
                        const std::string& prefix) {
  const Node& node = *launch.body.front().node();
  const int64_t elements = node.type.elements(), extent = node.type.shape.back();
  const auto list = static_cast<int64_t>(list_bytes(elements));
  KernelText text(launch, language, prefix);
  text.set("wide", elements > std::numeric_limits<int32_t>::max() - threads ? "i64" : "i32");
  define_key(text, node.inputs[0].dtype());
  text.set("x", pointer("in", 0, launch.operands[0]));
  text.set("elements", elements);
  text.set("extent", std::max<int64_t>(extent, 1));
  text.set("before", node.attrs.integer("descending") != 0 ? ">" : "<");
  text.set("mine", "at");
  text.set("other", "middle");
  int64_t from = list;
  for (int64_t run = 1; run == 1 || run < extent; run *= 2) {
    const bool last = 2 * run >= extent;
    text.set("run", run);
    text.set("pair", 2 * run);
    text.set("from", from);
    from = list - from;
    text.set("position", last ? "i64" : "i32");
    text.set("to", last ? pointer("out", 0, launch.results[0])
                        : "(GLOBAL i32*)(scratch + " + std::to_string(from) + ")");
    text.launch(ceil_div(elements, int64_t{threads}), threads, merge);
    text.set("mine", "from[row + at]");
    text.set("other", "from[row + middle]");
  }
  return text.finish(static_cast<size_t>(2 * list));
}

}  // namespace weft::gpu
