// Steps of several kernels of one form (Step::parts): one launch, which finds the elements of each
// in a table of addresses.
#pragma once

#include <memory>
#include <optional>

#include "weft/backends/gpu/device.h"

namespace weft::gpu {

// The form of a fused step (KernelCompiler::form).
std::optional<KernelForm> form_of(const Step& step, loop::GpuLanguage language);

size_t table_bytes(const Step& step);
loop::JoinedKernels joined_kernels(const Step& step, loop::GpuLanguage language);
std::unique_ptr<Kernel> make_joined(Device& device, const Step& step);

}  // namespace weft::gpu
