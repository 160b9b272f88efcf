// Computes attention and its gradient without storing the score matrix (Dao et al. 2022; Dao 2023):
// tiles of keys stream past with an online softmax.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "weft/codegen/gpu_emit.h"
#include "weft/device/choice.h"

namespace weft::gpu {

// Chooses for attention, attention_logsumexp and attention_backward, in float32 or narrower, with
// head sizes of at most 128 and no mask but the causal one; attention may have a start, a window
// and a cap, and then heads of any size where queries are few.
std::optional<KernelChoice> choose_attention(const Node& node, std::span<const Placement> operands);
// Chooses for attention that also stores attention_logsumexp.
std::optional<KernelChoice> choose_attention_with(std::span<const Value> body,
                                                  std::span<const Value> results,
                                                  std::span<const Placement> operands);
loop::GpuKernel attention(const Launch& launch, loop::GpuLanguage language,
                          const std::string& prefix);
loop::GpuKernel attention_logsumexp(const Launch& launch, loop::GpuLanguage language,
                                    const std::string& prefix);
loop::GpuKernel attention_backward(const Launch& launch, loop::GpuLanguage language,
                                   const std::string& prefix);

}  // namespace weft::gpu
