#include "tests/backends/opencl_library.h"

#include "tests/support/skip.h"
#include "weft/backends/gpu/library.h"
#include "weft/backends/opencl/cl_device.h"
#include "weft/base/error.h"

namespace weft::testing {

const KernelLibrary* with_device(const KernelLibrary& library) {
  try {
    library.memory();
    return &library;
  } catch (const Error& none) {
    skipped(none.what());
    return nullptr;
  }
}

const KernelLibrary* generated_opencl_library() {
  static const auto library =
      gpu::make_library("opencl", loop::GpuLanguage::opencl, [] { return opencl::open_device(); });
  return with_device(*library);
}

}  // namespace weft::testing
