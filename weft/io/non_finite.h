// Counts the elements of tensors that are NaN or infinite, for verbs that write weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "weft/base/numbers/dtype.h"
#include "weft/io/safetensors.h"

namespace weft::io {

struct NonFinite {
  std::string name;  // the tensor's
  int64_t nans = 0, infinities = 0;
  int64_t elements = 0;  // elements of the tensor
};

// Returns the counts of NaN and infinities in `bytes`, whole elements of a floating-point type;
// zeros for other types.
NonFinite count_non_finite(std::span<const std::byte> bytes, DType dtype);

// Returns the tensors that have a NaN or an infinity, in the order of `tensors`. Skips tensors in
// blocks and on devices.
std::vector<NonFinite> non_finite(std::span<const NamedBytes> tensors);

// Returns `"a" has 3 NaN and 1 infinite of 64 numbers, "b" ...` of the first tensors, and how many
// more there are; "" for none.
std::string to_text(std::span<const NonFinite> found);

}  // namespace weft::io
