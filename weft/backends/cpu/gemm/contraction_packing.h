// Declares the functions of a contraction that depend on the type of one factor, or of the result,
// alone: a product of two types combines the functions of both types, and its tiles know the type
// of the sums only.
#pragma once

#include <cstdint>
#include <optional>

#include "weft/device/contraction.h"

namespace weft::cpu {

// These are the rows of a tile, whose columns are two vectors, by instruction set.
inline constexpr int avx512_tile_rows = 8, avx2_tile_rows = 6, baseline_tile_rows = 6;

// Packs `count` rows (columns, for a panel) of a factor: element [i, k] is at source[i * stride + k
// * depth_stride], in elements of its type, and is widened to the type of the sums.
using Packer = void (*)(const void* source, int64_t stride, int64_t depth_stride, int64_t count,
                        int64_t depth, void* packed);
// Rounds sums [rows, columns] to the type of the result.
using Rounder = void (*)(const void* sums, int64_t sums_row, const MatrixStrides* result,
                         int64_t rows, int64_t columns, void* to);

// Products of integers of 8 bits whose depth is even are summed in pairs: a lane holds two
// neighbours along the depth in 16 bits each, and one instruction (pmaddwd), which all instruction
// sets have, multiplies both neighbours and adds the two products without overflow.
struct Pair {
  uint32_t both;
};
bool in_pairs(const Contraction& task);

struct Packing {
  Packer rows;   // packs a in panels of a tile's height: [count / height][depth][height]
  Packer panel;  // packs one panel of b, of a tile's width, filled up with zeros
  Rounder round;
  int64_t a_bytes, b_bytes;  // bytes of an element
  bool has_panels = false;   // b is in panels already
  // The bias: one number per column. The sums are then float32 in the result's own memory. null: no
  // bias.
  const float* bias = nullptr;
};

// Returns the type of packed factors and of sums: the result's type, but float32 for narrower
// floats and int32 for narrower integers.
DType lane_dtype(const Contraction& task);
// Returns nullopt for types that the contraction has no kernel for.
std::optional<Packing> packing_of(const Contraction& task);

}  // namespace weft::cpu
