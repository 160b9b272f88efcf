// Computes convolutions and their gradients by cuDNN: float16, bfloat16 and tf32 on tensor cores
// with float32 accumulation, channels-last; float32 and float64 without tensor cores, row-major. A
// float32 result of 16-bit operands is rounded to 16 bits first, as engines that store float32 take
// seconds to compile and none supports three channels.
#pragma once

#include <memory>
#include <optional>

#include "weft/backends/cuda/cudnn_graph.h"
#include "weft/backends/gpu/device.h"
#include "weft/device/choice.h"

namespace weft::cuda::cudnn {

std::optional<KernelChoice> choose_conv(const Node& node);
std::unique_ptr<Kernel> compile_conv(gpu::Device& device, const Launch& launch);

// Returns the graph of `node` for tensors aligned to buffer_alignment. Its tensors in memory are
// the node's inputs and its result.
Graph conv_graph(const Node& node);
EngineRules conv_rules(const Node& node);  // with the least workspace that a plan provides

}  // namespace weft::cuda::cudnn
