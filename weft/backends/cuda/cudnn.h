// Convolutions and attention by cuDNN, NVIDIA's library for them
// (https://docs.nvidia.com/deeplearning/cudnn). It is loaded when the first of them is compiled.
#pragma once

#include <memory>

#include "weft/backends/gpu/library.h"

namespace weft::cuda {

std::unique_ptr<gpu::Provider> cudnn_provider();

}  // namespace weft::cuda
