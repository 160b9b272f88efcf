// The register-blocked matrix product for every numeric type and any strides serves types that
// oneDNN lacks (float64, float16, integers) and operands that it would have to copy.
//
// The products of one element are summed in runs of `contraction_depth`, from the first on, and the
// sums of the runs are added in order, whatever the threads, the strides and the other elements.
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

// Returns the bytes of b packed in panels as wide as a tile. A fixed b, which no step assigns, is
// packed once. 0: b is packed in each run, because it is one of several matrices, is narrower than
// the sums, is the factor of the result's rows, or serves so many rows that packing hardly matters.
size_t panels_bytes(const Contraction& task);
// Packs all of b.
void pack_panels(const Contraction& task, const void* b, void* panels);
// Computes the product from the panels, with the bits of contract(). `bias`, if not null, is added
// to each row of a float32 product, with the bits of a separate addition.
void contract_panels(const Contraction& task, const void* a, const void* panels, const float* bias,
                     void* result, void* workspace, int threads);

// Returns whether contract() has a kernel for these types: one type, or two whose numbers are exact
// in the type of the sums (float32, or integers of 32 bits).
bool contracts(const Contraction& task);
// Returns whether sums stay in the result itself, so that further sums can be added to them.
bool accumulates(const Contraction& task);

}  // namespace weft::cpu
