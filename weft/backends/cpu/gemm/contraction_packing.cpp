#include "weft/backends/cpu/gemm/contraction_packing.h"

#include <algorithm>

#include "weft/backends/cpu/simd/elements.h"

#if !defined(__clang__)
#pragma GCC optimize("O3")
#endif
#include "weft/backends/cpu/rows/transpose.h"
#include "weft/base/host/isa_dispatch.h"

namespace weft::cpu {
namespace {
// Returns the element at `at` as a lane. A Pair has the element and its neighbour along the depth;
// `depth_stride` is then the stride between pairs.
template <class Lane, class Element>
[[gnu::always_inline]] inline Lane lane_at(const Element* at, int64_t depth_stride) {
  if constexpr (std::is_same_v<Lane, Pair>) {
    const auto low = static_cast<uint16_t>(int16_t{at[0]});
    const auto high = static_cast<uint16_t>(int16_t{at[depth_stride / 2]});
    return {low | static_cast<uint32_t>(high) << 16};
  } else {
    return to_lane<Lane>(*at);
  }
}

// Packs one panel: packed[k * width + i] = source[i * stride + k * depth_stride], zeros from
// `present` on.
template <class Lane, int vector_bytes, int width, class Element>
[[gnu::always_inline]] inline void pack_panel(const Element* source, int64_t stride,
                                              int64_t depth_stride, int64_t present, int64_t depth,
                                              Lane* packed) {
  constexpr int side = 16 / static_cast<int>(sizeof(Lane));
  constexpr int fitting = width * static_cast<int>(sizeof(Lane)) / 16 * 16;
  constexpr int block = fitting % vector_bytes == 0 ? vector_bytes : fitting % 32 == 0 ? 32 : 16;
  constexpr int lanes = block / static_cast<int>(sizeof(Lane));
  int64_t k = 0;
  if (present < width) {
    for (; k < depth; ++k)
      for (int64_t i = 0; i < width; ++i)
        packed[k * width + i] =
            i < present ? lane_at<Lane>(source + i * stride + k * depth_stride, depth_stride)
                        : Lane{};
    return;
  }
  if (stride == 1) {
    for (; k < depth; ++k)
      for (int i = 0; i < width; ++i)
        packed[k * width + i] = lane_at<Lane>(source + k * depth_stride + i, depth_stride);
    return;
  }
  if constexpr (std::is_same_v<Element, Lane>)
    if (depth_stride == 1)
      for (; k + side <= depth; k += side)
        for (int i = 0; i < width; i += lanes) {
          const int row = std::min(i, width - lanes);  // the last block may overlap its neighbour
          transpose_block<Lane, block>(source + row * stride + k, stride, packed + k * width + row,
                                       width);
        }
  for (; k < depth; ++k)
    for (int i = 0; i < width; ++i)
      packed[k * width + i] = lane_at<Lane>(source + i * stride + k * depth_stride, depth_stride);
}

// Packs `count` rows of `source` in panels of `width`: [count / width][depth][width].
template <class Lane, int vector_bytes, int width, class Element>
[[gnu::always_inline]] inline void pack(const Element* source, int64_t stride, int64_t depth_stride,
                                        int64_t count, int64_t depth, Lane* packed) {
  // Adjacent rows are packed a few k at a time, so that a line is read once.
  const int64_t stretch = stride == 1 ? 8 : depth;
  for (int64_t k = 0; k < depth; k += stretch)
    for (int64_t start = 0; start < count; start += width)
      pack_panel<Lane, vector_bytes, width>(source + start * stride + k * depth_stride, stride,
                                            depth_stride, std::min<int64_t>(width, count - start),
                                            std::min(stretch, depth - k),
                                            packed + start * depth + k * width);
}

template <class Element, class Lane, int vector_bytes, int tile_rows>
struct RowPacker {
  [[gnu::always_inline]] static inline void run(const void* source, int64_t stride,
                                                int64_t depth_stride, int64_t count, int64_t depth,
                                                void* packed) {
    pack<Lane, vector_bytes, tile_rows>(static_cast<const Element*>(source), stride, depth_stride,
                                        count, depth, static_cast<Lane*>(packed));
  }
};
template <class Element, class Lane, int vector_bytes>
struct PanelPacker {
  static constexpr int columns = 2 * vector_bytes / static_cast<int>(sizeof(Lane));
  [[gnu::always_inline]] static inline void run(const void* source, int64_t stride,
                                                int64_t depth_stride, int64_t count, int64_t depth,
                                                void* packed) {
    pack_panel<Lane, vector_bytes, columns>(static_cast<const Element*>(source), stride,
                                            depth_stride, count, depth, static_cast<Lane*>(packed));
  }
};
template <class Result, class Lane>
struct SumRounder {
  [[gnu::always_inline]] static inline void run(const void* sums, int64_t sums_row,
                                                const MatrixStrides* result, int64_t rows,
                                                int64_t columns, void* to) {
    const Lane* from = static_cast<const Lane*>(sums);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        static_cast<Result*>(to)[i * result->row + j * result->column] =
            from_lane<Result>(from[i * sums_row + j]);
  }
};

template <class Element, class Lane>
Packer row_packer() {
  return best_of<Packer>(run_avx512<RowPacker<Element, Lane, 64, avx512_tile_rows>>,
                         run_avx2<RowPacker<Element, Lane, 32, avx2_tile_rows>>,
                         run_baseline<RowPacker<Element, Lane, 16, baseline_tile_rows>>);
}
template <class Element, class Lane>
Packer panel_packer() {
  return best_of<Packer>(run_avx512<PanelPacker<Element, Lane, 64>>,
                         run_avx2<PanelPacker<Element, Lane, 32>>,
                         run_baseline<PanelPacker<Element, Lane, 16>>);
}
template <class Result, class Lane>
Rounder rounder() {
  return best_of<Rounder>(run_avx512<SumRounder<Result, Lane>>, run_avx2<SumRounder<Result, Lane>>,
                          run_baseline<SumRounder<Result, Lane>>);
}

// Calls f(Element{}, Lane{}) for a type whose numbers are exact in `lane`. Returns false if `lane`
// is not a lane for this type.
template <class F>
bool with_lane(DType dtype, DType lane, F&& f) {
  const auto narrow = [&](auto lane_zero) {
    if (dtype == DType::i8) return f(int8_t{}, lane_zero), true;
    if (dtype == DType::u8) return f(uint8_t{}, lane_zero), true;
    return false;
  };
  if (lane == DType::f64) return dtype == DType::f64 && (f(double{}, double{}), true);
  if (lane == DType::i64) return dtype == DType::i64 && (f(uint64_t{}, uint64_t{}), true);
  if (lane == DType::i32) {
    if (dtype == DType::i32 || dtype == DType::u32) return f(uint32_t{}, uint32_t{}), true;
    if (dtype == DType::u16) return f(uint16_t{}, uint32_t{}), true;
    if (dtype == DType::i16) return f(int16_t{}, uint32_t{}), true;
    return narrow(uint32_t{});
  }
  if (dtype == DType::f32) return f(float{}, float{}), true;
  if (dtype == DType::f16) return f(Half{}, float{}), true;
  if (dtype == DType::bf16) return f(BFloat16{}, float{}), true;
  if (dtype == DType::f8_e4m3) return f(F8E4M3{}, float{}), true;
  if (dtype == DType::f8_e5m2) return f(F8E5M2{}, float{}), true;
  return narrow(float{});
}

}  // namespace

DType lane_dtype(const Contraction& task) {
  if (is_float(task.dtype)) return info(task.dtype).computed;
  return task.dtype == DType::i64 ? DType::i64 : DType::i32;
}
bool in_pairs(const Contraction& task) {
  const auto is_byte = [](DType dtype) { return dtype == DType::i8 || dtype == DType::u8; };
  return task.dtype == DType::i32 && is_byte(task.a_dtype) && is_byte(task.b_dtype) &&
         task.k % 2 == 0;
}

namespace {
// Calls f(Element{}) for a type of 8 bits.
template <class F>
void with_byte(DType dtype, F&& f) {
  dtype == DType::i8 ? f(int8_t{}) : f(uint8_t{});
}
}  // namespace

std::optional<Packing> packing_of(const Contraction& task) {
  if (in_pairs(task)) {
    Packing functions{.rows = nullptr,
                      .panel = nullptr,
                      .round = rounder<uint32_t, uint32_t>(),
                      .a_bytes = 1,
                      .b_bytes = 1};
    with_byte(task.a_dtype, [&]<class E>(E) { functions.rows = row_packer<E, Pair>(); });
    with_byte(task.b_dtype, [&]<class E>(E) { functions.panel = panel_packer<E, Pair>(); });
    return functions;
  }
  const DType lane = lane_dtype(task);
  Packing functions{.rows = nullptr,
                    .panel = nullptr,
                    .round = nullptr,
                    .a_bytes = static_cast<int64_t>(size_of(task.a_dtype)),
                    .b_bytes = static_cast<int64_t>(size_of(task.b_dtype))};
  const bool known =
      with_lane(task.a_dtype, lane,
                [&]<class E, class L>(E, L) { functions.rows = row_packer<E, L>(); }) &&
      with_lane(task.b_dtype, lane,
                [&]<class E, class L>(E, L) { functions.panel = panel_packer<E, L>(); }) &&
      !info(task.dtype).stored_only && with_lane(task.dtype, lane, [&]<class E, class L>(E, L) {
        if constexpr (!is_f8<E>) functions.round = rounder<E, L>();
      });
  return known && functions.round != nullptr ? std::optional(functions) : std::nullopt;
}
}  // namespace weft::cpu
