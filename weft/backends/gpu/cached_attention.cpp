// A thread group has one key head: all queries that share it, and a part of its keys, tile by tile.
// In a tile, each thread multiplies one key by all queries; then each thread sums the weighted
// values in some columns. Sums are rescaled as the maximum grows. A second launch combines the
// parts.
#include "weft/backends/gpu/cached_attention.h"

#include <algorithm>
#include <numbers>

#include <fmt/format.h>

#include "weft/backends/gpu/kernel_text.h"
#include "weft/base/numbers/rounding.h"
#include "weft/codegen/gpu_scalar.h"
#include "weft/device/attention_heads.h"
#include "weft/ir/op_def.h"

namespace weft::gpu {
namespace {
constexpr int64_t threads = 64, members = 4;      // of a group, and of a row's scan
constexpr int64_t most_rows = threads / members;  // a row is a query of one head
constexpr int64_t most_sums = 32;                 // of a thread
constexpr int64_t enough_groups = 256;            // for a device

struct Heads : AttentionHeads {
  using AttentionHeads::AttentionHeads;

  int64_t shared() const { return heads / key_heads; }  // heads that share keys
  int64_t rows() const { return queries * shared(); }
  int64_t sums() const { return ceil_div(rows() * width, threads); }  // of a thread
  int64_t parts() const {
    return std::clamp<int64_t>(enough_groups / (batch * key_heads), 1, ceil_div(keys, threads));
  }
  int64_t all_rows() const { return batch * key_heads * rows(); }
};

// Scratch holds, for each part of each row, its sums, and then the maximum and the total of each.
constexpr const char* attend = R"(
  SHARED f32 q[$rows * $depth], weights[$rows * $threads], tops[$rows * $members], factors[$rows];
  const i32 part = (i32)GROUP % $parts, pair = (i32)GROUP / $parts;
  const i32 head = pair % $keyheads, batch = pair / $keyheads;
  GLOBAL const $element* queries = $q + batch * (i64)$qbatch;
  GLOBAL const $element* keys = $k + (batch * (i64)$kbatch + head * (i64)$khead);
  GLOBAL const $element* values = $v + (batch * (i64)$vbatch + head * (i64)$vhead);
  const i32 before = (i32)($start)[batch];
  const i32 seen = before + $queries < $keys ? before + $queries : $keys, low = $low;
  const i32 each = ((seen - low + $parts - 1) / $parts + $threads - 1) / $threads * $threads;
  const i32 begin = low + part * each, end = begin + each < seen ? begin + each : seen;
  for (i32 i = THREAD; i < $rows * $depth; i += $threads) {
    const i32 row = i / $depth, query = row / $shared, member = row % $shared;
    const $element element =
        queries[(head * $shared + member) * (i64)$qhead + query * (i64)$qrow + i % $depth];
    q[i] = $loadedq;
  }
  f32 most[$rows], total[$rows], sums[$sums];
#pragma unroll
  for (i32 r = 0; r < $rows; ++r) most[r] = -F32_INFINITY, total[r] = 0.0f;
#pragma unroll
  for (i32 s = 0; s < $sums; ++s) sums[s] = 0.0f;
  for (i32 first = begin; first < end; first += $threads) {
    const i32 key = first + (i32)THREAD;
    f32 scores[$rows];
#pragma unroll
    for (i32 r = 0; r < $rows; ++r) scores[r] = 0.0f;
    BARRIER;
    if (key < end) {
      for (i32 d = 0; d < $depth; d += $vector) {
        const $prefix_pack pack = *(GLOBAL const $prefix_pack*)(keys + key * (i64)$krow + d);
#pragma unroll
        for (i32 e = 0; e < $vector; ++e) {
          const f32 element = $loadedk;
#pragma unroll
          for (i32 r = 0; r < $rows; ++r)
            scores[r] = fmaf(element, q[r * $depth + d + e], scores[r]);
        }
      }
    }
#pragma unroll
    for (i32 r = 0; r < $rows; ++r) {
      const i32 query = r / $shared;
      scores[r] = key < end && $visible ? $score : -F32_INFINITY;
      weights[r * $threads + THREAD] = scores[r];
    }
    BARRIER;
    if ((i32)THREAD < $rows * $members) {
      f32 top = -F32_INFINITY;
      for (i32 i = 0; i < $threads / $members; ++i) {
        const f32 score = weights[(i32)THREAD * ($threads / $members) + i];
        top = score > top ? score : top;
      }
      tops[THREAD] = top;
    }
    BARRIER;
#pragma unroll
    for (i32 r = 0; r < $rows; ++r) {
      const f32 earlier = most[r];
#pragma unroll
      for (i32 i = 0; i < $members; ++i)
        most[r] = tops[r * $members + i] > most[r] ? tops[r * $members + i] : most[r];
      const f32 shift = most[r] == -F32_INFINITY ? 0.0f : most[r], factor = $exp(earlier - shift);
      const f32 weight = $exp(scores[r] - shift);
      total[r] = total[r] * factor + weight;
      weights[r * $threads + THREAD] = weight;
      if (THREAD == 0) factors[r] = factor;
    }
    BARRIER;
    const i32 count = end - first < $threads ? end - first : $threads;
#pragma unroll
    for (i32 s = 0; s < $sums; ++s) {
      const i32 i = (i32)THREAD + s * $threads;
      if (i >= $rows * $width) continue;
      const i32 row = i / $width, column = i % $width;
      f32 sum = sums[s] * factors[row];
#pragma unroll 8
      for (i32 j = 0; j < count; ++j) {
        const $element element = values[(first + j) * (i64)$vrow + column];
        sum = fmaf(weights[row * $threads + j], $loadedv, sum);
      }
      sums[s] = sum;
    }
  }
  BARRIER;
#pragma unroll
  for (i32 r = 0; r < $rows; ++r) weights[r * $threads + THREAD] = total[r];
  BARRIER;
  GLOBAL f32* stored = (GLOBAL f32*)(scratch_memory + scratch_at);
  GLOBAL f32* ends = stored + (i64)$allrows * $parts * $width;
#pragma unroll
  for (i32 r = 0; r < $rows; ++r) {
    if (THREAD != r) continue;
    f32 all = 0.0f;
    for (i32 i = 0; i < $threads; ++i) all += weights[r * $threads + i];
    const i64 at = ((i64)pair * $rows + r) * $parts + part;
    ends[2 * at] = most[r], ends[2 * at + 1] = all;
  }
#pragma unroll
  for (i32 s = 0; s < $sums; ++s) {
    const i32 i = (i32)THREAD + s * $threads;
    if (i >= $rows * $width) continue;
    stored[(((i64)pair * $rows + i / $width) * $parts + part) * $width + i % $width] = sums[s];
  }
)";
constexpr const char* combine = R"(
  GLOBAL const f32* stored = (GLOBAL const f32*)(scratch_memory + scratch_at);
  GLOBAL const f32* ends = stored + (i64)$allrows * $parts * $width;
  const i32 i = (i32)(GROUP * $threads + THREAD);
  if (i >= $allrows * $width) return;
  const i32 at = i / $width, column = i % $width, pair = at / $rows, row = at % $rows;
  f32 most = -F32_INFINITY, total = 0.0f, sum = 0.0f;
  for (i32 part = 0; part < $parts; ++part) {
    const f32 top = ends[2 * (at * $parts + part)];
    most = top > most ? top : most;
  }
  for (i32 part = 0; part < $parts; ++part) {
    const f32 top = ends[2 * (at * $parts + part)];
    const f32 factor = top == -F32_INFINITY ? 0.0f : $exp(top - most);
    total += factor * ends[2 * (at * $parts + part) + 1];
    sum += factor * stored[(at * $parts + part) * (i64)$width + column];
  }
  const f32 value = total == 0.0f ? 0.0f : sum / total;
  const i32 head = pair % $keyheads * $shared + row % $shared;
  ($y)[pair / $keyheads * (i64)$ybatch + head * (i64)$yhead + row / $shared * (i64)$yrow + column] =
      $narrowed;
)";
}  // namespace

void set_cached_words(KernelText& text, const Node& node, const std::string& product) {
  const Heads heads(node);
  std::string visible = "key < $keys && key <= query + before";
  if (node.attrs.has("window"))
    visible += fmt::format(" && query + before - key < {}", heads.window);
  text.set("visible", visible);
  const double cap = node.attrs.has("softcap") ? node.attrs.number("softcap") : 0;
  const std::string scale = literal(heads.scale * std::numbers::log2e);
  text.set("score", cap == 0
                        ? product + " * " + scale
                        : fmt::format("{} * tanhf({} * {})", literal(cap * std::numbers::log2e),
                                      product, literal(heads.scale / cap)));
}

bool has_few_queries(const Node& node) {
  const Heads heads(node);
  return heads.rows() <= most_rows && heads.sums() <= most_sums;
}

size_t cached_attention_scratch(const Node& node) {
  const Heads heads(node);
  return static_cast<size_t>(heads.all_rows() * heads.parts() * (heads.width + 2)) * sizeof(float);
}

loop::GpuKernel cached_attention(const Launch& launch, loop::GpuLanguage language,
                                 const std::string& prefix) {
  const Node& node = *launch.body.front().node();
  const Heads heads(node);
  const DType dtype = node.type.dtype;
  const Access &q = launch.operands[0], &k = launch.operands[1], &v = launch.operands[2],
               &start = launch.operands[3], &y = launch.results[0];
  KernelText text(launch, language, prefix);
  const int vector =
      vector_of(dtype, std::vector<int64_t>{heads.depth, k.at.offset, k.at.strides[0],
                                            k.at.strides[1], k.at.strides[2]});
  const std::pair<const char*, int64_t> numbers[] = {
      {"threads", threads},
      {"members", members},
      {"rows", heads.rows()},
      {"depth", heads.depth},
      {"width", heads.width},
      {"parts", heads.parts()},
      {"keyheads", heads.key_heads},
      {"shared", heads.shared()},
      {"queries", heads.queries},
      {"keys", heads.keys},
      {"sums", heads.sums()},
      {"allrows", heads.all_rows()},
      {"vector", vector},
  };
  for (const auto& [word, number] : numbers) text.set(word, number);
  const auto place = [&](const std::string& name, const Access& access, const char* kind,
                         size_t index) {
    text.set(name, "(" + pointer(kind, index, access) + ")");
    text.set(name + "batch", access.at.strides[0]);
    text.set(name + "head", access.at.strides[1]);
    text.set(name + "row", access.at.strides[2]);
  };
  place("q", q, "in", 0), place("k", k, "in", 1), place("v", v, "in", 2), place("y", y, "out", 0);
  text.set("start", pointer("in", 3, start));
  text.set("element", loop::memory_type(dtype));
  text.set("loadedq", loop::from_memory("element", dtype));
  text.set("loadedk", loop::from_memory("pack.at[e]", dtype));
  text.set("loadedv", loop::from_memory("element", dtype));
  text.set("narrowed", loop::to_memory("value", dtype));
  text.set("exp", language == loop::GpuLanguage::cuda ? "exp2f" : "exp2");
  if (node.attrs.has("window"))
    text.set("low", fmt::format("before >= {0} ? before - {0} + 1 : 0", heads.window));
  else
    text.set("low", "0");
  set_cached_words(text, node, "scores[r]");
  text.define(define_pack);
  text.launch(heads.batch * heads.key_heads * heads.parts(), threads, attend);
  constexpr int64_t combining = 128;
  text.launch(ceil_div(heads.all_rows() * heads.width, combining), combining, combine);
  return text.finish(cached_attention_scratch(node));
}

}  // namespace weft::gpu
