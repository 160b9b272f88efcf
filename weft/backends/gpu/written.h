// The kernels that are written by hand: of operations whose loops would read too much.
#pragma once

#include <memory>

#include "weft/backends/gpu/library.h"

namespace weft::gpu {

// Of a step that written_kernels() chose.
loop::GpuKernel print_written(const Step& step, loop::GpuLanguage language,
                              const std::string& prefix);

// "weft": attention, attention_logsumexp, attention_backward, scatter_add, first_position,
// argsort.
std::unique_ptr<Provider> written_kernels();

}  // namespace weft::gpu
