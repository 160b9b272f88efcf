// Describes matrix products in the form of BLAS: column-major matrices, or transposes of
// column-major matrices.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "weft/device/bound.h"
#include "weft/device/choice.h"
#include "weft/device/contraction.h"

namespace weft {

struct GemmMatrix {
  int64_t rows = 0, columns = 0, stride = 0;  // between columns, in elements (leading dimension)
  bool transposed = false;                    // the operand is the transpose of this matrix
  int64_t batch_stride = 0;
};

// BLAS is column-major and weft row-major, so libraries compute result^T = b^T a^T.
struct Gemm {
  GemmMatrix b, a, result;
  int64_t batches = 1;
};

// Returns nullopt where strides do not fit BLAS, or there is more than one batch axis.
std::optional<Gemm> gemm_of(const Contraction& task);

// A GemmChoice is the choice of a BLAS-like library for a product whose factors have one floating
// point type, with or without an initial value of the sums. Operands are used in place or copied to
// row-major order.
struct GemmChoice {
  KernelChoice choice;  // without kernel and workspace
  Contraction task;
  Gemm gemm;
};
std::optional<GemmChoice> choose_gemm(const Node& node, std::span<const Placement> operands);

// GemmRooms holds the memory that a product touches when its extents are rounded up (`padded`).
struct GemmRooms {
  Room a, b, result;
  Contraction task;  // rounded up
};
// Returns nullopt where no extent is to be rounded up.
std::optional<GemmRooms> rooms_of(const Node& node, std::span<const Placement> operands,
                                  const KernelChoice& choice);

// Returns whether `value` broadcasts a contiguous vector with one number for each of `columns`.
bool is_bias(const Value& value, int64_t columns);

// A GemmEpilogue is the computation that a library fuses with a `matmul` by one matrix: on the
// sums, before it stores the result, or on the operands, as it reads them. Stored values have the
// product's type, sums any width.
struct GemmEpilogue {
  Value bias;    // added: a contiguous vector, one number for each column
  Value sum;     // product plus bias, if stored in addition to `function` of it
  Value at;      // second operand of `function`, of the result's shape and type
  Value a_sums;  // column sums of a^T: the bias's gradient beside the weight's
  // `function` is the composite of the sum, or of `at` and the sum, that is stored; null: the sum
  // itself is stored.
  const OpDef* function = nullptr;
};
// Matches all nodes after the `matmul` in `body` to an epilogue; `results` are the values that the
// launch stores. nullopt: the nodes are not such an epilogue.
std::optional<GemmEpilogue> epilogue_of(std::span<const Value> body,
                                        std::span<const Value> results);

// A GemmLaunch holds the operands, results and task of a launch of a chosen product.
struct GemmLaunch {
  explicit GemmLaunch(const Launch& launch);

  Bound a, b, result;
  std::optional<Bound> so_far;  // initial value of the sums
  std::optional<Bound> bias;    // added to each row
  std::optional<Bound> sum;     // stored, too
  std::optional<Bound> at;
  std::optional<Bound> a_sums;  // stored, too
  const OpDef* function = nullptr;
  Contraction task;      // as computed: extents are rounded up where the launch is padded
  int64_t n = 0, k = 0;  // extents without padding
  Gemm gemm;
};

}  // namespace weft
