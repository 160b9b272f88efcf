// Estimates the host memory that it takes to compile and run plans, apart from the plans' bytes.
#pragma once

#include <cstddef>
#include <span>

#include "weft/ir/plan.h"

namespace weft {

// Returns the sum of a constant (code of weft, LLVM, oneDNN and CLBlast that a run touches, and
// their heaps), the memory of each of compile_threads(), that of each kernel's nodes, step and
// machine code, that of each distinct generated kernel (which a warm kernel cache saves), and the
// objects that library kernels are made of.
size_t runtime_bytes(int threads, std::span<const Plan* const> plans);

}  // namespace weft
