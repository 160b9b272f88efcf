// Computes argsort by a merge sort of positions.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "weft/codegen/gpu_emit.h"
#include "weft/device/choice.h"

namespace weft::gpu {

std::optional<KernelChoice> choose_argsort(const Node& node, std::span<const Placement> operands);
loop::GpuKernel argsort(const Launch& launch, loop::GpuLanguage language,
                        const std::string& prefix);

}  // namespace weft::gpu
