// Attention and its gradient without the matrix of scores (Dao et al. 2022; Dao 2023): keys pass in
// tiles, and softmax goes along with a running maximum.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "weft/codegen/gpu_emit.h"
#include "weft/device/choice.h"

namespace weft::gpu {

// Of attention, attention_logsumexp and attention_backward, in float32 or narrower, with rows of
// 128 elements at most and no mask but the causal one.
std::optional<KernelChoice> choose_attention(const Node& node, std::span<const Placement> operands);
// Of attention that stores attention_logsumexp, too.
std::optional<KernelChoice> choose_attention_with(std::span<const Value> body,
                                                  std::span<const Value> results,
                                                  std::span<const Placement> operands);
loop::GpuKernel attention(const Step& step, loop::GpuLanguage language, const std::string& prefix);
loop::GpuKernel attention_logsumexp(const Step& step, loop::GpuLanguage language,
                                    const std::string& prefix);
loop::GpuKernel attention_backward(const Step& step, loop::GpuLanguage language,
                                   const std::string& prefix);

}  // namespace weft::gpu
