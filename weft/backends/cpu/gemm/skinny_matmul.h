// Computes the matrix product of few rows by a large matrix (GEMV, skinny GEMM), as in decoding a
// language model: the product reads each element of the large factor from memory once, in the order
// of memory, because reading that factor bounds the product's time. The large factor may be stored
// in a narrower type than the sums; its elements are widened in registers.
//
// The terms of one element are summed in an order that depends on K, the types, the layout of the
// large factor and the instruction set, whatever the threads and the other elements: a row of a
// product of 16 rows has the bits of the same row alone. The instruction of AVX512-BF16, for
// bfloat16 by bfloat16, flushes subnormal float32 numbers and sums to zero.
#pragma once

#include <cstddef>

#include "weft/device/contraction.h"

namespace weft::cpu {

constexpr int64_t most_skinny_rows = 32;

// Returns whether skinny_matmul() has a kernel for this task: at most most_skinny_rows rows without
// a batch; factors of float32, bfloat16 or float16, a result of one of these floats, all sums
// in float32; any strides of a; rows or columns of b and rows of the result contiguous.
bool is_skinny(const Contraction& task);

// Returns the bytes of scratch that skinny_matmul() needs.
size_t skinny_workspace(const Contraction& task);
// Computes the product. `workspace` is aligned to buffer_alignment and has skinny_workspace(task)
// bytes.
void skinny_matmul(const Contraction& task, const void* a, const void* b, void* result,
                   void* workspace, int threads);

}  // namespace weft::cpu
