// Convolutions by cuDNN, and their gradients: float16, bfloat16 and tf32 on tensor cores with
// float32 sums, all channels-last; float32 and float64 as they are, row-major. Results
// that are to be the sums of 16-bit operands are rounded to their type on the way: an engine that
// stores sums is compiled for seconds, and none takes three channels.
#pragma once

#include <memory>
#include <optional>

#include "weft/backends/cuda/cudnn_graph.h"
#include "weft/backends/gpu/device.h"
#include "weft/device/choice.h"

namespace weft::cuda::cudnn {

std::optional<KernelChoice> choose_conv(const Node& node);
std::unique_ptr<Kernel> compile_conv(gpu::Device& device, const Step& step);

// What a step of `node` runs where its tensors begin at multiples of buffer_alignment. In memory:
// the node's inputs, its result.
Graph conv_graph(const Node& node);
EngineRules conv_rules(const Node& node);  // with the workspace that every plan has for it

}  // namespace weft::cuda::cudnn
