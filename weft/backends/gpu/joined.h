// Joined launches (Step::parts): one launch runs kernels of one form by a table of their addresses.
#pragma once

#include <memory>
#include <optional>

#include "weft/backends/gpu/device.h"

namespace weft::gpu {

// Returns the form of a fused launch (KernelCompiler::form).
std::optional<KernelForm> form_of(const Step& step, loop::GpuLanguage language);

size_t table_bytes(const Step& step);
loop::JoinedKernels joined_kernels(const Step& step, loop::GpuLanguage language);
std::unique_ptr<Kernel> make_joined(Device& device, const Step& step);

}  // namespace weft::gpu
