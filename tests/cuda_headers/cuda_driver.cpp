// Checks the driver's constants and signatures against its header at compile time. The header maps
// function names to versions by macros, so it must be included first.
#include <cuda.h>

#include "tests/cuda_headers/abi.h"
#include "weft/backends/cuda/driver.h"

namespace cuda_headers {
using weft::cuda::Driver;
namespace attribute = weft::cuda::attribute;
namespace flag = weft::cuda::flag;
namespace error_code = weft::cuda::error_code;

static_assert(error_code::out_of_memory == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(error_code::no_device == CUDA_ERROR_NO_DEVICE);
static_assert(error_code::illegal_address == CUDA_ERROR_ILLEGAL_ADDRESS);
static_assert(error_code::first_fault_of_kernels == CUDA_ERROR_HARDWARE_STACK_ERROR);
static_assert(error_code::launch_failed == CUDA_ERROR_LAUNCH_FAILED);
// The codes in between are all faults of kernels.
static_assert(CUDA_ERROR_ILLEGAL_INSTRUCTION == error_code::first_fault_of_kernels + 1);
static_assert(CUDA_ERROR_MISALIGNED_ADDRESS == error_code::first_fault_of_kernels + 2);
static_assert(CUDA_ERROR_INVALID_ADDRESS_SPACE == error_code::first_fault_of_kernels + 3);
static_assert(CUDA_ERROR_INVALID_PC == error_code::first_fault_of_kernels + 4);
static_assert(error_code::launch_failed == error_code::first_fault_of_kernels + 5);
static_assert(error_code::system_not_ready == CUDA_ERROR_SYSTEM_NOT_READY);

static_assert(flag::non_blocking_stream == CU_STREAM_NON_BLOCKING);
static_assert(flag::event_with_time == CU_EVENT_DEFAULT);
static_assert(flag::event_without_time == CU_EVENT_DISABLE_TIMING);
static_assert(flag::portable_memory == CU_MEMHOSTALLOC_PORTABLE);
static_assert(flag::thread_local_capture == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);

static_assert(attribute::multiprocessors == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
static_assert(attribute::clock_khz == CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
static_assert(attribute::memory_clock_khz == CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
static_assert(attribute::memory_bus_bits == CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
static_assert(attribute::l2_bytes == CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
static_assert(attribute::capability_major == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(attribute::capability_minor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);

static_assert(same_abi<decltype(Driver::cuInit), decltype(&::cuInit)>);
static_assert(same_abi<decltype(Driver::cuDriverGetVersion), decltype(&::cuDriverGetVersion)>);
static_assert(same_abi<decltype(Driver::cuGetErrorName), decltype(&::cuGetErrorName)>);
static_assert(same_abi<decltype(Driver::cuGetErrorString), decltype(&::cuGetErrorString)>);
static_assert(same_abi<decltype(Driver::cuDeviceGetCount), decltype(&::cuDeviceGetCount)>);
static_assert(same_abi<decltype(Driver::cuDeviceGet), decltype(&::cuDeviceGet)>);
static_assert(same_abi<decltype(Driver::cuDeviceGetName), decltype(&::cuDeviceGetName)>);
static_assert(same_abi<decltype(Driver::cuDeviceGetAttribute), decltype(&::cuDeviceGetAttribute)>);
static_assert(same_abi<decltype(Driver::cuDeviceGetUuid), decltype(&::cuDeviceGetUuid)>);
static_assert(same_abi<decltype(Driver::cuDeviceTotalMem), decltype(&::cuDeviceTotalMem)>);
static_assert(
    same_abi<decltype(Driver::cuDevicePrimaryCtxRetain), decltype(&::cuDevicePrimaryCtxRetain)>);
static_assert(
    same_abi<decltype(Driver::cuDevicePrimaryCtxRelease), decltype(&::cuDevicePrimaryCtxRelease)>);
static_assert(same_abi<decltype(Driver::cuCtxSetCurrent), decltype(&::cuCtxSetCurrent)>);
static_assert(same_abi<decltype(Driver::cuCtxGetCurrent), decltype(&::cuCtxGetCurrent)>);
static_assert(
    same_abi<decltype(Driver::cuCtxEnablePeerAccess), decltype(&::cuCtxEnablePeerAccess)>);
static_assert(same_abi<decltype(Driver::cuMemGetInfo), decltype(&::cuMemGetInfo)>);
static_assert(same_abi<decltype(Driver::cuMemAlloc), decltype(&::cuMemAlloc)>);
static_assert(same_abi<decltype(Driver::cuMemFree), decltype(&::cuMemFree)>);
static_assert(same_abi<decltype(Driver::cuMemHostAlloc), decltype(&::cuMemHostAlloc)>);
static_assert(same_abi<decltype(Driver::cuMemFreeHost), decltype(&::cuMemFreeHost)>);
static_assert(same_abi<decltype(Driver::cuMemsetD8Async), decltype(&::cuMemsetD8Async)>);
static_assert(same_abi<decltype(Driver::cuMemcpyHtoDAsync), decltype(&::cuMemcpyHtoDAsync)>);
static_assert(same_abi<decltype(Driver::cuMemcpyDtoHAsync), decltype(&::cuMemcpyDtoHAsync)>);
static_assert(same_abi<decltype(Driver::cuMemcpyAsync), decltype(&::cuMemcpyAsync)>);
static_assert(same_abi<decltype(Driver::cuMemcpyDtoDAsync), decltype(&::cuMemcpyDtoDAsync)>);
static_assert(same_abi<decltype(Driver::cuMemcpyPeerAsync), decltype(&::cuMemcpyPeerAsync)>);
static_assert(same_abi<decltype(Driver::cuStreamCreate), decltype(&::cuStreamCreate)>);
static_assert(same_abi<decltype(Driver::cuStreamDestroy), decltype(&::cuStreamDestroy)>);
static_assert(same_abi<decltype(Driver::cuStreamSynchronize), decltype(&::cuStreamSynchronize)>);
static_assert(same_abi<decltype(Driver::cuStreamWaitEvent), decltype(&::cuStreamWaitEvent)>);
static_assert(same_abi<decltype(Driver::cuStreamBeginCapture), decltype(&::cuStreamBeginCapture)>);
static_assert(same_abi<decltype(Driver::cuStreamEndCapture), decltype(&::cuStreamEndCapture)>);
static_assert(
    same_abi<decltype(Driver::cuGraphInstantiate), decltype(&::cuGraphInstantiateWithFlags)>);
static_assert(same_abi<decltype(Driver::cuGraphLaunch), decltype(&::cuGraphLaunch)>);
static_assert(same_abi<decltype(Driver::cuGraphExecDestroy), decltype(&::cuGraphExecDestroy)>);
static_assert(same_abi<decltype(Driver::cuGraphDestroy), decltype(&::cuGraphDestroy)>);
static_assert(same_abi<decltype(Driver::cuEventCreate), decltype(&::cuEventCreate)>);
static_assert(same_abi<decltype(Driver::cuEventRecord), decltype(&::cuEventRecord)>);
static_assert(same_abi<decltype(Driver::cuEventSynchronize), decltype(&::cuEventSynchronize)>);
static_assert(same_abi<decltype(Driver::cuEventElapsedTime), decltype(&::cuEventElapsedTime)>);
static_assert(same_abi<decltype(Driver::cuEventDestroy), decltype(&::cuEventDestroy)>);
static_assert(same_abi<decltype(Driver::cuModuleLoadData), decltype(&::cuModuleLoadData)>);
static_assert(same_abi<decltype(Driver::cuModuleUnload), decltype(&::cuModuleUnload)>);
static_assert(same_abi<decltype(Driver::cuModuleGetFunction), decltype(&::cuModuleGetFunction)>);
static_assert(same_abi<decltype(Driver::cuLaunchKernel), decltype(&::cuLaunchKernel)>);

}  // namespace cuda_headers
