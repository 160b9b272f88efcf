// Matrix products as BLAS libraries take them: matrices that lie densely column by column, or whose
// transposes do.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "weft/device/bound.h"
#include "weft/device/contraction.h"
#include "weft/device/device.h"

namespace weft {

struct GemmMatrix {
  int64_t rows = 0, columns = 0, stride = 0;  // between columns, in elements
  bool transposed = false;                    // what it stands for is its transpose
  int64_t batch_stride = 0;
};

// Libraries sum column by column and weft row by row, so they are asked for the transposed product:
// result^T = b^T a^T.
struct Gemm {
  GemmMatrix b, a, result;
  int64_t batches = 1;
};

// nullopt where an operand or the result does not lie so, or there is more than one batch axis.
std::optional<Gemm> gemm_of(const Contraction& task);

// What a library that takes a Gemm says of a `matmul` or `matmul_add` of floating point numbers:
// operands as they lie, or copied row by row.
struct GemmChoice {
  KernelChoice choice;  // without kernel and workspace
  Contraction task;
  Gemm gemm;
};
std::optional<GemmChoice> choose_gemm(const Node& node, std::span<const Placement> operands);

// The bias, where all that follows a `matmul` by one matrix in `body` is to add one: a number for
// each column, neighbours in memory. Sums may be of any width, the result has the product's type.
// Else empty.
Value bias_of(std::span<const Value> body);

// A step that was so chosen.
struct GemmStep {
  explicit GemmStep(const Step& step);

  Bound a, b, result;
  std::optional<Bound> so_far;  // what the sums begin with
  std::optional<Bound> bias;    // added to each row
  Contraction task;
  Gemm gemm;
};

}  // namespace weft
