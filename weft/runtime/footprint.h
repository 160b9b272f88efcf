// What a process that compiles and runs plans takes of the host's memory, beside what they plan.
#pragma once

#include <cstddef>
#include <span>

#include "weft/ir/plan.h"

namespace weft {

// Bytes: 40 MiB of code of weft, LLVM, oneDNN and CLBlast that a run touches, their heaps, the
// nodes, step and machine code of each kernel, and what compiling takes on each of
// compile_threads() and leaves behind for each kernel that no other is like, which a warm cache of
// kernels saves; of a kernel of a library, its objects for each thread's part.
size_t runtime_bytes(int threads, std::span<const Plan* const> plans);

}  // namespace weft
