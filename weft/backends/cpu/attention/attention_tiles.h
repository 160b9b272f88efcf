// Defines the tiles of attention kernels: products, transposes and exponentials of matrices in
// scratch, for vectors of any width. Include it below a file's own #pragma about optimization,
// which must cover these functions, too.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "weft/backends/cpu/rows/transpose.h"
#include "weft/backends/cpu/simd/elements.h"
#include "weft/backends/cpu/simd/vector_compare.h"
#include "weft/base/host/isa_dispatch.h"
#include "weft/ir/value.h"

namespace weft::cpu {

constexpr int64_t column_unit = 32, row_unit = 8;  // multiples of the tiles of any instruction set
constexpr float hidden_score = -std::numeric_limits<float>::infinity();  // of a key not attended to

// Rows is a matrix whose rows are dense: scratch, or one head of a tensor.
template <class Element>
struct Rows {
  Element* data;
  int64_t stride;
  Element* row(int64_t i) const { return data + i * stride; }
  Rows from(int64_t i) const { return {row(i), stride}; }
};
using Matrix = Rows<float>;

// Placed is a tensor [batch, heads, rows, columns] whose rows are dense.
struct Placed {
  void* data = nullptr;
  int64_t offset = 0, batch = 0, head = 0, row = 0;

  Placed() = default;
  Placed(const void* base, const Dims& strides, int64_t offset = 0)
      : data(const_cast<void*>(base)),
        offset(offset),
        batch(strides[0]),
        head(strides[1]),
        row(strides[2]) {}
  template <class Element>
  Rows<Element> of(int64_t b, int64_t h) const {
    return {static_cast<Element*>(data) + offset + b * batch + h * head, row};
  }
};
template <int vector_bytes, int tile_rows>
struct AttentionTiles {
  using Vector = VectorOf<float, vector_bytes>;
  using Bits = VectorOf<int32_t, vector_bytes>;
  static constexpr int lanes = vector_bytes / 4;
  static_assert(column_unit % (2 * lanes) == 0 && row_unit % tile_rows == 0);

  [[gnu::always_inline]] static Vector& at(float* p) { return *reinterpret_cast<Vector*>(p); }
  [[gnu::always_inline]] static Vector of(float x) { return Vector{} + x; }
  [[gnu::always_inline]] static Bits lane_numbers() {
    Bits numbers{};
    for (int i = 0; i < lanes; ++i) numbers[i] = i;
    return numbers;
  }

  // ---- copies between tensors and scratch
  template <class From, class To>
  [[gnu::always_inline]] static void copy_row(From* from, int64_t columns, To* to) {
    int64_t j = 0;
    if constexpr (std::is_same_v<From, To>)
      for (; j + lanes <= columns; j += lanes) at(to + j) = at(from + j);
    for (; j < columns; ++j) to[j] = from_lane<To>(to_lane<float>(from[j]));
  }
  // Copies to scratch, with zeros from column `columns` on and from row `rows` on.
  template <class Element>
  [[gnu::always_inline]] static void copy_in(const Rows<Element>& from, int64_t rows,
                                             int64_t columns, const Matrix& to,
                                             int64_t padded_rows) {
    for (int64_t i = 0; i < rows; ++i) {
      copy_row(from.row(i), columns, to.row(i));
      for (int64_t j = columns; j < to.stride; ++j) to.row(i)[j] = 0;
    }
    zero(to, rows, padded_rows);
  }
  template <class Element>
  [[gnu::always_inline]] static void copy_out(const Matrix& from, int64_t rows, int64_t columns,
                                              const Rows<Element>& to) {
    for (int64_t i = 0; i < rows; ++i) copy_row(from.row(i), columns, to.row(i));
  }
  [[gnu::always_inline]] static void zero(const Matrix& matrix, int64_t from, int64_t to) {
    for (float* p = matrix.row(from); p < matrix.row(to); p += lanes) at(p) = Vector{};
  }
  // Transposes: to[j, i] = from[i, j], zeros from row `rows` on.
  [[gnu::always_inline]] static void copy_across(const Matrix& from, int64_t rows, int64_t columns,
                                                 const Matrix& to) {
    const int64_t whole_rows = rows / lanes * lanes, whole_columns = columns / 4 * 4;
    for (int64_t i = 0; i < whole_rows; i += lanes)
      for (int64_t j = 0; j < whole_columns; j += 4)
        transpose_block<float, vector_bytes>(from.row(i) + j, from.stride, to.row(j) + i,
                                             to.stride);
    for (int64_t j = 0; j < columns; ++j) {
      for (int64_t i = j < whole_columns ? whole_rows : 0; i < rows; ++i)
        to.row(j)[i] = from.row(i)[j];
      for (int64_t i = rows; i < to.stride; ++i) to.row(j)[i] = 0;
    }
  }

  // Computes c[i, j] (+)= sum of a[i * a_row + k * a_step] b[k, j] over `depth` k, in whole tiles.
  [[gnu::always_inline]] static void product(const float* a, int64_t a_row, int64_t a_step,
                                             const Matrix& b, const Matrix& c, int64_t rows,
                                             int64_t columns, int64_t depth, bool accumulate) {
    for (int64_t j = 0; j < columns; j += 2 * lanes)
      for (int64_t i = 0; i < rows; i += tile_rows) {
        Vector sums[tile_rows][2];
        float* out = c.row(i) + j;
#pragma GCC unroll 8
        for (int r = 0; r < tile_rows; ++r)
          for (int half = 0; half < 2; ++half)
            sums[r][half] = accumulate ? at(out + r * c.stride + half * lanes) : Vector{};
        const float* left = a + i * a_row;
        float* right = b.data + j;
        for (int64_t k = 0; k < depth; ++k, left += a_step, right += b.stride) {
          const Vector low = at(right), high = at(right + lanes);
#pragma GCC unroll 8
          for (int r = 0; r < tile_rows; ++r) {
            sums[r][0] += left[r * a_row] * low;
            sums[r][1] += left[r * a_row] * high;
          }
        }
#pragma GCC unroll 8
        for (int r = 0; r < tile_rows; ++r)
          for (int half = 0; half < 2; ++half)
            at(out + r * c.stride + half * lanes) = sums[r][half];
      }
  }

  // Returns e^x of x <= 0, or 0 where that is below the least normal number; the polynomial is that
  // of codegen/vector_math.cpp.
  [[gnu::always_inline]] static Vector exp(Vector x) {
    const Vector magic = of(0x1.8p23f);
    x = choose(less(x, of(-104)), of(-104), x);
    const Vector shifted = x * 1.44269504f + magic, whole = shifted - magic;
    const Vector r = (x - whole * 0.693145752f) - whole * 1.42860677e-06f;
    Vector p = r * 0.0013942214f + 0.008368849f;
    p = p * r + 0.041666385f;
    p = p * r + 0.1666652f;
    p = p * r + 0.5f;
    p = (r * r) * p + r + 1.0f;
    const Vector scaled = reinterpret_cast<Vector>(reinterpret_cast<Bits>(p) +
                                                   (reinterpret_cast<Bits>(shifted) << 23));
    return choose(less(x, of(-87)), Vector{}, scaled);
  }
  // Reduces all lanes with `combine`, by halves.
  template <class Part, class Combine, int... lane>
  [[gnu::always_inline]] static float halved(Part x, Combine combine,
                                             std::integer_sequence<int, lane...>) {
    constexpr int half = sizeof...(lane);
    const auto rest = combine(__builtin_shufflevector(x, x, lane...),
                              __builtin_shufflevector(x, x, (lane + half)...));
    if constexpr (half == 1)
      return rest[0];
    else
      return halved(rest, combine, std::make_integer_sequence<int, half / 2>());
  }
  static constexpr std::make_integer_sequence<int, lanes / 2> half_lanes{};
  [[gnu::always_inline]] static float sum(Vector x) {
    return halved(
        x, [](auto a, auto b) __attribute__((always_inline)) { return a + b; }, half_lanes);
  }
  [[gnu::always_inline]] static float most_of(Vector x) {
    return halved(
        x, [](auto a, auto b) __attribute__((always_inline)) { return a > b ? a : b; }, half_lanes);
  }

  // Transposes a tensor to scratch, by way of `rows` where its elements must be widened.
  template <class Element>
  [[gnu::always_inline]] static void take_across(const Rows<Element>& from, int64_t count,
                                                 int64_t columns, const Matrix& rows,
                                                 const Matrix& to) {
    if constexpr (std::is_same_v<Element, float>) {
      copy_across(from, count, columns, to);
    } else {
      copy_in(from, count, columns, rows, count);
      copy_across(rows, count, columns, to);
    }
  }
};

// Returns Machine::run for elements of a floating point type and the process's instruction set;
// null for a type that the kernels do not widen.
template <template <class Element, int vector_bytes, int tile_rows> class Machine, class Runner>
Runner attention_runner(DType dtype) {
  auto best = []<class Element>(Element) {
    return best_of<Runner>(run_avx512<Machine<Element, 64, 8>>, run_avx2<Machine<Element, 32, 4>>,
                           run_baseline<Machine<Element, 16, 4>>);
  };
  switch (dtype) {
    case DType::f32:
      return best(float{});
    case DType::bf16:
      return best(BFloat16{});
    case DType::f16:
      return best(Half{});
    default:
      return nullptr;
  }
}

}  // namespace weft::cpu
