// Computes update_at, which writes a part of a tensor in place, as new keys and values of a cache.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "weft/codegen/gpu_emit.h"
#include "weft/device/choice.h"

namespace weft::gpu {

std::optional<KernelChoice> choose_update_at(const Node& node, std::span<const Placement> operands);
loop::GpuKernel update_at(const Launch& launch, loop::GpuLanguage language,
                          const std::string& prefix);

}  // namespace weft::gpu
