// Defines stubs for builds without OpenCL.
#include "weft/backends/opencl/cl_device.h"
#include "weft/backends/opencl/clblast.h"
#include "weft/base/error.h"

namespace weft::opencl {

std::unique_ptr<gpu::Device> open_device(const std::string&) {
  throw Error(ErrorKind::device,
              "[opencl] this build has no OpenCL. Hint: install its headers and loader "
              "(opencl-headers, ocl-icd-opencl-dev) and build weft again.");
}

std::optional<size_t> number_of(const std::string&) { return std::nullopt; }

std::vector<DeviceInfo> devices() { return {}; }
std::string why_no_device() { return "this weft was built without OpenCL."; }

std::unique_ptr<gpu::Provider> clblast_provider() { return nullptr; }

}  // namespace weft::opencl
