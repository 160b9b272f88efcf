#include "tests/backends/opencl_library.h"

#include "tests/support/skip.h"
#include "weft/backends/gpu/library.h"
#include "weft/backends/opencl/cl_device.h"
#include "weft/base/error.h"

namespace weft::testing {

const KernelLibrary* opencl_library() {
  static const auto library =
      gpu::make_library("opencl", loop::GpuLanguage::opencl, [] { return opencl::open_device(); });
  try {
    library->memory();
    return library.get();
  } catch (const Error& none) {
    skipped(none.what());
    return nullptr;
  }
}

}  // namespace weft::testing
