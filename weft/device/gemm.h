// Matrix products as BLAS libraries take them: matrices that lie densely column by column, or whose
// transposes do.
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

// What a product that was so chosen takes of memory when its extents are rounded up (`padded`).
struct GemmRooms {
  Room a, b, result;
  Contraction task;  // rounded up
};
// nullopt where nothing is to be rounded up.
std::optional<GemmRooms> rooms_of(const Node& node, std::span<const Placement> operands,
                                  const KernelChoice& choice);

// A number for each of `columns`, neighbours in memory.
bool is_bias(const Value& value, int64_t columns);

// What libraries compute of a `matmul` by one matrix as they store it, or of its factors as they
// read them. What is stored has the product's type; sums on the way to it may be of any width.
struct GemmEpilogue {
  Value bias;    // added: a number for each column, neighbours in memory
  Value sum;     // product and bias, stored beside the function of it
  Value at;      // of the result's shape and type
  Value a_sums;  // of each column of a^T: the gradient of a bias beside that of its weight
  // A composite of the sum, or of `at` and the sum, that is stored; null: the sum itself.
  const OpDef* function = nullptr;
};
// Of all that follows the `matmul` in `body`, of which `results` are stored; nullopt where it is
// none of these.
std::optional<GemmEpilogue> epilogue_of(std::span<const Value> body,
                                        std::span<const Value> results);

// A step that was so chosen.
struct GemmStep {
  explicit GemmStep(const Step& step);

  Bound a, b, result;
  std::optional<Bound> so_far;  // what the sums begin with
  std::optional<Bound> bias;    // added to each row
  std::optional<Bound> sum;     // stored, too
  std::optional<Bound> at;
  std::optional<Bound> a_sums;  // stored, too
  const OpDef* function = nullptr;
  Contraction task;      // as it is computed: with extents rounded up where the step is padded
  int64_t n = 0, k = 0;  // of the elements
  Gemm gemm;
};

}  // namespace weft
