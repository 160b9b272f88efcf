// A stable radix sort, four bits a pass, orders the positions of the indices by row, ascending
// within a row; out-of-range indices come last. The sorted list is cut into parts of equal length,
// independent of rows: a thread sums a part's updates of each row, in order, writes rows that are
// within the part, and leaves rows that cross parts to a second launch, which adds the partial sums
// of a row in order. So the time does not depend on how the indices are distributed over rows.
#include "weft/backends/gpu/scatter.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "weft/backends/gpu/kernel_text.h"
#include "weft/base/memory/alignment.h"
#include "weft/base/memory/buffer.h"
#include "weft/base/numbers/rounding.h"
#include "weft/codegen/gpu_scalar.h"

namespace weft::gpu {
namespace {
constexpr int digits = 16, digit_bits = 4;  // values and bits of one digit, by which a pass sorts
constexpr int sort_threads = 128, own_keys = 8;  // per group, and per thread
constexpr int64_t sorted_at_once = sort_threads * own_keys;
constexpr int scan_threads = 256;
constexpr int part = 32;  // elements of the sorted list in a part
constexpr int row_threads = 256;

DType sum_type(DType type) {
  if (type == DType::f64) return type;
  return is_float(type) ? DType::f32 : DType::i64;
}

bool is_broadcast(const Shape& shape, const Dims& strides) {
  for (int i = 0; i < shape.size(); ++i)
    if (shape[i] > 1 && strides[i] != 0) return false;
  return true;
}

// Sort describes the sort of `count` indices to `rows` rows, with the byte offsets of its lists in
// scratch.
struct Sort {
  int64_t count, rows, groups;
  int turns = 1;
  size_t bytes = 0;
  size_t keys[2], positions[2], histogram;

  Sort(int64_t count, int64_t rows)
      : count(count), rows(rows), groups(ceil_div(count, sorted_at_once)) {
    for (int64_t left = ceil_div(rows + 1, digits); left > 1; left = ceil_div(left, digits))
      ++turns;
    for (int i = 0; i < 2; ++i) keys[i] = take(count), positions[i] = take(count);
    histogram = take(digits * groups);
  }
  size_t take(int64_t elements, size_t size = sizeof(int32_t)) {
    const size_t at = bytes;
    bytes += aligned(static_cast<size_t>(elements) * size);
    return at;
  }
  static bool can(int64_t count, int64_t rows) {
    constexpr int64_t most = std::numeric_limits<int32_t>::max() - 1;
    return count <= most - sorted_at_once && rows <= most;
  }
};

// Each pass reads keys; the first pass's keys are the rows that the indices name.
constexpr const char* first_keys = R"(
  GLOBAL const $index* indices = $indices;)";
constexpr const char* first_key = R"(
      const i64 row = (i64)indices[i];
      const i32 key = row >= 0 && row < $rows ? (i32)row : $rows, position = i;)";
constexpr const char* next_keys = R"(
  GLOBAL const i32* keys = (GLOBAL const i32*)(scratch + $from);
  GLOBAL const i32* positions = (GLOBAL const i32*)(scratch + $places);)";
constexpr const char* next_key = R"(
      const i32 key = keys[i], position = positions[i];)";

// Counts each digit for each thread of a group.
constexpr const char* count_digits = R"(
  GLOBAL u8* scratch = scratch_memory + scratch_at;
  GLOBAL i32* histogram = (GLOBAL i32*)(scratch + $histogram);$keys
  SHARED i32 counts[$digits][$threads + 1];
  const i32 begin = ((i32)GROUP * $threads + (i32)THREAD) * $own;
  const i32 end = begin + $own < $count ? begin + $own : $count;
  for (i32 digit = 0; digit < $digits; ++digit) counts[digit][THREAD] = 0;
  for (i32 i = begin; i < end; ++i) {$key
    ++counts[key >> $shift & $digits - 1][THREAD];
  }
  BARRIER;
)";
constexpr const char* store_counts = R"(
  if (THREAD < $digits) {
    i32 total = 0;
    for (i32 i = 0; i < $threads; ++i) total += counts[THREAD][i];
    histogram[THREAD * $groups + GROUP] = total;
  }
)";
// Computes an exclusive prefix sum. For each digit and group, it is the number of keys sorted
// before: keys of lesser digits, and keys of the same digit in earlier groups.
constexpr const char* scan = R"(
  GLOBAL i32* histogram = (GLOBAL i32*)(scratch_memory + scratch_at + $histogram);
  SHARED i32 totals[2][$threads];
  const i32 begin = (i32)THREAD * $each;
  const i32 end = begin + $each < $entries ? begin + $each : $entries;
  i32 total = 0;
  for (i32 i = begin; i < end; ++i) total += histogram[i];
  totals[0][THREAD] = total;
  i32 now = 0;
  for (i32 distance = 1; distance < $threads; distance *= 2) {
    BARRIER;
    const i32 before = (i32)THREAD < distance ? 0 : totals[now][(i32)THREAD - distance];
    totals[1 - now][THREAD] = totals[now][THREAD] + before;
    now = 1 - now;
  }
  BARRIER;
  i32 sum = totals[now][THREAD] - total;
  for (i32 i = begin; i < end; ++i) {
    const i32 count = histogram[i];
    histogram[i] = sum;
    sum += count;
  }
)";
constexpr const char* move = R"(
  GLOBAL i32* sorted = (GLOBAL i32*)(scratch + $to);
  GLOBAL i32* order = (GLOBAL i32*)(scratch + $order);
  if (THREAD < $digits) {
    i32 sum = histogram[THREAD * $groups + GROUP];
    for (i32 i = 0; i < $threads; ++i) {
      const i32 count = counts[THREAD][i];
      counts[THREAD][i] = sum;
      sum += count;
    }
  }
  BARRIER;
  for (i32 i = begin; i < end; ++i) {$key
    const i32 place = counts[key >> $shift & $digits - 1][THREAD]++;
    sorted[place] = key;
    order[place] = position;
  }
)";

// Adds the launches of the sort, and sets $from and $places to its sorted keys and positions.
void add_sort(KernelText& text, const Sort& sort, const Access& indices) {
  text.set("index", loop::memory_type(indices.value.dtype()));
  text.set("count", sort.count);
  text.set("rows", sort.rows);
  text.set("groups", sort.groups);
  text.set("digits", digits);
  text.set("own", own_keys);
  text.set("entries", digits * sort.groups);
  text.set("each", ceil_div(digits * sort.groups, scan_threads));
  text.set("histogram", static_cast<int64_t>(sort.histogram));
  for (int turn = 0; turn < sort.turns; ++turn) {
    const int to = turn % 2;
    text.set("shift", turn * digit_bits);
    text.set("to", static_cast<int64_t>(sort.keys[to]));
    text.set("order", static_cast<int64_t>(sort.positions[to]));
    text.set("keys", text.filled(turn == 0 ? first_keys : next_keys));
    text.set("key", text.filled(turn == 0 ? first_key : next_key));
    text.launch(sort.groups, sort_threads, std::string(count_digits) + store_counts);
    text.launch(std::min<int64_t>(sort.groups, 1), scan_threads, scan);
    text.launch(sort.groups, sort_threads, std::string(count_digits) + move);
    text.set("from", text.filled("$to"));
    text.set("places", text.filled("$order"));
  }
}

// Finds the first sorted key that is not less than `row`, by binary search.
constexpr const char* find_row = R"(
  GLOBAL u8* scratch = scratch_memory + scratch_at;
  GLOBAL const i32* keys = (GLOBAL const i32*)(scratch + $from);
  const i32 row = (i32)(GROUP * $threads + THREAD);
  if (row > $last) return;
  i32 begin = 0, end = $count;
  while (begin < end) {
    const i32 middle = begin + (end - begin) / 2;
    if (keys[middle] < row)
      begin = middle + 1;
    else
      end = middle;
  })";
constexpr const char* store_begin = R"(
  ((GLOBAL i32*)(scratch + $begins))[row] = begin;
)";
constexpr const char* store_first = R"(
  GLOBAL const i32* positions = (GLOBAL const i32*)(scratch + $places);
  GLOBAL i64* first = $first;
  first[row] = begin < $count && keys[begin] == row ? (i64)positions[begin] : -1;
)";

constexpr const char* pack = R"(
typedef struct __attribute__((aligned($vector * sizeof($element)))) { $element at[$vector]; } $prefix_pack;
typedef struct __attribute__((aligned($aligned))) { $sum at[$vector]; } $prefix_sums;

// Stores a pack of a row, from element `i` on, with the sums added to it.
DEVICE void $prefix_store(GLOBAL const $element* into, GLOBAL $element* out, $wide i,
                          const $prefix_sums* sums) {
  const $prefix_pack old = $old;
  $prefix_pack next;
  for (i32 e = 0; e < $vector; ++e) {
    $sum total = $loaded;
    $finish
    next.at[e] = $stored;
  }
  *(GLOBAL $prefix_pack*)(out + i) = next;
}
)";
constexpr const char* lists = R"(
  GLOBAL u8* scratch = scratch_memory + scratch_at;
  GLOBAL const i32* begins = (GLOBAL const i32*)(scratch + $begins);
  GLOBAL $prefix_sums* parts = (GLOBAL $prefix_sums*)(scratch + $parts);
  GLOBAL const $element* into = $into;
  GLOBAL $element* out = $out;
  const $wide i = ($wide)GROUP * $threads + THREAD;
  if (i >= $positions) return;
  const i32 column = (i32)(i % $columns);
)";
// The partial sum of a row that continues in the next part is stored at [part][1], the partial sum
// of a row that began in an earlier part at [part][0].
constexpr const char* sum_parts = R"(
  GLOBAL const i32* keys = (GLOBAL const i32*)(scratch + $from);
  GLOBAL const i32* positions = (GLOBAL const i32*)(scratch + $places);
  GLOBAL const $element* updates = $updates;
  const i32 part = (i32)(i / $columns), begin = part * $part;
  const i32 end = begin + $part < $count ? begin + $part : $count;
  $prefix_sums sums;
  for (i32 e = 0; e < $vector; ++e) sums.at[e] = $zero;
  for (i32 first = begin; first < end; first += $batch) {
    i32 rows[$batch];
    $prefix_pack x[$batch];
#pragma unroll
    for (i32 k = 0; k < $batch; ++k) {
      rows[k] = first + k < end ? keys[first + k] : $rows;
      if (rows[k] < $rows)
        x[k] = *(GLOBAL const $prefix_pack*)(updates + ($wide)positions[first + k] * $width +
                                             column * $vector);
    }
#pragma unroll
    for (i32 k = 0; k < $batch; ++k) {
      if (rows[k] == $rows) continue;
      for (i32 e = 0; e < $vector; ++e) $add
      if (first + k + 1 < end && keys[first + k + 1] == rows[k]) continue;
      const i32 from = begins[rows[k]], to = begins[rows[k] + 1];
      if (from >= begin && to <= end)
        $prefix_store(into, out, ($wide)rows[k] * $width + column * $vector, &sums);
      else
        parts[(($wide)part * 2 + (from >= begin)) * $columns + column] = sums;
      for (i32 e = 0; e < $vector; ++e) sums.at[e] = $zero;
    }
  }
)";
constexpr const char* sum_rows = R"(
  const i32 row = (i32)(i / $columns), from = begins[row], to = begins[row + 1];
  const i32 first = from / $part, last = (to - 1) / $part;
  if (from == to ? $same : first == last) return;
  $prefix_sums sums;
  for (i32 e = 0; e < $vector; ++e) sums.at[e] = $zero;
  if (from < to) sums = parts[(($wide)first * 2 + 1) * $columns + column];
  for (i32 part = first + 1; part <= last; ++part) {
    const $prefix_sums next = parts[($wide)part * 2 * $columns + column];
    for (i32 e = 0; e < $vector; ++e) $join
  }
  $prefix_store(into, out, ($wide)row * $width + column * $vector, &sums);
)";

// Layout holds the offsets in scratch, in bytes, for scatter_add.
struct Layout {
  Sort sort;
  int64_t width;
  size_t begins, parts;
  explicit Layout(const Node& node)
      : sort(node.inputs[1].elements(), node.type.shape[0]),
        width(sort.rows == 0 ? 0 : node.type.elements() / sort.rows),
        begins(sort.take(sort.rows + 1)),
        parts(sort.take(ceil_div(sort.count, part) * 2 * width,
                        size_of(sum_type(node.type.dtype)))) {}
};
}  // namespace

std::optional<KernelChoice> choose_scatter_add(const Node& node,
                                               std::span<const Placement> operands) {
  if (node.type.dtype == DType::boolean) return std::nullopt;
  if (!Sort::can(node.inputs[1].elements(), node.type.shape[0])) return std::nullopt;
  const bool broadcast = is_broadcast(node.type.shape, operands[0].strides);
  return KernelChoice{
      .kernel = "weft:scatter_add",
      .operand_order = {broadcast ? Dims{} : Dims::iota(node.type.shape.size()),
                        Dims::iota(node.inputs[1].rank()), Dims::iota(node.inputs[2].rank())},
      .workspace = Layout(node).sort.bytes,
      .in_place = 0};
}

loop::GpuKernel scatter_add(const Launch& launch, loop::GpuLanguage language,
                            const std::string& prefix) {
  const Node& node = *launch.body.front().node();
  const DType dtype = node.type.dtype, sum = sum_type(dtype);
  const Access &into = launch.operands[0], &updates = launch.operands[2], &out = launch.results[0];
  const Layout layout(node);
  const bool broadcast = is_broadcast(node.type.shape, into.at.strides);
  std::vector<int64_t> counts{layout.width, updates.at.offset, out.at.offset};
  if (!broadcast) counts.push_back(into.at.offset);
  const int vector = vector_of(dtype, counts);
  const int64_t columns = layout.width / vector, parts = ceil_div(layout.sort.count, part);
  const bool wide =
      std::max({node.type.elements(), updates.value.elements(), parts * 2 * columns}) >
      std::numeric_limits<int32_t>::max() - row_threads;

  KernelText text(launch, language, prefix);
  text.set("indices", pointer("in", 1, launch.operands[1]));
  add_sort(text, layout.sort, launch.operands[1]);

  text.set("begins", static_cast<int64_t>(layout.begins));
  text.set("last", layout.sort.rows);
  text.launch(ceil_div(layout.sort.rows + 1, row_threads), row_threads,
              std::string(find_row) + store_begin);

  text.set("element", loop::memory_type(dtype));
  text.set("sum", loop::register_type(sum));
  text.set("wide", wide ? "i64" : "i32");
  text.set("vector", vector);
  text.set("aligned", std::min<int64_t>(16, vector * static_cast<int64_t>(size_of(sum))));
  text.set("old",
           text.filled(broadcast ? "{{into[0]}}" : "*(GLOBAL const $prefix_pack*)(into + i)"));
  const auto loaded = [&](const char* element) {
    return (sum == DType::i64 ? "(i64)" : "") + loop::from_memory(element, dtype);
  };
  const auto add = [&](const char* total, const std::string& value) {
    return loop::combine(loop::Reduction::sum, sum, total, value);
  };
  text.set("zero", loop::identity(loop::Reduction::sum, sum));
  text.set("loaded", loaded(broadcast ? "old.at[0]" : "old.at[e]"));
  text.set("finish", add("total", "sums->at[e]"));
  text.set("add", add("sums.at[e]", loaded("x[k].at[e]")));
  text.set("join", add("sums.at[e]", "next.at[e]"));
  text.set("stored",
           sum == DType::i64 ? text.filled("($element)total") : loop::to_memory("total", dtype));
  text.define(pack);
  text.set("into", pointer("in", 0, into));
  text.set("updates", pointer("in", 2, updates));
  text.set("out", pointer("out", 0, out));
  text.set("width", layout.width);
  text.set("columns", std::max<int64_t>(columns, 1));
  text.set("part", part);
  text.set("parts", static_cast<int64_t>(layout.parts));
  text.set("batch", 4);
  text.set("same", launch.in_place.empty() ? "false" : "true");
  text.set("positions", parts * columns);
  text.launch(ceil_div(parts * columns, row_threads), row_threads, std::string(lists) + sum_parts);
  text.set("positions", layout.sort.rows * columns);
  text.launch(ceil_div(layout.sort.rows * columns, row_threads), row_threads,
              std::string(lists) + sum_rows);
  return text.finish(layout.sort.bytes);
}

std::optional<KernelChoice> choose_first_position(const Node& node, std::span<const Placement>) {
  const Sort sort(node.inputs[0].elements(), node.type.shape[0]);
  if (!Sort::can(sort.count, sort.rows)) return std::nullopt;
  return KernelChoice{.kernel = "weft:first_position",
                      .operand_order = {Dims::iota(node.inputs[0].rank())},
                      .workspace = sort.bytes};
}

loop::GpuKernel first_position(const Launch& launch, loop::GpuLanguage language,
                               const std::string& prefix) {
  const Sort sort(launch.operands[0].value.elements(), launch.results[0].value.elements());
  KernelText text(launch, language, prefix);
  text.set("indices", pointer("in", 0, launch.operands[0]));
  add_sort(text, sort, launch.operands[0]);
  text.set("first", pointer("out", 0, launch.results[0]));
  text.set("last", sort.rows - 1);
  text.launch(ceil_div(sort.rows, row_threads), row_threads, std::string(find_row) + store_first);
  return text.finish(sort.bytes);
}

}  // namespace weft::gpu
