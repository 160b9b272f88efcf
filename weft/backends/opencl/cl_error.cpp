#include "weft/backends/opencl/cl_error.h"

#include <iterator>
#include <string_view>

#include <fmt/format.h>

#include "weft/base/error.h"

namespace weft::opencl {
namespace {

// The codes count down from -1 and from -30 (CL/cl.h).
constexpr std::string_view of_devices[] = {
    "CL_DEVICE_NOT_FOUND",
    "CL_DEVICE_NOT_AVAILABLE",
    "CL_COMPILER_NOT_AVAILABLE",
    "CL_MEM_OBJECT_ALLOCATION_FAILURE",
    "CL_OUT_OF_RESOURCES",
    "CL_OUT_OF_HOST_MEMORY",
    "CL_PROFILING_INFO_NOT_AVAILABLE",
    "CL_MEM_COPY_OVERLAP",
    "CL_IMAGE_FORMAT_MISMATCH",
    "CL_IMAGE_FORMAT_NOT_SUPPORTED",
    "CL_BUILD_PROGRAM_FAILURE",
    "CL_MAP_FAILURE",
    "CL_MISALIGNED_SUB_BUFFER_OFFSET",
    "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST",
    "CL_COMPILE_PROGRAM_FAILURE",
    "CL_LINKER_NOT_AVAILABLE",
    "CL_LINK_PROGRAM_FAILURE",
    "CL_DEVICE_PARTITION_FAILED",
    "CL_KERNEL_ARG_INFO_NOT_AVAILABLE",
};
constexpr std::string_view of_arguments[] = {
    "CL_INVALID_VALUE",
    "CL_INVALID_DEVICE_TYPE",
    "CL_INVALID_PLATFORM",
    "CL_INVALID_DEVICE",
    "CL_INVALID_CONTEXT",
    "CL_INVALID_QUEUE_PROPERTIES",
    "CL_INVALID_COMMAND_QUEUE",
    "CL_INVALID_HOST_PTR",
    "CL_INVALID_MEM_OBJECT",
    "CL_INVALID_IMAGE_FORMAT_DESCRIPTOR",
    "CL_INVALID_IMAGE_SIZE",
    "CL_INVALID_SAMPLER",
    "CL_INVALID_BINARY",
    "CL_INVALID_BUILD_OPTIONS",
    "CL_INVALID_PROGRAM",
    "CL_INVALID_PROGRAM_EXECUTABLE",
    "CL_INVALID_KERNEL_NAME",
    "CL_INVALID_KERNEL_DEFINITION",
    "CL_INVALID_KERNEL",
    "CL_INVALID_ARG_INDEX",
    "CL_INVALID_ARG_VALUE",
    "CL_INVALID_ARG_SIZE",
    "CL_INVALID_KERNEL_ARGS",
    "CL_INVALID_WORK_DIMENSION",
    "CL_INVALID_WORK_GROUP_SIZE",
    "CL_INVALID_WORK_ITEM_SIZE",
    "CL_INVALID_GLOBAL_OFFSET",
    "CL_INVALID_EVENT_WAIT_LIST",
    "CL_INVALID_EVENT",
    "CL_INVALID_OPERATION",
    "CL_INVALID_GL_OBJECT",
    "CL_INVALID_BUFFER_SIZE",
    "CL_INVALID_MIP_LEVEL",
    "CL_INVALID_GLOBAL_WORK_SIZE",
    "CL_INVALID_PROPERTY",
    "CL_INVALID_IMAGE_DESCRIPTOR",
    "CL_INVALID_COMPILER_OPTIONS",
    "CL_INVALID_LINKER_OPTIONS",
    "CL_INVALID_DEVICE_PARTITION_COUNT",
};
constexpr int no_platform = -1001;  // CL_PLATFORM_NOT_FOUND_KHR (CL/cl_ext.h)

// Returns whether drivers report a lost device by this code: OpenCL has no code of its own for
// that.
bool may_be_lost(std::string_view name) {
  return name == "CL_DEVICE_NOT_AVAILABLE" || name == "CL_OUT_OF_RESOURCES" ||
         name == "CL_INVALID_COMMAND_QUEUE" || name == "CL_INVALID_CONTEXT" ||
         name == "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST";
}
}  // namespace

std::string error_name(int status) {
  const int of_device = -1 - status, of_argument = -30 - status;
  if (of_device >= 0 && of_device < static_cast<int>(std::size(of_devices)))
    return std::string(of_devices[of_device]);
  if (of_argument >= 0 && of_argument < static_cast<int>(std::size(of_arguments)))
    return std::string(of_arguments[of_argument]);
  return status == no_platform ? "CL_PLATFORM_NOT_FOUND_KHR" : fmt::format("code {}", status);
}

void check(int status, std::string_view call) {
  if (status == 0) return;
  const std::string name = error_name(status);
  throw Error(ErrorKind::device, "[opencl] {} failed: {}.{}", call, name,
              may_be_lost(name) ? " The device may be lost: its driver has reset it, or it was "
                                  "unplugged. Hint: weft devices shows whether it is still there."
                                : "");
}

}  // namespace weft::opencl
