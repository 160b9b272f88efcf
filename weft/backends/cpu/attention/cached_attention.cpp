// Computes causal attention whose keys are a KV cache: the query at position p reads only the keys
// of its window up to p, however long the cache is. A row is one query of one head. Keys and values
// are read once per block of rows, whose heads share them. Sums are rescaled as the maximum grows
// (flash attention, Dao et al. 2022), so that scratch does not depend on the cache's extent.
#include <algorithm>
#include <limits>

#include "weft/backends/cpu/kernels.h"
#include "weft/backends/cpu/simd/elements.h"
#include "weft/base/host/parallel.h"
#include "weft/base/numbers/rounding.h"
#include "weft/device/attention_heads.h"

// A multiply-add is one operation of a product, so it may be contracted to one instruction.
#if defined(__clang__)
#pragma clang fp contract(fast)
#else
#pragma GCC optimize("O3", "fp-contract=fast")
#endif
#include "weft/backends/cpu/attention/attention_tiles.h"

namespace weft::cpu {
namespace {
constexpr int64_t most_rows = 32, block_keys = 64;
static_assert(block_keys % column_unit == 0 && most_rows % row_unit == 0);

struct Heads : AttentionHeads {
  float softcap;  // 0: none

  explicit Heads(const Node& node)
      : AttentionHeads(node),
        softcap(node.attrs.has("softcap") ? static_cast<float>(node.attrs.number("softcap")) : 0) {}

  // The rows of a key head are the queries of all heads that share it, position by position.
  int64_t group() const { return heads / key_heads; }
  int64_t rows() const { return queries * group(); }
  int64_t rows_at_a_time() const { return std::min(most_rows, rows()); }
  int64_t blocks() const { return ceil_div(rows(), rows_at_a_time()); }
};

struct Scratch {
  Matrix queries, keys_across, values, scores, y;
  size_t bytes = 0;

  // Without memory (`at` is null), only its size is computed.
  explicit Scratch(const Heads& heads, std::byte* at = nullptr) {
    const int64_t rows = round_up(heads.rows_at_a_time(), row_unit);
    const int64_t depth = round_up(heads.depth, column_unit);
    const int64_t width = round_up(heads.width, column_unit);
    auto take = [&](Matrix& matrix, int64_t count, int64_t stride) {
      matrix = {at == nullptr ? nullptr : reinterpret_cast<float*>(at + bytes), stride};
      bytes += static_cast<size_t>(count * stride) * sizeof(float);
    };
    take(queries, rows, depth), take(keys_across, depth, block_keys);
    take(values, block_keys, std::max(width, depth)), take(scores, rows, block_keys);
    take(y, rows, width);
  }
};

struct Tensors {
  Placed q, k, v, y;
  const void* start = nullptr;  // null: 0 for each row of the batch
  DType start_type = DType::i64;
  int64_t first(int64_t b) const { return start == nullptr ? 0 : load_int(start, start_type, b); }
};

template <class Element, int vector_bytes, int tile_rows>
struct Machine : AttentionTiles<vector_bytes, tile_rows> {
  using Tiles = AttentionTiles<vector_bytes, tile_rows>;
  using Tiles::at, Tiles::copy_in, Tiles::copy_row, Tiles::exp, Tiles::lane_numbers, Tiles::lanes,
      Tiles::most_of, Tiles::of, Tiles::product, Tiles::sum, Tiles::take_across, Tiles::zero;
  using typename Tiles::Bits, typename Tiles::Vector;

  // Row is one query of one head, with the maximum score and the sum of weights so far.
  struct Row {
    int64_t head, query;
    int64_t low, seen;  // it attends to keys low .. seen - 1
    float most = hidden_score, total = 0;
  };

  // Returns softcap tanh(x / softcap), from e^(-2 |x| / softcap).
  [[gnu::always_inline]] static Vector capped(Vector x, float softcap) {
    const auto negative = less(x, Vector{});
    const Vector e = exp(choose(negative, x, -x) * (2 / softcap));
    const Vector y = (1 - e) / (1 + e) * softcap;
    return choose(negative, -y, y);
  }

  // Replaces `scores`, the products of a row with block_keys keys from `key` on, by weights
  // relative to the row's new maximum. Returns the factor that rescales the row's earlier sum of
  // values.
  [[gnu::always_inline]] static float weigh(const Heads& heads, Row& row, float* scores,
                                            int64_t key) {
    const Vector hidden = of(hidden_score);
    const auto low = static_cast<int32_t>(std::clamp<int64_t>(row.low - key, 0, block_keys));
    const auto seen = static_cast<int32_t>(std::clamp<int64_t>(row.seen - key, 0, block_keys));
    Vector most = hidden;
    for (int64_t j = 0; j < block_keys; j += lanes) {
      Vector score = at(scores + j) * static_cast<float>(heads.scale);
      if (heads.softcap > 0) score = capped(score, heads.softcap);
      const Bits place = lane_numbers() + static_cast<int32_t>(j);
      score = choose(less(place, Bits{} + low), hidden, score);
      score = choose(less(place, Bits{} + seen), score, hidden);
      at(scores + j) = score;
      most = choose(less(most, score), score, most);
    }
    const float top = std::max(row.most, most_of(most));
    if (top == hidden_score) {  // no visible key so far, or only scores of NaN or -inf
      const float weight = low < seen ? std::numeric_limits<float>::quiet_NaN() : 0;
      for (int64_t j = 0; j < block_keys; j += lanes) at(scores + j) = of(weight);
      row.total += weight;
      return 1;
    }
    Vector total{};
    for (int64_t j = 0; j < block_keys; j += lanes) {
      at(scores + j) = exp(at(scores + j) - top);
      total += at(scores + j);
    }
    const float factor = exp(of(row.most - top))[0];
    row.most = top;
    row.total = row.total * factor + sum(total);
    return factor;
  }

  // Returns the product of two rows of `depth` elements.
  [[gnu::always_inline]] static float dot(const float* a, float* b, int64_t depth) {
    Vector sums[2] = {};
    int64_t i = 0;
    for (; i + 2 * lanes <= depth; i += 2 * lanes) {
      sums[0] += at(const_cast<float*>(a) + i) * at(b + i);
      sums[1] += at(const_cast<float*>(a) + i + lanes) * at(b + i + lanes);
    }
    float total = sum(sums[0] + sums[1]);
    for (; i < depth; ++i) total += a[i] * b[i];
    return total;
  }
  // Adds to y[j] the sum over keys of weights[key] v[key, j].
  [[gnu::always_inline]] static void add_weighted(const float* weights, const Matrix& v,
                                                  int64_t keys, int64_t width, float* y) {
    int64_t j = 0;
    for (; j + 4 * lanes <= width; j += 4 * lanes) {
      Vector sums[4];
      for (int part = 0; part < 4; ++part) sums[part] = at(y + j + part * lanes);
      for (int64_t key = 0; key < keys; ++key)
        for (int part = 0; part < 4; ++part)
          sums[part] += weights[key] * at(v.row(key) + j + part * lanes);
      for (int part = 0; part < 4; ++part) at(y + j + part * lanes) = sums[part];
    }
    for (; j < width; ++j)
      for (int64_t key = 0; key < keys; ++key) y[j] += weights[key] * v.row(key)[j];
  }
  // Returns rows of float32: the tensor's own, or copies in scratch.
  [[gnu::always_inline]] static Matrix widened(const Rows<Element>& from, int64_t count,
                                               int64_t columns, const Matrix& scratch) {
    if constexpr (std::is_same_v<Element, float>) {
      return from;
    } else {
      copy_in(from, count, columns, scratch, count);
      return scratch;
    }
  }

  // Prefetches rows of a head of the cache: so few rows do not trigger the hardware prefetcher.
  [[gnu::always_inline]] static void prefetch(const Rows<Element>& rows, int64_t count,
                                              int64_t columns) {
    constexpr int64_t line = 64 / int64_t{sizeof(Element)};
    for (int64_t i = 0; i < count; ++i)
      for (int64_t j = 0; j < columns; j += line) __builtin_prefetch(rows.row(i) + j);
  }

  // Computes the rows of one block of one key head.
  [[gnu::always_inline]] static void block(const Heads& heads, const Tensors& all,
                                           const Scratch& own, int64_t b, int64_t key_head,
                                           int64_t first_row) {
    const int64_t count = std::min(heads.rows_at_a_time(), heads.rows() - first_row);
    const int64_t padded = round_up(count, int64_t{tile_rows});
    const int64_t start = all.first(b);
    Row rows[most_rows];
    int64_t low = heads.keys, seen = 0;
    for (int64_t i = 0; i < count; ++i) {
      Row& row = rows[i];
      row = {key_head * heads.group() + (first_row + i) % heads.group(),
             (first_row + i) / heads.group(), 0, 0};
      const int64_t position = start + row.query;
      row.seen = std::clamp<int64_t>(position + 1, 0, heads.keys);
      row.low = position < heads.window ? 0 : position - heads.window + 1;
      low = std::min(low, row.low), seen = std::max(seen, row.seen);
      copy_in(all.q.of<Element>(b, row.head).from(row.query), 1, heads.depth, own.queries.from(i),
              1);
    }
    zero(own.queries, count, padded), zero(own.y, 0, padded);
    const bool few = count <= tile_rows / 2;  // tiles would compute more padding than rows
    const Rows<Element> k = all.k.of<Element>(b, key_head), v = all.v.of<Element>(b, key_head);
    const bool last_head = key_head + 1 == heads.key_heads;
    const Rows<Element> next_k = all.k.of<Element>(last_head ? std::min(b + 1, heads.batch - 1) : b,
                                                   last_head ? 0 : key_head + 1);
    const int64_t first = low / block_keys * block_keys;
    for (int64_t key = first; key < seen; key += block_keys) {
      const int64_t keys = std::min(block_keys, seen - key), next = key + block_keys;
      prefetch(v.from(key), keys, heads.width);
      const Matrix copied_keys{own.values.data, round_up(heads.depth, column_unit)};
      if (few) {
        const Matrix rows_of_keys = widened(k.from(key), keys, heads.depth, copied_keys);
        for (int64_t i = 0; i < count; ++i)
          for (int64_t j = 0; j < keys; ++j)
            own.scores.row(i)[j] = dot(own.queries.row(i), rows_of_keys.row(j), heads.depth);
      } else {
        take_across(k.from(key), keys, heads.depth, copied_keys, own.keys_across);
        product(own.queries.data, own.queries.stride, 1, own.keys_across, own.scores, padded,
                block_keys, heads.depth, false);
      }
      if (next < seen)
        prefetch(k.from(next), std::min(block_keys, seen - next), heads.depth);
      else
        prefetch(next_k.from(first), std::min(block_keys, seen - first), heads.depth);
      for (int64_t i = 0; i < count; ++i) {
        const float factor = weigh(heads, rows[i], own.scores.row(i), key);
        if (factor == 1) continue;
        for (int64_t j = 0; j < own.y.stride; j += lanes) at(own.y.row(i) + j) *= factor;
      }
      const Matrix copied_values{own.values.data, own.y.stride};
      if (few) {
        const Matrix values = widened(v.from(key), keys, heads.width, copied_values);
        for (int64_t i = 0; i < count; ++i)
          add_weighted(own.scores.row(i), values, keys, heads.width, own.y.row(i));
        continue;
      }
      // Rows that are whole tiles are read in place.
      const bool whole = heads.width % (2 * lanes) == 0;
      if (!whole) copy_in(v.from(key), keys, heads.width, copied_values, keys);
      product(own.scores.data, own.scores.stride, 1,
              whole ? widened(v.from(key), keys, heads.width, copied_values) : copied_values, own.y,
              padded, whole ? heads.width : own.y.stride, keys, true);
    }
    for (int64_t i = 0; i < count; ++i) {
      const float* from = own.y.row(i);
      const float inverse = rows[i].total > 0 ? 1 / rows[i].total : 0;
      Element* to = all.y.of<Element>(b, rows[i].head).row(rows[i].query);
      for (int64_t j = 0; j < heads.width; ++j) to[j] = from_lane<Element>(from[j] * inverse);
    }
  }

  [[gnu::always_inline]] static void run(const Heads* heads, const Tensors* all, std::byte* scratch,
                                         int64_t begin, int64_t end) {
    const Scratch own(*heads, scratch);
    const int64_t blocks = heads->blocks();
    for (int64_t item = begin; item < end; ++item) {
      const int64_t head = item / blocks;
      block(*heads, *all, own, head / heads->key_heads, head % heads->key_heads,
            item % blocks * heads->rows_at_a_time());
    }
  }
};

using Runner = void (*)(const Heads*, const Tensors*, std::byte*, int64_t, int64_t);
Runner runner(DType dtype) { return attention_runner<Machine, Runner>(dtype); }

class CachedAttention : public Kernel {
 public:
  explicit CachedAttention(const Launch& launch)
      : heads_(*launch.body.front().node()),
        inputs_(bind_inputs(launch)),
        result_(bind_result(launch)),
        run_(runner(result_.type.dtype)),
        threads_(thread_count()) {
    const size_t needed = static_cast<size_t>(threads_) * Scratch(heads_).bytes;
    WEFT_ASSERT(needed <= launch.workspace, "{} plans {} bytes but needs {}", launch.kernel,
                launch.workspace, needed);
  }

  void run(void* const* operands, void* const* results, void* workspace) const override {
    Tensors all;
    all.q = {inputs_[0].in(operands), inputs_[0].strides};
    all.k = {inputs_[1].in(operands), inputs_[1].strides};
    all.v = {inputs_[2].in(operands), inputs_[2].strides};
    all.y = {result_.out(results), result_.strides};
    if (inputs_.size() > 3) {
      all.start = inputs_[3].in(operands);
      all.start_type = inputs_[3].type.dtype;
    }
    const int64_t items = heads_.batch * heads_.key_heads * heads_.blocks();
    const int64_t parts = std::min<int64_t>(threads_, items);
    const size_t scratch = Scratch(heads_).bytes;
    parallel_for(parts, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part)
        run_(&heads_, &all,
             static_cast<std::byte*>(workspace) + static_cast<size_t>(part) * scratch,
             items * part / parts, items * (part + 1) / parts);
    });
  }

 private:
  Heads heads_;
  std::vector<Bound> inputs_;  // q, k, v, and the start, if any
  Bound result_;
  Runner run_;
  int threads_;
};
}  // namespace

std::optional<KernelChoice> choose_cached_attention(const Node& node,
                                                    std::span<const Placement> operands) {
  if (runner(node.type.dtype) == nullptr) return std::nullopt;
  if (element_count(node.inputs[0].shape()) == 0 || element_count(node.inputs[2].shape()) == 0)
    return std::nullopt;
  KernelChoice choice;
  choice.kernel = "weft:cached_attention";
  choice.algorithm = static_cast<int>(Algorithm::attention_cached);
  // The heads of a token are adjacent, as the projections around attention expect them.
  choice.result_order = Dims{0, 2, 1, 3};
  choice.operand_order.resize(operands.size());
  for (size_t i = 0; i < 3; ++i)
    if (operands[i].strides[3] != 1) choice.operand_order[i] = Dims{0, 2, 1, 3};
  if (operands.size() > 3) choice.operand_order[3] = Dims{0};
  choice.workspace = static_cast<size_t>(thread_count()) * Scratch(Heads(node)).bytes;
  return choice;
}

std::unique_ptr<Kernel> compile_cached_attention(const Launch& launch) {
  return std::make_unique<CachedAttention>(launch);
}
}  // namespace weft::cpu
