// Computes scatter_add and first_position by sorting the positions of the indices by target row.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "weft/codegen/gpu_emit.h"
#include "weft/device/choice.h"

namespace weft::gpu {

std::optional<KernelChoice> choose_scatter_add(const Node& node,
                                               std::span<const Placement> operands);
loop::GpuKernel scatter_add(const Launch& launch, loop::GpuLanguage language,
                            const std::string& prefix);
std::optional<KernelChoice> choose_first_position(const Node& node,
                                                  std::span<const Placement> operands);
loop::GpuKernel first_position(const Launch& launch, loop::GpuLanguage language,
                               const std::string& prefix);

}  // namespace weft::gpu
