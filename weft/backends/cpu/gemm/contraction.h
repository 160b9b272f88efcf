// The register-blocked matrix product for every numeric type and any strides serves types that
// oneDNN lacks (float64, float16, integers) and operands that it would have to copy.
//
// The products of one element are summed `contraction_depth` at a time, from the first on, and
// those sums in order, whatever the threads, the strides and the other elements.
#pragma once

#include <cstddef>
#include <cstdint>

#include "weft/device/contraction.h"

namespace weft::cpu {

constexpr int64_t contraction_depth = 256;

// Returns the bytes of scratch that contract() needs on `threads` threads.
size_t contraction_workspace(const Contraction& task, int threads);
// Returns bytes that suffice for the task with any number of rows up to task.m, where the columns
// of the result are dense.
size_t contraction_workspace_by_rows(const Contraction& task, int threads);
// Computes the product. `workspace` is aligned to buffer_alignment and has
// contraction_workspace(task, threads) bytes.
void contract(const Contraction& task, const void* a, const void* b, void* result, void* workspace,
              int threads);

// A b that no step assigns may be packed once, in panels of a tile's columns. Returns the bytes of
// its panels; 0 where b is packed in each run, as one of several matrices, of a narrower type than
// sums, the factor of the result's rows, or for so many rows that it hardly matters.
size_t panels_bytes(const Contraction& task);
// Packs all of b.
void pack_panels(const Contraction& task, const void* b, void* panels);
// Computes the product by the panels, to the bits of contract(). If not null, `bias` is added to
// each row of a product in float32, to the bits of an addition that follows.
void contract_panels(const Contraction& task, const void* a, const void* panels, const float* bias,
                     void* result, void* workspace, int threads);

// Returns whether contract() has a kernel for these types: one type, or two whose numbers are exact
// in the type of the sums (float32, or integers of 32 bits).
bool contracts(const Contraction& task);
// Returns whether sums are kept in the result itself, so that further sums can be added to them.
bool accumulates(const Contraction& task);

}  // namespace weft::cpu
