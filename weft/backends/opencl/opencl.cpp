#include "weft/backends/opencl/opencl.h"

#include "weft/backends/gpu/library.h"
#include "weft/backends/opencl/cl_device.h"

namespace weft {

std::unique_ptr<KernelLibrary> opencl_library() {
  return gpu::make_library("opencl", loop::GpuLanguage::opencl, opencl::open_device);
}

}  // namespace weft
