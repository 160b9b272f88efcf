// Computes attention and its gradient without storing the matrix of scores, also where a bool mask
// or a window hides keys. 16-bit operands are widened as they are read, and everything in between
// is float32. A thread holds a few rows of scores at a time, and the gradient recomputes them
// (flash attention, Dao et al. 2022); rows are whole, so softmax needs no running maximum. Causal
// scores that are masked for a whole block of rows are not computed.
//
// This is one file because both passes are inlined into one function for each instruction set and
// element type, all of it below this file's #pragma about optimization.
#include <algorithm>

#include "weft/backends/cpu/kernels.h"
#include "weft/backends/cpu/simd/elements.h"
#include "weft/base/host/parallel.h"
#include "weft/base/memory/buffer.h"
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
constexpr int64_t most_rows = 32, most_scores = 32 << 10;

struct Heads : AttentionHeads {
  using AttentionHeads::AttentionHeads;

  // Returns the rows of scores that are held at a time.
  int64_t rows() const {
    const int64_t fitting = most_scores / round_up(keys, column_unit) / row_unit * row_unit;
    return std::clamp(fitting, row_unit, std::min(most_rows, round_up(queries, row_unit)));
  }
  int64_t blocks() const { return ceil_div(queries, rows()); }
  int64_t sharing() const { return heads / key_heads; }  // query heads of one key head
  // `query` attends to the keys low(query) .. seen(query) - 1, except keys that a mask hides.
  int64_t low(int64_t query) const {
    return query < window ? 0 : std::min(keys, query - window + 1);
  }
  int64_t seen(int64_t query) const { return causal ? std::min(keys, query + 1) : keys; }
};

// Scratch holds the matrices of one thread. Rows and columns are padded with zeros to whole tiles.
struct Scratch {
  Matrix keys_across, values, values_across, keys;
  Matrix queries, dy, scores, dscores, y, dqueries, dkeys, dvalues;
  size_t bytes = 0;

  // Without memory (`at` is null), only its size is computed.
  Scratch(const Heads& heads, bool gradient, std::byte* at = nullptr) {
    const int64_t keys_padded = round_up(heads.keys, column_unit);
    const int64_t depth = round_up(heads.depth, column_unit), rows = heads.rows();
    const int64_t width = round_up(heads.width, column_unit);
    auto take = [&](Matrix& matrix, int64_t count, int64_t stride) {
      matrix = {at == nullptr ? nullptr : reinterpret_cast<float*>(at + bytes), stride};
      bytes += static_cast<size_t>(count * stride) * sizeof(float);
    };
    take(queries, rows, depth), take(scores, rows, keys_padded);
    take(keys_across, depth, keys_padded);
    if (!gradient) {
      take(values, keys_padded, std::max(width, depth)), take(y, rows, width);
      return;
    }
    take(dy, rows, width), take(dscores, rows, keys_padded), take(dqueries, rows, depth);
    take(keys, keys_padded, depth), take(values_across, width, keys_padded);
    take(dkeys, keys_padded, depth), take(dvalues, keys_padded, width);
  }
};

// Mask is bool [B | 1, H | 1, T | 1, S | 1], true where a query attends to a key.
struct Mask : Placed {
  int64_t key = 0;  // stride

  Mask() = default;
  Mask(const void* base, const Shape& shape, const Dims& strides) : Placed(base, strides) {
    int64_t* const own[] = {&batch, &head, &row, &key};
    for (int axis = 0; axis < 4; ++axis) *own[axis] = shape[axis] > 1 ? strides[axis] : 0;
  }
};

struct Tensors {
  Placed q, k, v, y, dy, dq, dk, dv;
  Mask mask;  // its `data` is null where the node has no mask
};

template <class Element, int vector_bytes, int tile_rows>
struct Machine : AttentionTiles<vector_bytes, tile_rows> {
  using Tiles = AttentionTiles<vector_bytes, tile_rows>;
  using Tensor = Rows<Element>;
  using Tiles::at, Tiles::copy_in, Tiles::copy_out, Tiles::exp, Tiles::lane_numbers, Tiles::lanes,
      Tiles::most_of, Tiles::of, Tiles::product, Tiles::sum, Tiles::take_across, Tiles::zero;
  using typename Tiles::Bits, typename Tiles::Vector;

  // Overwrites the products of keys before `low`, and of keys before `seen` that the mask hides, by
  // hidden_score. Returns whether a key is left; if none is, the row holds no valid products.
  [[gnu::always_inline]] static bool hide(float* row, int64_t low, int64_t seen,
                                          const uint8_t* mask, int64_t stride) {
    std::fill(row, row + low, hidden_score);
    if (mask == nullptr) return low < seen;
    if (stride == 0) return low < seen && *mask != 0;
    unsigned any = 0;
    for (int64_t j = low; j < seen; ++j) {
      any |= mask[j];
      row[j] = mask[j] != 0 ? row[j] : hidden_score;
    }
    return any != 0;
  }
  // Replaces a row of products by their exponentials, 0 from `seen` up to `columns`; returns 1 /
  // their sum.
  [[gnu::always_inline]] static float exponentials(float* row, int64_t seen, int64_t columns,
                                                   float scale) {
    const Vector hidden = of(hidden_score);
    Vector most = hidden, total{};
    for (int64_t j = 0; j < columns; j += lanes) {
      const auto visible = less(lane_numbers(), Bits{} + static_cast<int32_t>(seen - j));
      const Vector product = choose(visible, at(row + j), hidden);
      at(row + j) = product;
      most = choose(less(most, product), product, most);
    }
    const float top = most_of(most);
    for (int64_t j = 0; j < columns; j += lanes) {
      at(row + j) = exp((at(row + j) - top) * scale);
      total += at(row + j);
    }
    return 1 / sum(total);
  }

  // A Block is some rows of queries with the keys that they attend to.
  struct Block {
    int64_t first, count;  // rows
    int64_t low, seen;     // keys that any row attends to; `low` is rounded down
    int64_t columns;       // keys from `low` on, in whole tiles
    int64_t padded_rows;   // rows in whole tiles

    Block(const Heads& heads, int64_t block)
        : first(block * heads.rows()),
          count(std::min(heads.rows(), heads.queries - first)),
          low(heads.low(first) / column_unit * column_unit),
          seen(heads.seen(first + count - 1)),
          columns(round_up(seen - low, column_unit)),
          padded_rows(round_up(count, row_unit)) {}
  };
  // Returns the matrix from this column on.
  [[gnu::always_inline]] static Matrix from_column(const Matrix& matrix, int64_t column) {
    return {matrix.data + column, matrix.stride};
  }
  struct Head {
    Tensor q, k, v, y, dy, dq, dk, dv;
    Rows<const uint8_t> mask{};
    int64_t mask_key = 0;
    Head(const Heads& heads, const Tensors& all, int64_t b, int64_t h)
        : q(all.q.template of<Element>(b, h)),
          y(all.y.template of<Element>(b, h)),
          dy(all.dy.template of<Element>(b, h)),
          dq(all.dq.template of<Element>(b, h)) {
      const int64_t shared = h / heads.sharing();
      k = all.k.template of<Element>(b, shared), v = all.v.template of<Element>(b, shared);
      dk = all.dk.template of<Element>(b, shared), dv = all.dv.template of<Element>(b, shared);
      if (all.mask.data == nullptr) return;
      mask = all.mask.template of<const uint8_t>(b, h), mask_key = all.mask.key;
    }
  };

  // Computes the exponentials of the scores of a block, and 1 / the sum of each row.
  [[gnu::always_inline]] static void score(const Heads& heads, const Head& head, const Scratch& own,
                                           const Block& rows, float* inverse) {
    copy_in(head.q.from(rows.first), rows.count, heads.depth, own.queries, heads.rows());
    product(own.queries.data, own.queries.stride, 1, from_column(own.keys_across, rows.low),
            own.scores, rows.padded_rows, rows.columns, heads.depth, false);
    for (int64_t i = 0; i < rows.count; ++i) {
      const int64_t query = rows.first + i;
      const int64_t low = heads.low(query) - rows.low, seen = heads.seen(query) - rows.low;
      const uint8_t* mask =
          head.mask.data == nullptr ? nullptr : head.mask.row(query) + rows.low * head.mask_key;
      float* row = own.scores.row(i);
      if (hide(row, low, seen, mask, head.mask_key)) {
        inverse[i] = exponentials(row, seen, rows.columns, static_cast<float>(heads.scale));
      } else {
        std::fill(row, row + rows.columns, 0.0f);
        inverse[i] = 0;
      }
    }
  }

  [[gnu::always_inline]] static void forward(const Heads& heads, const Head& head,
                                             const Scratch& own, int64_t block) {
    float inverse[most_rows];
    const Block rows(heads, block);
    score(heads, head, own, rows, inverse);
    product(own.scores.data, own.scores.stride, 1, own.values.from(rows.low), own.y,
            rows.padded_rows, own.y.stride, rows.seen - rows.low, false);
    for (int64_t i = 0; i < rows.count; ++i) {
      const float *from = own.y.row(i), factor = inverse[i];
      Element* to = head.y.row(rows.first + i);
      for (int64_t j = 0; j < heads.width; ++j) to[j] = from_lane<Element>(from[j] * factor);
    }
  }

  [[gnu::always_inline]] static void backward(const Heads& heads, const Head& head,
                                              const Scratch& own, int64_t block) {
    float inverse[most_rows];
    const Block rows(heads, block);
    score(heads, head, own, rows, inverse);
    copy_in(head.dy.from(rows.first), rows.count, heads.width, own.dy, heads.rows());
    product(own.dy.data, own.dy.stride, 1, from_column(own.values_across, rows.low), own.dscores,
            rows.padded_rows, rows.columns, heads.width, false);
    for (int64_t i = 0; i < rows.count; ++i) {
      float *p = own.scores.row(i), *dp = own.dscores.row(i);
      Vector dots{};
      for (int64_t j = 0; j < rows.columns; j += lanes) {
        at(p + j) *= inverse[i];
        dots += at(p + j) * at(dp + j);
      }
      const float dot = sum(dots);
      for (int64_t j = 0; j < rows.columns; j += lanes)
        at(dp + j) = at(p + j) * (at(dp + j) - dot) * static_cast<float>(heads.scale);
    }
    product(own.scores.data, 1, own.scores.stride, own.dy, own.dvalues.from(rows.low), rows.columns,
            own.dvalues.stride, rows.count, true);
    product(own.dscores.data, 1, own.dscores.stride, own.queries, own.dkeys.from(rows.low),
            rows.columns, own.dkeys.stride, rows.count, true);
    product(own.dscores.data, own.dscores.stride, 1, own.keys.from(rows.low), own.dqueries,
            rows.padded_rows, own.dqueries.stride, rows.seen - rows.low, false);
    copy_out(own.dqueries, rows.count, heads.depth, head.dq.from(rows.first));
  }

  [[gnu::always_inline]] static void enter(const Heads& heads, const Head& head, const Scratch& own,
                                           bool gradient) {
    if (!gradient) {
      const Matrix rows{own.values.data, round_up(heads.depth, column_unit)};
      take_across(head.k, heads.keys, heads.depth, rows, own.keys_across);
      return copy_in(head.v, heads.keys, heads.width, own.values, heads.keys);
    }
    take_across(head.k, heads.keys, heads.depth, own.dkeys, own.keys_across);
    take_across(head.v, heads.keys, heads.width, own.dvalues, own.values_across);
    copy_in(head.k, heads.keys, heads.depth, own.keys, heads.keys);
    zero(own.dkeys, 0, round_up(heads.keys, column_unit));
    zero(own.dvalues, 0, round_up(heads.keys, column_unit));
  }

  // Items are blocks of query rows, head by head.
  [[gnu::always_inline]] static void run(const Heads* heads, const Tensors* all, bool gradient,
                                         std::byte* scratch, int64_t begin, int64_t end) {
    const Scratch own(*heads, gradient, scratch);
    const int64_t blocks = heads->blocks(), of_keys = blocks * heads->sharing();
    for (int64_t item = begin; item < end; ++item) {
      const int64_t index = item / blocks, block = item % blocks;
      const Head head(*heads, *all, index / heads->heads, index % heads->heads);
      if (item == begin || item % of_keys == 0) enter(*heads, head, own, gradient);
      if (!gradient) {
        forward(*heads, head, own, block);
        continue;
      }
      backward(*heads, head, own, block);
      if ((item + 1) % of_keys != 0) continue;
      copy_out(own.dkeys, heads->keys, heads->depth, head.dk);
      copy_out(own.dvalues, heads->keys, heads->width, head.dv);
    }
  }
};

using Runner = void (*)(const Heads*, const Tensors*, bool, std::byte*, int64_t, int64_t);
Runner runner(DType dtype) { return attention_runner<Machine, Runner>(dtype); }

class Attention : public Kernel {
 public:
  explicit Attention(const Launch& launch)
      : heads_(*launch.body.front().node()),
        gradient_(launch.body.front()->op->role == Role::gradient),
        masked_(launch.body.front()->attrs.has("mask")),
        inputs_(bind_inputs(launch)),
        result_(bind_result(launch)),
        run_(runner(result_.type.dtype)),
        threads_(thread_count()) {
    const size_t needed = static_cast<size_t>(threads_) * Scratch(heads_, gradient_).bytes;
    WEFT_ASSERT(needed <= launch.workspace, "{} plans {} bytes but needs {}", launch.kernel,
                launch.workspace, needed);
  }

  void run(void* const* operands, void* const* results, void* workspace) const override {
    Tensors all;
    all.q = {inputs_[0].in(operands), inputs_[0].strides};
    all.k = {inputs_[1].in(operands), inputs_[1].strides};
    all.v = {inputs_[2].in(operands), inputs_[2].strides};
    if (gradient_) {
      all.dy = {inputs_[3].in(operands), inputs_[3].strides};
      const Dims& each = result_.strides;  // strides of [B, H + 2 G, T, D]
      all.dq = {result_.out(results), each};
      all.dk = {result_.out(results), each, heads_.heads * each[1]};
      all.dv = {result_.out(results), each, (heads_.heads + heads_.key_heads) * each[1]};
    } else {
      all.y = {result_.out(results), result_.strides};
    }
    if (masked_) {
      const Bound& mask = inputs_.back();
      all.mask = {mask.in(operands), mask.type.shape, mask.strides};
    }
    // One thread computes the gradients of all query heads that share a key head, because dk and dv
    // are sums over the queries of all these heads.
    const int64_t each = gradient_ ? heads_.blocks() * heads_.sharing() : 1;
    const int64_t items = heads_.batch * heads_.heads * heads_.blocks() / each;
    const int64_t parts = std::min<int64_t>(threads_, items);
    const size_t scratch = Scratch(heads_, gradient_).bytes;
    parallel_for(parts, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part)
        run_(&heads_, &all, gradient_,
             static_cast<std::byte*>(workspace) + static_cast<size_t>(part) * scratch,
             items * part / parts * each, items * (part + 1) / parts * each);
    });
  }

 private:
  Heads heads_;
  bool gradient_, masked_;
  std::vector<Bound> inputs_;  // q, k, v, the gradient of y, and the mask, if any
  Bound result_;
  Runner run_;
  int threads_;
};
// Returns whether scores are plain products of queries and keys, without a start, a cap or an
// additive mask. A window or a bool mask may hide keys.
bool has_plain_scores(const Node& node) {
  if (node.attrs.has("start") || node.attrs.has("softcap")) return false;
  return !node.attrs.has("mask") || node.inputs.back().dtype() == DType::boolean;
}
}  // namespace

std::optional<KernelChoice> choose_attention(const Node& node,
                                             std::span<const Placement> operands) {
  const bool gradient = node.op->role == Role::gradient;
  const bool falling = node.attrs.number("scale") <= 0;  // the greatest product must score highest
  if (!gradient && is_cached_attention(node)) return choose_cached_attention(node, operands);
  if (runner(node.type.dtype) == nullptr || !has_plain_scores(node) || falling) return std::nullopt;
  if (element_count(node.inputs[0].shape()) == 0 || element_count(node.inputs[2].shape()) == 0)
    return std::nullopt;
  KernelChoice choice;
  choice.kernel = gradient ? "weft:attention_gradient" : "weft:attention";
  // The heads of a token are adjacent, as the projections around attention expect them.
  choice.result_order = {0, 2, 1, 3};
  choice.operand_order.resize(operands.size());
  for (size_t i = 0; i < operands.size(); ++i)
    if (operands[i].strides[3] != 1 && node.inputs[i].dim(3) > 1)
      choice.operand_order[i] = Dims{0, 2, 1, 3};
  choice.workspace = static_cast<size_t>(thread_count()) * Scratch(Heads(node), gradient).bytes;
  return choice;
}

std::unique_ptr<Kernel> compile_attention(const Launch& launch) {
  if (is_by(launch, Algorithm::attention_cached)) return compile_cached_attention(launch);
  return std::make_unique<Attention>(launch);
}
}  // namespace weft::cpu
