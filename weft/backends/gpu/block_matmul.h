// Computes products of few rows by a matrix in blocks (weft/base/numbers/block_format.h), as
// decoding does: blocks are decoded in registers, and no decoded copy of the matrix exists.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "weft/codegen/gpu_emit.h"
#include "weft/device/choice.h"

namespace weft::gpu {

// Chooses for matmul_blocks of at most 16 rows and grouped_matmul_blocks of at most 64, in float32
// or narrower. More rows are faster multiplied by a decoded copy on matrix units.
std::optional<KernelChoice> choose_matmul_blocks(const Node& node,
                                                 std::span<const Placement> operands);
loop::GpuKernel matmul_blocks(const Launch& launch, loop::GpuLanguage language,
                              const std::string& prefix);

}  // namespace weft::gpu
