// Estimates the host memory that it takes to compile and run plans, apart from the plans' bytes.
#pragma once

#include <cstddef>
#include <span>

#include "weft/ir/plan.h"

namespace weft {

// Returns an estimate in bytes: a constant (code of weft, LLVM, oneDNN and CLBlast that a run
// touches, and their heaps), and shares for each thread, each of compile_threads(), each launch
// (nodes, step and machine code), each distinct generated kernel (none with a warm kernel cache),
// and each object that library kernels are made of.
size_t runtime_bytes(int threads, std::span<const Plan* const> plans);

}  // namespace weft
