// Computes convolutions and attention by cuDNN (https://docs.nvidia.com/deeplearning/cudnn). The
// library is loaded when the first of them is compiled.
#pragma once

#include <memory>

#include "weft/backends/gpu/library.h"

namespace weft::cuda {

std::unique_ptr<gpu::Provider> cudnn_provider();

}  // namespace weft::cuda
