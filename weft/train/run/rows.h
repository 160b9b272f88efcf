// Declares views of the rows of a batch, which one pass of an update computes.
#pragma once

#include <cstdint>

#include "weft/tensor/tensor.h"

namespace weft::train {

// Returns rows [from, from + rows) of a batch, which holds them, as a view of the same bytes;
// `rows` divides `from`.
Tensor rows_of(const Tensor& whole, int64_t from, int64_t rows);
// Makes `view` these rows and returns it, without an allocation where it was rows of such a batch
// before. It is valid as long as the caller holds the batch. All rows are the batch itself.
Tensor show_rows(Tensor& view, const Tensor& whole, int64_t from, int64_t rows);

}  // namespace weft::train
