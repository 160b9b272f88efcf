// Compiles joined launches (Launch::parts): one launch runs kernels of one form by a table of their
// addresses.
#pragma once

#include <memory>
#include <optional>

#include "weft/backends/gpu/device.h"

namespace weft::gpu {

// Returns the form of a fused launch (KernelCompiler::form).
std::optional<KernelForm> form_of(const Launch& launch, loop::GpuLanguage language);

size_t table_bytes(const Launch& launch);
loop::JoinedKernels joined_kernels(const Launch& launch, loop::GpuLanguage language);
std::unique_ptr<Kernel> make_joined(Device& device, const Launch& launch);

}  // namespace weft::gpu
