// A thread group keeps one tile of rows (queries, or keys where the gradient with respect to keys
// is summed) while tiles of 64 rows of the other kind stream past. Its 8 x 16 threads hold the
// scores of both tiles and the sums in registers: a thread has a few rows, and four of every 32
// columns. Operands pass through shared memory 16 columns at a time, converted to float32.
//
// The forward pass stores the log-sum-exp of each query for the backward pass, which has two
// launches: one for dq, which also stores each query's dot product of y and dy for the second, and
// one for dk and dv. Where y was rounded to 16 bits, a launch before these recomputes it for that
// dot product, whose error would affect all of dq and dk. One thread computes each sum, in a fixed
// order.
//
// This is one file because the text of the kernels and the code that fills in its names ($width)
// are read side by side.
#include "weft/backends/gpu/attention.h"

#include <algorithm>
#include <numbers>

#include "weft/backends/gpu/cached_attention.h"
#include "weft/backends/gpu/kernel_text.h"
#include "weft/base/numbers/rounding.h"
#include "weft/codegen/gpu_scalar.h"
#include "weft/device/attention_heads.h"
#include "weft/ir/op_def.h"

namespace weft::gpu {
namespace {
using std::string;

constexpr int64_t most_depth = 128;
constexpr int64_t passing = 64;  // rows of a streamed tile
constexpr int64_t chunk = 16;    // columns, or rows, in shared memory at a time
constexpr int64_t padding = 4;   // avoids bank conflicts between rows
constexpr int across = 8, down = 16, threads = across * down;

struct Heads : AttentionHeads {
  using AttentionHeads::AttentionHeads;

  // Returns the rows of one thread, as many as fit in registers.
  int64_t own_rows() const { return std::max(depth, width) > 64 ? 2 : 4; }
  int64_t rows() const { return own_rows() * down; }  // rows of the tile that a group keeps
  int64_t tiles(int64_t count) const { return ceil_div(count, rows()); }
  int64_t groups(int64_t count) const { return tiles(count) * heads * batch; }
  size_t gradient_scratch() const {
    return static_cast<size_t>(batch * heads * queries) * sizeof(float);
  }
};

constexpr const char* helpers = R"(
typedef struct __attribute__((aligned($stored * sizeof($element)))) {
  $element at[$stored];
} $prefix_stored;

// Columns `column` to `column` + $chunk - 1 of `count` rows, of which `rows` are there, as
// tile[column][row].
DEVICE void $prefix_load_across($local f32* tile, i32 pitch, i32 count, GLOBAL const $element* from,
                                i64 stride, i32 rows, i32 column) {
  const i32 x = (i32)THREAD % ($chunk / $vector) * $vector;
#pragma unroll
  for (i32 row = (i32)THREAD / ($chunk / $vector); row < count;
       row += $threads / ($chunk / $vector)) {
    const bool there = row < rows && column + x < $depth;
    $prefix_pack pack;
    if (there) pack = *(GLOBAL const $prefix_pack*)(from + row * stride + column + x);
#pragma unroll
    for (i32 e = 0; e < $vector; ++e) tile[(x + e) * pitch + row] = there ? $loaded : 0.0f;
  }
}
// $chunk rows, of which `rows` are there, as tile[row][column].
DEVICE void $prefix_load_along($local f32* tile, GLOBAL const $element* from, i64 stride,
                               i32 rows) {
  for (i32 i = THREAD; i < $chunk * ($padded / $vector); i += $threads) {
    const i32 row = i / ($padded / $vector), x = i % ($padded / $vector) * $vector;
    const bool there = row < rows && x < $width;
    $prefix_pack pack;
    if (there) pack = *(GLOBAL const $prefix_pack*)(from + row * stride + x);
#pragma unroll
    for (i32 e = 0; e < $vector; ++e) tile[row * $padded + x + e] = there ? $loaded : 0.0f;
  }
}
// sums[r][c] += left[k][r] right[k][c] over the $chunk rows k of two tiles.
DEVICE void $prefix_products($local const f32* left, $local const f32* right, f32 sums[$own][8]) {
  $multiplyproducts
}
DEVICE void $prefix_sums($local const f32* left, $local const f32* right,
                         f32 sums[$own][$columns]) {
  $multiplysums
}
)";
constexpr const char* multiply = R"(left += (i32)THREAD / $across * $own;
  right += (i32)THREAD % $across * 4;
#pragma unroll 4
  for (i32 k = 0; k < $chunk; ++k, left += $pitch, right += $rightpitch) {
    const f32x$own a = *($local const f32x$own*)left;
#pragma unroll
    for (i32 c = 0; c < $count; c += 4) {
      const f32x4 b = *($local const f32x4*)(right + c * $across);
#pragma unroll
      for (i32 r = 0; r < $own; ++r)
#pragma unroll
        for (i32 e = 0; e < 4; ++e) sums[r][c + e] = fmaf(a.at[r], b.at[e], sums[r][c + e]);
    }
  })";

// `begin` opens the kernel of each launch: it declares shared memory and selects the thread group's
// tile and head.
constexpr const char* begin = R"(
  SHARED f32x4 chunks[$chunk * $chunkpitch / 4], weight_tile[$passing * $pitch / 4];
  SHARED f32 parts[$rows * $across];
  $local f32* left = ($local f32*)chunks;
  $local f32* right = left + $chunk * $pitch;
  $local f32* weights = ($local f32*)weight_tile;
  const i32 own_column = (i32)THREAD % $across, own_row = (i32)THREAD / $across * $own;
  const i32 group = (i32)GROUP / $tiles, head = group % $heads, batch = group / $heads;
  const i32 first = $tile * $rows;$before
)";
constexpr const char* place_matrix = R"(
  GLOBAL $type* $matrix = $pointer + (batch * (i64)$batch + $head * (i64)$stride);
  const i64 $matrix_stride = $row;)";
constexpr const char* zero = R"(
#pragma unroll
    for (i32 r = 0; r < $own; ++r)
#pragma unroll
      for (i32 c = 0; c < $count; ++c) $sums[r][c] = 0.0f;)";
constexpr const char* multiply_rows = R"(
    $chunks {
      BARRIER;
      $prefix_load_across(left, $pitch, $rows, $kept + first * $kept_stride, $kept_stride,
                          $keptrows - first, d);
      $prefix_load_across(right, $passpitch, $passing, $passed + next * $passed_stride,
                          $passed_stride, $passedrows - next, d);
      BARRIER;
      $prefix_products(left, right, $sums);
    })";
constexpr const char* weigh_rows = R"(
    BARRIER;
#pragma unroll
    for (i32 c = 0; c < 8; ++c) {
      f32x$own column;
#pragma unroll
      for (i32 r = 0; r < $own; ++r) column.at[r] = $weights[r][c];
      *($local f32x$own*)(weights + $column * $pitch + own_row) = column;
    }
    for (i32 row = 0; row < $passing; row += $chunk) {
      BARRIER;
      $prefix_load_along(left, $passed + (next + row) * $passed_stride, $passed_stride,
                         $passedrows - next - row);
      BARRIER;
      $prefix_sums(weights + row * $pitch, left, $sums);
    })";
constexpr const char* combine = R"(
  BARRIER;
#pragma unroll
  for (i32 r = 0; r < $own; ++r) parts[(own_row + r) * $across + own_column] = $sums[r];
  BARRIER;
#pragma unroll
  for (i32 r = 0; r < $own; ++r) {
    $sums[r] = 0.0f;
#pragma unroll
    for (i32 i = 0; i < $across; ++i) $sums[r] += parts[(own_row + r) * $across + i];
  })";
constexpr const char* store_rows = R"(
#pragma unroll
  for (i32 r = 0; r < $own; ++r)
#pragma unroll
    for (i32 c = 0; c < $columns; c += $stored) {
      const i32 row = first + own_row + r, column = $column;
      if (row >= $keptrows || column >= $width) continue;
      $prefix_stored pack;
#pragma unroll
      for (i32 e = 0; e < $stored; ++e) {
        const f32 value = $sums[r][c + e]$factor;
        pack.at[e] = $narrowed;
      }
      *(GLOBAL $prefix_stored*)($kept + row * $kept_stride + column) = pack;
    }
)";

// Computes y of the group's queries before the division by the totals of their exponentials.
constexpr const char* attend = R"(
  f32 sums[$own][$columns], most[$own], total[$own];$zerosums
#pragma unroll
  for (i32 r = 0; r < $own; ++r) most[r] = -F32_INFINITY, total[r] = 0.0f;
  const i32 end = $seen;
  for (i32 next = $low; next < end; next += $passing) {
    f32 scores[$own][8];$zeroscores$products
#pragma unroll
    for (i32 r = 0; r < $own; ++r) {
      f32 top = -F32_INFINITY;
#pragma unroll
      for (i32 c = 0; c < 8; ++c) {
        const i32 query = first + own_row + r, key = next + $column;
        scores[r][c] = $visible ? $score : -F32_INFINITY;
        top = scores[r][c] > top ? scores[r][c] : top;
      }
      parts[(own_row + r) * $across + own_column] = top;
    }
    BARRIER;
#pragma unroll
    for (i32 r = 0; r < $own; ++r) {
      const f32 before = most[r];
#pragma unroll
      for (i32 i = 0; i < $across; ++i) {
        const f32 top = parts[(own_row + r) * $across + i];
        most[r] = top > most[r] ? top : most[r];
      }
      const f32 shift = most[r] == -F32_INFINITY ? 0.0f : most[r], factor = $exp(before - shift);
      total[r] *= factor;
#pragma unroll
      for (i32 c = 0; c < $columns; ++c) sums[r][c] *= factor;
#pragma unroll
      for (i32 c = 0; c < 8; ++c) {
        scores[r][c] = $exp(scores[r][c] - shift);
        total[r] += scores[r][c];
      }
    }$weighed
  }$combined
)";
constexpr const char* invert = R"(
#pragma unroll
  for (i32 r = 0; r < $own; ++r) total[r] = $inverse;)";
constexpr const char* store_logsumexp = R"(
#pragma unroll
  for (i32 r = 0; r < $own; ++r) {
    const i32 query = first + own_row + r;
    if (own_column > 0 || query >= $queries) continue;
    logsumexp[query * logsumexp_stride] = (most[r] - $log(total[r])) * $natural;
  }
)";

// Scratch holds the dot product of y and dy of each query, as [batch, head, query].
constexpr const char* dots_of_head = R"(
  GLOBAL f32* dots = (GLOBAL f32*)(scratch_memory + scratch_at) + (i64)group * $queries;)";
constexpr const char* make_dots = R"(
  f32 dot[$own];
#pragma unroll
  for (i32 r = 0; r < $own; ++r) {
    const i32 query = first + own_row + r;
    dot[r] = 0.0f;
#pragma unroll
    for (i32 c = 0; c < $columns; ++c) {
      const i32 column = $column;
      if (query >= $queries || column >= $width) continue;
      const $element element = dy[query * dy_stride + column];
      dot[r] += $ofdy * $result;
    }
  }$combined
#pragma unroll
  for (i32 r = 0; r < $own; ++r) {
    const i32 query = first + own_row + r;
    if (own_column == 0 && query < $queries) dots[query] = dot[r];
  })";
constexpr const char* load_dots = R"(
    f32 dot[$count];
#pragma unroll
    for (i32 $i = 0; $i < $count; ++$i) {
      const i32 query = $query;
      dot[$i] = query < $queries ? dots[query] : 0.0f;
    })";
constexpr const char* load_shifts = R"(
    f32 shift[$count];
#pragma unroll
    for (i32 $i = 0; $i < $count; ++$i) {
      const i32 query = $query;
      shift[$i] = query < $queries ? logsumexp[query * logsumexp_stride] * $binary : 0.0f;
    })";
// Computes the probabilities of two tiles as `scores`, and the gradients of scores as `changes`.
constexpr const char* change = R"(
#pragma unroll
    for (i32 r = 0; r < $own; ++r)
#pragma unroll
      for (i32 c = 0; c < 8; ++c) {
        const i32 $keptone = first + own_row + r, $passedone = next + $column;
        const bool there = query < $queries && $visible;
        const f32 p = there ? $exp(scores[r][c] * $scale - shift[$i]) : 0.0f;
        changes[r][c] = there ? p * (changes[r][c] - dot[$i]) * $slope : 0.0f;
        scores[r][c] = p;
      })";
constexpr const char* sum_by_queries = R"($zero$shifts
  const i32 end = $seen;
  for (i32 next = 0; next < end; next += $passing) {
    f32 scores[$own][8], changes[$own][8];$products$change$weighed
  })";
constexpr const char* sum_by_keys = R"($zero
  for (i32 next = $begin; next < $queries; next += $passing) {
    f32 scores[$own][8], changes[$own][8];$products$shifts$dots$change$weighed
  })";

// A Matrix is an operand of one head, named as in the kernel's text.
struct Matrix {
  const char* name;
  int64_t rows;
};

class Text {
 public:
  Text(const Launch& launch, loop::GpuLanguage language, const string& prefix);

  loop::GpuKernel attention();
  loop::GpuKernel logsumexp();
  loop::GpuKernel gradient();

 private:
  // Returns the start of a launch that keeps tiles of `kept`, and the declaration of a matrix.
  string begun(const Matrix& kept, bool last_first);
  string placed(const Matrix& matrix, const char* kind, size_t index, int64_t first_head = 0);
  // sums = 0; sums += products of the rows of two tiles; sums += weights times the rows of one.
  string zeros(const string& sums, const char* count) const {
    return text_.filled(zero, {{"sums", sums}, {"count", count}});
  }
  string products(const string& sums, const Matrix& kept, const Matrix& passed) const;
  string weighed(const string& sums, const string& weights, const Matrix& passed) const;
  string combined(const string& sums) const { return text_.filled(combine, {{"sums", sums}}); }
  string stored(const Matrix& to, const string& sums, const string& factor = "") const;
  // Returns the loop over keys that computes y of the group's queries.
  string attended();
  string stored_logsumexp(size_t result);
  // Sets which keys of a cache are seen, from `start`, and how their scores are capped.
  void set_cached(const Node& node);

  const Launch& launch_;
  Heads heads_;
  KernelText text_;
  Matrix q_, k_, v_;
};

// Returns the counts that the vector width must divide; the matrices' last axis is contiguous.
std::vector<int64_t> counts_of(const std::vector<Access>& accesses, size_t matrices) {
  std::vector<int64_t> counts;
  for (const auto& [value, at] : std::span(accesses).first(std::min(matrices, accesses.size()))) {
    counts.push_back(at.offset);
    counts.push_back(value.shape().back());
    for (int axis = 0; axis + 1 < at.strides.size(); ++axis)
      if (value.shape()[axis] > 1) counts.push_back(at.strides[axis]);
  }
  return counts;
}

Text::Text(const Launch& launch, loop::GpuLanguage language, const string& prefix)
    : launch_(launch),
      heads_(*launch.body.front().node()),
      text_(launch, language, prefix),
      q_{"q", heads_.queries},
      k_{"k", heads_.keys},
      v_{"v", heads_.keys} {
  const DType dtype = launch.operands[0].value.dtype();
  const Node& node = *launch.body.front().node();
  const bool cached = is_cached_attention(node);
  const int64_t padded = round_up(heads_.width, 4 * across);
  const std::pair<const char*, int64_t> numbers[] = {
      {"vector", vector_of(dtype, counts_of(launch.operands, cached ? 3 : 5))},
      {"stored", std::min(4, vector_of(dtype, counts_of(launch.results, 1)))},
      {"threads", threads},
      {"across", across},
      {"chunk", chunk},
      {"passing", passing},
      {"own", heads_.own_rows()},
      {"rows", heads_.rows()},
      {"pitch", heads_.rows() + padding},
      {"passpitch", passing + padding},
      {"chunkpitch", std::max(heads_.rows() + passing + 2 * padding, padded)},
      {"padded", padded},
      {"columns", padded / across},
      {"heads", heads_.heads},
      {"queries", heads_.queries},
      {"keys", heads_.keys},
      {"depth", heads_.depth},
      {"width", heads_.width},
  };
  for (const auto& [word, number] : numbers) text_.set(word, number);
  text_.set("element", loop::memory_type(dtype));
  text_.set("loaded", loop::from_memory("pack.at[e]", dtype));
  text_.set("ofdy", loop::from_memory("element", dtype));
  text_.set("narrowed", loop::to_memory("value", dtype));
  const bool cuda = language == loop::GpuLanguage::cuda;
  text_.set("exp", cuda ? "exp2f" : "exp2");
  text_.set("log", cuda ? "log2f" : "log2");
  text_.set("binary", literal(std::numbers::log2e));
  text_.set("natural", literal(std::numbers::ln2));
  text_.set("scale", literal(heads_.scale * std::numbers::log2e));
  text_.set("slope", literal(heads_.scale));
  text_.set("column", "(c / 4 * 4 * $across + own_column * 4 + c % 4)");
  text_.set("score", "scores[r][c] * $scale");
  text_.set("before", "");
  text_.set("low", "0");
  text_.set("inverse", "1.0f / total[r]");
  text_.set("visible", heads_.causal ? "key < $keys && key <= query" : "key < $keys");
  text_.set("seen", heads_.causal ? "first + $rows < $keys ? first + $rows : $keys" : "$keys");
  if (cached) set_cached(node);
  text_.set("begin", heads_.causal ? "first / $passing * $passing" : "0");
  text_.set("chunks", "for (i32 d = 0; d < $depth; d += $chunk)");
  text_.set("multiplyproducts",
            text_.filled(multiply, {{"count", "8"}, {"rightpitch", "$passpitch"}}));
  text_.set("multiplysums",
            text_.filled(multiply, {{"count", "$columns"}, {"rightpitch", "$padded"}}));
  text_.define(define_pack);
  text_.define(helpers);
}

void Text::set_cached(const Node& node) {
  const bool starts = node.attrs.has("start");
  text_.set("before", "\n  const i32 before = " +
                          (starts ? "(i32)(" + pointer("in", 3, launch_.operands[3]) + ")[batch];"
                                  : string("0;")));
  set_cached_words(text_, node, "scores[r][c]");
  text_.set("seen", "first + $rows + before < $keys ? first + $rows + before : $keys");
  text_.set("inverse", "total[r] == 0.0f ? 0.0f : 1.0f / total[r]");
  if (node.attrs.has("window")) {
    text_.set("window", heads_.window);
    text_.set(
        "low",
        "first + before >= $window ? (first + before + 1 - $window) / $passing * $passing : 0");
  }
}

string Text::begun(const Matrix& kept, bool last_first) {
  text_.set("tiles", heads_.tiles(kept.rows));
  text_.set("tile", last_first ? "($tiles - 1 - (i32)GROUP % $tiles)" : "((i32)GROUP % $tiles)");
  return text_.filled(begin);
}

string Text::placed(const Matrix& matrix, const char* kind, size_t index, int64_t first_head) {
  Access access = kind == string("in") ? launch_.operands[index] : launch_.results[index];
  const Dims& strides = access.at.strides;
  access.at.offset += first_head * strides[1];
  const bool has_key_heads = kind == string("in") && access.value.dim(1) == heads_.key_heads;
  const int64_t shared = has_key_heads ? heads_.heads / heads_.key_heads : 1;
  return text_.filled(place_matrix, {{"matrix", matrix.name},
                                     {"type", loop::memory_type(access.value.dtype())},
                                     {"pointer", pointer(kind, index, access)},
                                     {"batch", std::to_string(strides[0])},
                                     {"head", "head / " + std::to_string(shared)},
                                     {"stride", std::to_string(strides[1])},
                                     {"row", std::to_string(strides[2])}});
}

string Text::products(const string& sums, const Matrix& kept, const Matrix& passed) const {
  return text_.filled(multiply_rows, {{"sums", sums},
                                      {"kept", kept.name},
                                      {"keptrows", std::to_string(kept.rows)},
                                      {"passed", passed.name},
                                      {"passedrows", std::to_string(passed.rows)}});
}

string Text::weighed(const string& sums, const string& weights, const Matrix& passed) const {
  return text_.filled(weigh_rows, {{"sums", sums},
                                   {"weights", weights},
                                   {"passed", passed.name},
                                   {"passedrows", std::to_string(passed.rows)}});
}

string Text::stored(const Matrix& to, const string& sums, const string& factor) const {
  return text_.filled(store_rows, {{"kept", to.name},
                                   {"keptrows", std::to_string(to.rows)},
                                   {"sums", sums},
                                   {"factor", factor}});
}

string Text::attended() {
  return text_.filled(attend, {{"zerosums", zeros("sums", "$columns")},
                               {"zeroscores", zeros("scores", "8")},
                               {"products", products("scores", q_, k_)},
                               {"weighed", weighed("sums", "scores", v_)},
                               {"combined", combined("total")}}) +
         invert;
}

string Text::stored_logsumexp(size_t result) {
  return placed({"logsumexp", heads_.queries}, "out", result) + text_.filled(store_logsumexp);
}

loop::GpuKernel Text::attention() {
  const Matrix y{"y", heads_.queries};
  string body = begun(q_, heads_.causal) + placed(q_, "in", 0) + placed(k_, "in", 1) +
                placed(v_, "in", 2) + placed(y, "out", 0) + attended() +
                stored(y, "sums", " * total[r]");
  if (launch_.results.size() > 1) body += stored_logsumexp(1);
  text_.launch(heads_.groups(heads_.queries), threads, body);
  return text_.finish(0);
}

loop::GpuKernel Text::logsumexp() {
  text_.launch(heads_.groups(heads_.queries), threads,
               begun(q_, heads_.causal) + placed(q_, "in", 0) + placed(k_, "in", 1) +
                   placed(v_, "in", 2) + attended() + stored_logsumexp(0));
  return text_.finish(0);
}

loop::GpuKernel Text::gradient() {
  const Matrix dy{"dy", heads_.queries}, y{"y", heads_.queries}, dq{"dq", heads_.queries},
      dk{"dk", heads_.keys}, dv{"dv", heads_.keys};
  auto inputs = [&] {
    return placed(q_, "in", 0) + placed(k_, "in", 1) + placed(v_, "in", 2) + placed(dy, "in", 3) +
           placed({"logsumexp", heads_.queries}, "in", 5) + dots_of_head;
  };
  auto sums = [&](const string& name) {
    return "\n  f32 " + name + "[$own][$columns];" + zeros(name, "$columns");
  };
  const string zero_both = zeros("scores", "8") + zeros("changes", "8");
  const Words of_row{{"count", "$own"}, {"i", "r"}, {"query", "first + own_row + r"}},
      of_column{{"count", "8"}, {"i", "c"}, {"query", "next + $column"}};

  auto dots = [&](const char* result) {
    return text_.filled(make_dots, {{"result", result}, {"combined", combined("dot")}});
  };
  string dots_of_rows;
  if (launch_.operands[4].value.dtype() == DType::f32) {
    dots_of_rows = placed(y, "in", 4) + dots("y[query * y_stride + column]");
  } else {
    text_.launch(
        heads_.groups(heads_.queries), threads,
        begun(q_, heads_.causal) + inputs() + attended() + dots("(sums[r][c] * total[r])"));
    dots_of_rows = text_.filled(load_dots, of_row);
  }
  text_.launch(
      heads_.groups(heads_.queries), threads,
      begun(q_, heads_.causal) + inputs() + placed(dq, "out", 0) + dots_of_rows +
          text_.filled(
              sum_by_queries,
              {{"zero", sums("dq_sums")},
               {"shifts", text_.filled(load_shifts, of_row)},
               {"products", zero_both + products("scores", q_, k_) + products("changes", dy, v_)},
               {"change",
                text_.filled(change, {{"keptone", "query"}, {"passedone", "key"}, {"i", "r"}})},
               {"weighed", weighed("dq_sums", "changes", k_)}}) +
          stored(dq, "dq_sums"));
  text_.launch(
      heads_.groups(heads_.keys), threads,
      begun(k_, false) + inputs() + placed(dk, "out", 0, heads_.heads) +
          placed(dv, "out", 0, 2 * heads_.heads) +
          text_.filled(
              sum_by_keys,
              {{"zero", sums("dk_sums") + sums("dv_sums")},
               {"shifts", text_.filled(load_shifts, of_column)},
               {"dots", text_.filled(load_dots, of_column)},
               {"products", zero_both + products("scores", k_, q_) + products("changes", v_, dy)},
               {"change",
                text_.filled(change, {{"keptone", "key"}, {"passedone", "query"}, {"i", "c"}})},
               {"weighed", weighed("dv_sums", "scores", dy) + weighed("dk_sums", "changes", q_)}}) +
          stored(dk, "dk_sums") + stored(dv, "dv_sums"));
  return text_.finish(heads_.gradient_scratch());
}
}  // namespace

std::optional<KernelChoice> choose_attention(const Node& node,
                                             std::span<const Placement> operands) {
  const bool backward = node.op->role == Role::backward;
  const DType dtype = node.inputs[0].dtype();
  const Heads heads(node);
  const bool cached = is_cached_attention(node);
  if (!is_plain_attention(node) && !cached) return std::nullopt;
  if (!is_float(dtype) || size_of(dtype) > 4) return std::nullopt;
  const bool few = cached && node.attrs.has("start") && has_few_queries(node);
  if (!few && std::max(heads.depth, heads.width) > most_depth) return std::nullopt;
  if (backward && heads.key_heads != heads.heads) return std::nullopt;
  if (element_count(node.inputs[0].shape()) == 0 || element_count(node.inputs[2].shape()) == 0)
    return std::nullopt;
  KernelChoice choice;
  choice.kernel = "weft:" + string(node.op->name);
  // The heads of a token are adjacent in memory, as the projections around attention need them.
  if (node.op->role == Role::forward || backward) choice.result_order = {0, 2, 1, 3};
  choice.operand_order.resize(operands.size());
  for (size_t i = 0; i < (cached ? 3 : operands.size()); ++i)
    if (node.inputs[i].dim(3) > 1 && operands[i].strides[3] != 1)
      choice.operand_order[i] = Dims{0, 2, 1, 3};
  if (cached && operands.size() > 3) choice.operand_order[3] = Dims{0};
  if (few) choice.workspace = cached_attention_scratch(node);
  if (backward) choice.workspace = heads.gradient_scratch();
  return choice;
}
std::optional<KernelChoice> choose_attention_with(std::span<const Value> body,
                                                  std::span<const Value> results,
                                                  std::span<const Placement> operands) {
  if (!is_attention_with_logsumexp(body, results)) return std::nullopt;
  std::optional<KernelChoice> choice = choose_attention(*body.front().node(), operands);
  if (choice) choice->kernel += ".and_logsumexp";
  return choice;
}

loop::GpuKernel attention(const Launch& launch, loop::GpuLanguage language,
                          const std::string& prefix) {
  const Node& node = *launch.body.front().node();
  if (node.attrs.has("start") && has_few_queries(node))
    return cached_attention(launch, language, prefix);
  return Text(launch, language, prefix).attention();
}
loop::GpuKernel attention_logsumexp(const Launch& launch, loop::GpuLanguage language,
                                    const std::string& prefix) {
  return Text(launch, language, prefix).logsumexp();
}
loop::GpuKernel attention_backward(const Launch& launch, loop::GpuLanguage language,
                                   const std::string& prefix) {
  return Text(launch, language, prefix).gradient();
}

}  // namespace weft::gpu
