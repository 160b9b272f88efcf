// Computes the product of rows, rounded to int8, by a matrix in blocks
// (weft/base/numbers/block_format.h). A tile has one column per lane of a vector. Its quants are
// transposed to [k / 4, lane, 4] in the first-level cache, a range of k at a time, so that one
// instruction multiplies four neighbours of k in each lane, and all rows reuse the transposed
// quants. The rows are rounded once for all threads. A product of one row, as in decoding, reads
// quants in the order of memory and transposes the sums of products instead, which are fewer than
// the quants.
//
// Integer sums are exact, and the scaled sums of groups are added in the order of k: results have
// the same bits on every instruction set, with any number of rows and threads.
//
// This is one file, as each instruction set compiles all products into one function.
#include <algorithm>
#include <bit>
#include <utility>

#include "weft/backends/cpu/kernels.h"
#include "weft/base/host/parallel.h"
#include "weft/base/numbers/block_format.h"
#include "weft/base/numbers/rounding.h"

#if !defined(__clang__)
// GCC joins loads of scalars that are broadcast, which takes an instruction for each lane.
#pragma GCC optimize("O3", "no-tree-slp-vectorize")
#endif
#include "weft/backends/cpu/blocks/int8_rows.h"
#include "weft/backends/cpu/blocks/packers.h"
#include "weft/base/host/isa_dispatch.h"

namespace weft::cpu {
namespace {
using namespace int8;

template <int vector_bytes>
constexpr int most_rows = vector_bytes == 64 ? 8 : 4;  // multiplied at a time, as registers allow

// Call holds the operands of one call.
struct Call {
  int64_t m, n, k;
  Rows rows;
  const uint8_t* w;
  std::byte* result;  // [m, n]
  DType dtype;        // type of the result
};

template <int vector_bytes, Dot dot>
struct Blocks {
  using T = Tile<vector_bytes>;
  using Ints = typename T::Ints;
  using Vector = typename T::Vector;
  static constexpr int lanes = T::lanes, most = most_rows<vector_bytes>;

  // Calls body.operator()<Format>() with the packer of a format.
  template <class Body>
  static auto with_format(const BlockFormat& format, const Body& body) {
    switch (format.layout) {
      case BlockLayout::bytes:
        return body.template operator()<Bytes8<vector_bytes, dot>>();
      case BlockLayout::nibbles:
        if (format.bits == 4 && !format.has_least)
          return body.template operator()<Nibbles<vector_bytes, dot, 4, false>>();
        if (format.bits == 4)
          return body.template operator()<Nibbles<vector_bytes, dot, 4, true>>();
        if (!format.has_least)
          return body.template operator()<Nibbles<vector_bytes, dot, 5, false>>();
        return body.template operator()<Nibbles<vector_bytes, dot, 5, true>>();
      case BlockLayout::lines:
        if (format.bits == 4) return body.template operator()<Lines<vector_bytes, dot, 4>>();
        return body.template operator()<Lines<vector_bytes, dot, 5>>();
      case BlockLayout::sixes:
        return body.template operator()<Sixes<vector_bytes, dot>>();
    }
    __builtin_unreachable();
  }

  // Reads the first scales of blocks [begin, end) of each column, well before their use: a vector
  // load soon after the scalar stores of its lanes would stall, as store forwarding fails.
  template <class Format>
  [[gnu::always_inline]] static inline void read_heads(T& tile, const uint8_t* from, int64_t stride,
                                                       int64_t begin, int64_t end) {
    if constexpr (Format::head >= 0)
      for (int64_t column = 0; column < lanes; ++column) {
        const uint8_t* head = from + column * stride + begin * Format::bytes + Format::head;
        for (int64_t block = begin; block < end; ++block, head += Format::bytes)
          tile.heads[block][column] = Format::has_least ? word_at(head) : half_word_at(head);
      }
  }
  // Prefetches, while pack() packs block `block` of a range, the corresponding share of the blocks
  // at `next`, which it packs later. So each line is prefetched once, and prefetches are spread
  // evenly: the prefetches of a whole range at once would delay each other and the products. Short
  // rows are prefetched a tile ahead in the order of memory, which is faster; long rows a range of
  // k ahead, as a tile of them exceeds the cache.
  template <class Format>
  [[gnu::always_inline]] static inline void prefetch(const uint8_t* next, int64_t block,
                                                     int64_t stride) {
    if (is_short<Format>(stride)) {
      constexpr int bytes = lanes * Format::bytes;
#pragma GCC unroll 64
      for (int line = 0; line < bytes; line += int{cache_line})
        __builtin_prefetch(next + block * bytes + line, 0, 3);
      return;
    }
    const int64_t end = (block + 1) * Format::bytes;
    for (int64_t line = round_up(block * Format::bytes, cache_line); line < end; line += cache_line)
#pragma GCC unroll 16
      for (int64_t column = 0; column < lanes; ++column)
        __builtin_prefetch(next + line + column * stride, 0, 3);
  }
  template <class Format>
  static bool is_short(int64_t row_bytes) {
    return Format::numbers == 32 && row_bytes * lanes <= int64_t{16} << 10;
  }
  // Packs `count` numbers of each column. `next` is the first of the blocks that prefetch()
  // fetches.
  template <class Format>
  [[gnu::always_inline]] static inline void pack(T& tile, const uint8_t* from, int64_t stride,
                                                 int64_t count, const uint8_t* next) {
    constexpr int added = (dot == Dot::vnni ? 128 : 0) - Format::zero, words = Format::numbers / 4;
    const int64_t blocks = count / Format::numbers;
    read_heads<Format>(tile, from, stride, 0, blocks);
    for (int64_t block = 0; block < blocks; ++block) {
      prefetch<Format>(next, block, stride);
      Format::scale(tile, block, from + block * Format::bytes, stride);
      Format::quants(from + block * Format::bytes, stride,
                     [&](int i, typename T::Words quants) __attribute__((always_inline)) {
                       tile.quants[block * words + i] = Format::template plus<added>(quants);
                     });
    }
  }

  // OneRow is the only row of a product, from its number `from` on.
  template <class Format>
  struct OneRow {
    const int8_t* quants;
    const float* scales;
    const int32_t* starts;
    OneRow(const Rows& rows, int64_t from)
        : quants(rows.quants + from),
          scales(rows.scales + from / neighbours),
          starts(rows.starts + from / Format::group) {}

    // Adds the scaled sum of group g to `all`. `dots` has the products of quants plus `more` (0, or
    // a power of 2 up to 128), and the sum without `more` is added. The float operations are the
    // same as in multiply(), so that results have the same bits.
    template <int more>
    [[gnu::always_inline]] inline void add(const T& tile, int64_t g, Ints dots, Vector& all) const {
      if constexpr (more != 0) dots += starts[g] >> std::countr_zero(128U / more);
      Vector numbers = __builtin_convertvector(dots, Vector) * tile.scales[g];
      if constexpr (Format::has_least) numbers += tile.leasts[g] * static_cast<float>(starts[g]);
      all += numbers * scales[g * Format::group / neighbours];
    }
  };

  // Adds neighbouring lanes, as phaddd does: each 16 bytes of the result have the two sums of a's
  // 16 bytes, then the two sums of b's.
  template <int... lane>
  [[gnu::always_inline]] static inline Ints pairs(Ints a, Ints b,
                                                  std::integer_sequence<int, lane...>) {
    // As floats, the vectors are shuffled in one instruction; shuffles keep the integers' bits.
    const auto x = reinterpret_cast<Vector>(a), y = reinterpret_cast<Vector>(b);
    const auto even =
        __builtin_shufflevector(x, y, (lane / 4 * 4 + lane % 4 / 2 * lanes + lane % 2 * 2)...);
    const auto odd =
        __builtin_shufflevector(x, y, (lane / 4 * 4 + lane % 4 / 2 * lanes + lane % 2 * 2 + 1)...);
    return reinterpret_cast<Ints>(even) + reinterpret_cast<Ints>(odd);
  }
  [[gnu::always_inline]] static inline Ints pairs(Ints a, Ints b) {
    return pairs(a, b, std::make_integer_sequence<int, lanes>());
  }
  // Returns the sums of `lanes` groups of quants, in order. `dots` has the products of the groups'
  // pieces, one or two pieces in each vector.
  template <int count>
  [[gnu::always_inline]] static inline Ints group_sums(const Ints (&dots)[count]) {
    const auto arranged = [](Ints a, Ints b, auto from) __attribute__((always_inline)) {
      return [&]<int... lane>(std::integer_sequence<int, lane...>) __attribute__((always_inline)) {
        return __builtin_shufflevector(a, b, from(lane)...);
      }(std::make_integer_sequence<int, lanes>());
    };
    const Ints first = pairs(pairs(dots[0], dots[1]), pairs(dots[2], dots[3]));
    if constexpr (count == 4) {  // a group has 16 quants, whose dots are 16 bytes
      return arranged(first, first, [](int lane) constexpr {
        return lane % (lanes / 4) * 4 + lane / (lanes / 4);
      });
    } else {
      const Ints last = pairs(pairs(dots[4], dots[5]), pairs(dots[6], dots[7]));
      const Ints sums =
          arranged(first, last, [](int lane) constexpr { return lane % 4 + lane / 4 * 8; }) +
          arranged(first, last, [](int lane) constexpr { return lane % 4 + lane / 4 * 8 + 4; });
      if constexpr (lanes == 8) return sums;
      return arranged(sums, sums, [](int lane) constexpr {
        return lane / 8 * 8 + lane % 2 * 4 + lane % 8 / 2;
      });
    }
  }
  // Returns the products of the one or two pieces in a vector. `present` is how many pieces the row
  // has from this one on; 0 or less: the products are 0.
  template <class Format>
  [[gnu::always_inline]] static inline Ints piece_dots(const uint8_t* block, int number,
                                                       int64_t present, const int8_t* row) {
    using Bytes = VectorOf<uint8_t, vector_bytes>;
    constexpr bool single = Format::numbers == 32;  // a block is one piece
    Ints dots{};
    if (present <= 0) return dots;
    Bytes quants, factors;
    if constexpr (lanes == 8) {
      quants = Format::piece(block, number);
    } else {
      // If the row has no next piece, this one is read twice; its second sums are not used.
      const int64_t next = single && present > 1 ? Format::bytes : 0;
      quants =
          both(Format::piece(block, number), Format::piece(block + next, single ? 0 : number + 1));
    }
    __builtin_memcpy(&factors, row, sizeof(factors));
    if constexpr (dot == Dot::signs && !Format::is_signed)
      set_dots(dots, quants, reinterpret_cast<VectorOf<int8_t, vector_bytes>&>(factors));
    else
      add_dots(dots,
               reinterpret_cast<Ints>(Format::template plus<row_added<Format>>(
                   reinterpret_cast<typename T::Words>(quants))),
               reinterpret_cast<Ints&>(factors));
    return dots;
  }
  // The number that is added to quants before the multiplication by the only row, as VNNI needs
  // unsigned quants.
  template <class Format>
  static constexpr int row_added = dot == Dot::vnni && Format::is_signed ? 128 : 0;

  // Computes the only row of a product for a tile of columns. Each column is read from its first
  // block to its last, in the order of memory, which is faster than one block of every column in
  // turn. Then the sums of the columns' groups are transposed and scaled.
  template <class Format>
  [[gnu::always_inline]] static inline void stream(const Call& call, const uint8_t* w, T& tile,
                                                   Ints* sums_of_groups, Vector& sums) {
    constexpr int64_t ahead = 4096;  // bytes
    constexpr int group = Format::group, block_pieces = Format::numbers / 32;
    constexpr int count = group / 16 * 4,
                  joined = lanes / 8;       // vectors of pieces, and pieces per vector
    constexpr int pieces = count * joined;  // of `lanes` groups
    constexpr int step = std::max(pieces, block_pieces),
                  step_bytes = step / block_pieces * Format::bytes;
    const int64_t stride = call.k / Format::numbers * Format::bytes;
    const int64_t groups = round_up(call.k / group, lanes);
    auto* heads = reinterpret_cast<uint32_t*>(sums_of_groups + groups);
    for (int64_t column = 0; column < lanes; ++column) {
      const uint8_t* place = w + column * stride;
      const int8_t* row = call.rows.quants;
      Ints* to = sums_of_groups + column;
      uint32_t* head_to = heads + column;
      const auto add_step = [&](auto present) __attribute__((always_inline)) {
#pragma GCC unroll 64
        for (int line = 0; line < step_bytes; line += int{cache_line})
          __builtin_prefetch(place + ahead + line, 0, 3);
        unrolled<step / pieces>([&](auto part) __attribute__((always_inline)) {
          Ints dots[count];
          unrolled<count>([&](auto i) __attribute__((always_inline)) {
            constexpr int number = part * pieces + i * joined;
            dots[i] =
                piece_dots<Format>(place + number / block_pieces * Format::bytes,
                                   number % block_pieces, present - number, row + number * 32);
          });
          *to = group_sums(dots);
          to += lanes;
        });
        if constexpr (Format::head >= 0)
          unrolled<step / block_pieces>([&](auto i) __attribute__((always_inline)) {
            if (i * block_pieces >= present) return;
            const uint8_t* head = place + i * Format::bytes + Format::head;
            head_to[i * lanes] = Format::has_least ? word_at(head) : half_word_at(head);
          });
        place += step_bytes, row += step * 32, head_to += step / block_pieces * lanes;
      };
      int64_t left = call.k / 32;
      for (; left >= step; left -= step) add_step(std::integral_constant<int64_t, step>());
      if (left > 0) add_step(left);
    }
    for (int64_t first = 0; first < groups; first += lanes) {
      Ints transposed[lanes];
      auto* columns = reinterpret_cast<int32_t*>(sums_of_groups + first);
      for (int64_t i = 0; i < lanes; i += 4)
        transpose_block<int32_t, vector_bytes>(columns + i, lanes,
                                               reinterpret_cast<int32_t*>(transposed + i), lanes);
      __builtin_memcpy(columns, transposed, sizeof(transposed));
    }
    Vector all{};
    for (int64_t block = 0; block < call.k / Format::numbers; ++block, w += Format::bytes) {
      if constexpr (Format::head >= 0)
        __builtin_memcpy(tile.heads, heads + block * lanes, sizeof(tile.heads[0]));
      Format::scale(tile, 0, w, stride);
      const OneRow<Format> row(call.rows, block * Format::numbers);
      unrolled<Format::numbers / group>([&](auto g) __attribute__((always_inline)) {
        row.template add<row_added<Format> + Format::zero>(tile, g, sums_of_groups[g], all);
      });
      sums_of_groups += Format::numbers / group;
    }
    sums = all;
  }

  // Adds the products of the tile and a bundle of rows, from number `from` of the rows on, to
  // `sums`.
  template <class Format, int rows>
  [[gnu::always_inline]] static inline void multiply(const T& tile, const Call& call, int64_t first,
                                                     int64_t from, int64_t count, Vector* sums) {
    constexpr int group = Format::group, words = group / 4;
    const int8_t* x = call.rows.quants + first * call.k + from * rows;
    const float* scales = call.rows.scales + (first * call.k + from * rows) / neighbours;
    const int32_t* starts = call.rows.starts + (first * call.k + from * rows) / group;
    Vector all[rows];
    unrolled<rows>([&](auto i) __attribute__((always_inline)) { all[i] = sums[i]; });
    for (int64_t g = 0; g < count / group; ++g) {
      Ints dots[rows];
      unrolled<rows>([&](auto i) __attribute__((always_inline)) {
        dots[i] = Ints{};
        if constexpr (dot == Dot::vnni) dots[i] = filled<Ints>(starts + g * rows + i);
      });
      unrolled<words>([&](auto j) __attribute__((always_inline)) {
        const auto w = reinterpret_cast<Ints>(tile.quants[g * words + j]);
        unrolled<rows>([&](auto i) __attribute__((always_inline)) {
          add_dots(dots[i], w, filled<Ints>(x + (j * rows + i) * 4));
        });
      });
      const float* scale = scales + g * group / neighbours * rows;
      unrolled<rows>([&](auto i) __attribute__((always_inline)) {
        Vector numbers = __builtin_convertvector(dots[i], Vector) * tile.scales[g];
        if constexpr (Format::has_least)
          numbers +=
              tile.leasts[g] * __builtin_convertvector(filled<Ints>(starts + g * rows + i), Vector);
        all[i] += numbers * scale[i];
      });
      x += group * rows;
    }
    unrolled<rows>([&](auto i) __attribute__((always_inline)) { sums[i] = all[i]; });
  }

  [[gnu::always_inline]] static inline void write(const Call& call, int64_t row, int64_t column,
                                                  float sum) {
    write_sum(call.result, call.dtype, row * call.n + column, sum);
  }

  // Computes one tile of columns; `sums` is scratch for the sums of all rows.
  template <class Format>
  [[gnu::always_inline]] static inline void compute(const Call& call, int64_t first, T& tile,
                                                    Vector* sums) {
    const int64_t w_row = call.k / Format::numbers * Format::bytes;
    const int64_t columns = std::min<int64_t>(lanes, call.n - first);
    if constexpr (vector_bytes >= 32) {
      if (call.m == 1 && call.n >= lanes) {
        const int64_t from = first + columns - lanes;  // the last tile overlaps the previous one
        stream<Format>(call, call.w + from * w_row, tile, reinterpret_cast<Ints*>(sums + 1),
                       sums[0]);
        for (int64_t i = lanes - columns; i < lanes; ++i) write(call, 0, from + i, sums[0][i]);
        return;
      }
    }
    const uint8_t* w = call.w + first * w_row;
    for (int64_t row = 0; row < call.m; ++row) sums[row] = Vector{};
    for (int64_t from = 0; from < call.k; from += range) {
      const int64_t count = std::min(range, call.k - from);
      const int64_t bytes = count / Format::numbers * Format::bytes;
      const uint8_t* begin = w + from / Format::numbers * Format::bytes;
      const bool whole = columns == lanes;
      if (!whole)  // copies of the last column fill the tile
        for (int64_t i = 0; i < lanes; ++i)
          __builtin_memcpy(tile.copied + i * bytes, begin + std::min(i, columns - 1) * w_row,
                           static_cast<size_t>(bytes));
      const uint8_t* blocks = whole ? begin : tile.copied;
      const int64_t stride = whole ? w_row : bytes;
      const uint8_t* next = is_short<Format>(w_row) ? w + lanes * w_row + lanes * (begin - w)
                            : from + range < call.k ? begin + bytes
                                                    : w + lanes * w_row;
      pack<Format>(tile, blocks, stride, count, next);
      for (int64_t row = 0; row < call.m;) {
        const Bundle bundle = bundle_of(row, call.m, most);
        if (bundle.rows == most)
          multiply<Format, most>(tile, call, row, from, count, sums + row);
        else if (bundle.rows == 4)
          multiply<Format, 4>(tile, call, row, from, count, sums + row);
        else
          multiply<Format, 1>(tile, call, row, from, count, sums + row);
        row += bundle.rows;
      }
    }
    for (int64_t row = 0; row < call.m; ++row)
      for (int64_t i = 0; i < columns; ++i) write(call, row, first + i, sums[row][i]);
  }

  // Columns computes the tiles [begin, end) of columns. Each format has a function of its own, as
  // GCC takes longer to compile one function with all formats.
  template <class Format>
  struct Columns {
    [[gnu::always_inline]] static inline void run(const Call* call, std::byte* scratch,
                                                  int64_t begin, int64_t end) {
      auto& tile = *reinterpret_cast<T*>(scratch);
      auto* sums = reinterpret_cast<Vector*>(scratch + round_up(sizeof(T), cache_line));
      for (int64_t i = begin; i < end; ++i) compute<Format>(*call, i * lanes, tile, sums);
    }
  };
};

using Runner = void (*)(const Call*, std::byte*, int64_t, int64_t);
struct Variant {
  Runner (*runner)(const BlockFormat&);
  int64_t lanes, most_rows;
  size_t tile_bytes;
};
template <int bytes>
Variant variant_of(Runner (*runner)(const BlockFormat&)) {
  return {runner, Tile<bytes>::lanes, most_rows<bytes>, round_up(sizeof(Tile<bytes>), cache_line)};
}
Variant variant() {
  if (isa() >= Isa::avx512_bf16)
    return variant_of<64>([](const BlockFormat& format) {
      using Vnni = Blocks<64, Dot::vnni>;
      return Vnni::with_format(format, []<class Format>() -> Runner {
        return run_vnni<Vnni::Columns<Format>, const Call*, std::byte*, int64_t, int64_t>;
      });
    });
  if (isa() >= Isa::avx2)
    return variant_of<32>([](const BlockFormat& format) {
      using Avx2 = Blocks<32, Dot::signs>;
      return Avx2::with_format(format, []<class Format>() -> Runner {
        return run_avx2<Avx2::Columns<Format>, const Call*, std::byte*, int64_t, int64_t>;
      });
    });
  return variant_of<16>([](const BlockFormat& format) {
    using Baseline = Blocks<16, Dot::signs>;
    return Baseline::with_format(format, []<class Format>() -> Runner {
      return run_baseline<Baseline::Columns<Format>, const Call*, std::byte*, int64_t, int64_t>;
    });
  });
}

struct Extents : BlockExtents {
  using BlockExtents::BlockExtents;
  // Returns the bytes of one thread's scratch: a tile, and sums. The rounded rows are shared.
  size_t own_bytes() const {
    const Variant chosen = variant();
    const int64_t of_groups = round_up(k / 16, 16) + k / 32;  // sums and heads, of one row
    return round_up(
        chosen.tile_bytes + static_cast<size_t>((m + of_groups) * chosen.lanes) * sizeof(float),
        cache_line);
  }
  size_t workspace(int threads) const {
    return Rows::bytes(m, k) + static_cast<size_t>(threads) * own_bytes();
  }
};

class BlockInt8Matmul : public BlockProduct<Extents> {
 public:
  using BlockProduct::BlockProduct;

 private:
  void multiply(const std::byte* x, int64_t m, const std::byte* w, std::byte* to,
                void* workspace) const override {
    const int64_t n = extents_.n, k = extents_.k;
    auto* memory = static_cast<std::byte*>(workspace);
    const Rows rows(memory, m, k);
    round_rows(x, dtype(), m, k, format_->layout == BlockLayout::sixes ? 16 : 32,
               variant_.most_rows, rows);
    const Call call{m, n, k, rows, reinterpret_cast<const uint8_t*>(w), to, dtype()};
    const int64_t tiles = ceil_div(n, variant_.lanes);
    const auto parts = std::min<int64_t>(threads_, tiles);
    std::byte* scratch = memory + Rows::bytes(extents_.m, k);
    const size_t own = extents_.own_bytes();
    parallel_for(parts, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part)
        runner_(&call, scratch + static_cast<size_t>(part) * own, tiles * part / parts,
                tiles * (part + 1) / parts);
    });
  }

  Variant variant_ = variant();
  Runner runner_ = variant_.runner(*format_);
};
}  // namespace

std::optional<KernelChoice> choose_matmul_blocks_int8(const Node& node,
                                                      std::span<const Placement>) {
  return choose_block_product<Extents>(node);
}
std::unique_ptr<Kernel> compile_matmul_blocks_int8(const Launch& launch) {
  return std::make_unique<BlockInt8Matmul>(launch);
}

}  // namespace weft::cpu
