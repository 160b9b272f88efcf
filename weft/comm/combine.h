// Declares the sums that ranks take of each other's operands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "weft/base/numbers/dtype.h"

namespace weft::comm {

// Streamed stores leave the caches alone, and do not read from memory what they overwrite. They end
// with end_streams().
enum class Stores { cached, streamed };
// Orders the streamed stores of this thread before all that it stores later. It waits for memory,
// so that a row is too little for a call.
void end_streams();

// Combines elements [from, to) of several operands, in their order: ((x0 + x1) + x2) + ... Floats
// of 16 bits are combined in float32 and rounded once. The result may be one of the operands.
// `operation` is "add", "mul", "maximum", "minimum", "logical_or" or "logical_and"; maxima and
// minima propagate NaN.
void combine(std::span<const std::byte* const> operands, std::byte* result, int64_t from,
             int64_t to, DType dtype, std::string_view operation, Stores stores = Stores::cached);
// A sum over ranks of several hosts is carried from host to host, in the type of its arithmetic:
// float32 for floats of 16 bits.
DType carried_type(DType dtype);
// As combine(), after what the hosts before have summed, so that both have the same bits.
// `carried`, null for the first host, and the result begin with element `from`. The last host
// rounds to `dtype`, the others write carried_type().
struct Carry {
  const std::byte* carried = nullptr;
  bool is_last = true;
};
void combine_carried(const Carry& carry, std::span<const std::byte* const> operands,
                     std::byte* result, int64_t from, int64_t to, DType dtype,
                     std::string_view operation);
void copy(std::byte* to, const std::byte* from, size_t bytes, Stores stores);

}  // namespace weft::comm
