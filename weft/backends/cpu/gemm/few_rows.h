// The product of a few rows by the panels of contraction.h takes the time of reading the panels.
#pragma once

#include "weft/device/contraction.h"

namespace weft::cpu {

constexpr int64_t most_few_rows = 8;

// Returns whether multiply_few_rows() computes the task: float32, at most most_few_rows rows.
bool has_few_rows(const Contraction& task);
// Computes contract_panels() without scratch.
void multiply_few_rows(const Contraction& task, const float* a, const float* panels,
                       const float* bias, float* result, int threads);

}  // namespace weft::cpu
