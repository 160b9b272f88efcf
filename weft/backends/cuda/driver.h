// Declares the functions of the CUDA Driver API that weft uses, by their own names
// (https://docs.nvidia.com/cuda/cuda-driver-api).
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "weft/backends/cuda/shared_library.h"

namespace weft::cuda {

using Address = unsigned long long;  // CUdeviceptr
using Handle = void*;                // CUcontext, CUstream, CUmodule, ...

struct Driver {
  Driver();  // throws Error(device) if the driver is missing or too old

  // Throws Error(device), or Error(does_not_fit) when out of memory, unless `status` is 0.
  void check(int status, const char* call) const;

  SharedLibrary library;
  int version = 0;  // 13010: supports CUDA 13.1
  // NOLINTBEGIN(readability-identifier-naming): the driver's names of its functions
  int (*cuInit)(unsigned flags) = nullptr;
  int (*cuDriverGetVersion)(int* version) = nullptr;
  int (*cuGetErrorName)(int status, const char** name) = nullptr;
  int (*cuGetErrorString)(int status, const char** text) = nullptr;
  int (*cuDeviceGetCount)(int* count) = nullptr;
  int (*cuDeviceGet)(int* device, int ordinal) = nullptr;
  int (*cuDeviceGetName)(char* name, int bytes, int device) = nullptr;
  int (*cuDeviceGetAttribute)(int* value, int attribute, int device) = nullptr;
  int (*cuDeviceGetUuid)(unsigned char* uuid, int device) = nullptr;  // 16 bytes
  int (*cuDeviceTotalMem)(size_t* bytes, int device) = nullptr;
  int (*cuDevicePrimaryCtxRetain)(Handle* context, int device) = nullptr;
  int (*cuDevicePrimaryCtxRelease)(int device) = nullptr;
  int (*cuCtxSetCurrent)(Handle context) = nullptr;
  int (*cuCtxGetCurrent)(Handle* context) = nullptr;
  int (*cuCtxEnablePeerAccess)(Handle peer, unsigned flags) = nullptr;
  int (*cuMemGetInfo)(size_t* free, size_t* total) = nullptr;
  int (*cuMemAlloc)(Address* address, size_t bytes) = nullptr;
  int (*cuMemFree)(Address address) = nullptr;
  int (*cuMemHostAlloc)(void** memory, size_t bytes, unsigned flags) = nullptr;
  int (*cuMemFreeHost)(void* memory) = nullptr;
  int (*cuMemsetD8Async)(Address at, unsigned char value, size_t bytes, Handle stream) = nullptr;
  int (*cuMemcpyHtoDAsync)(Address to, const void* from, size_t bytes, Handle stream) = nullptr;
  int (*cuMemcpyDtoHAsync)(void* to, Address from, size_t bytes, Handle stream) = nullptr;
  int (*cuMemcpyAsync)(Address to, Address from, size_t bytes, Handle stream) = nullptr;
  int (*cuMemcpyDtoDAsync)(Address to, Address from, size_t bytes, Handle stream) = nullptr;
  int (*cuMemcpyPeerAsync)(Address to, Handle to_context, Address from, Handle from_context,
                           size_t bytes, Handle stream) = nullptr;
  int (*cuStreamCreate)(Handle* stream, unsigned flags) = nullptr;
  int (*cuStreamDestroy)(Handle stream) = nullptr;
  int (*cuStreamSynchronize)(Handle stream) = nullptr;
  int (*cuStreamWaitEvent)(Handle stream, Handle event, unsigned flags) = nullptr;
  int (*cuStreamBeginCapture)(Handle stream, int mode) = nullptr;
  int (*cuStreamEndCapture)(Handle stream, Handle* graph) = nullptr;
  int (*cuGraphInstantiate)(Handle* executable, Handle graph, unsigned long long flags) = nullptr;
  int (*cuGraphLaunch)(Handle executable, Handle stream) = nullptr;
  int (*cuGraphExecDestroy)(Handle executable) = nullptr;
  int (*cuGraphDestroy)(Handle graph) = nullptr;
  int (*cuEventCreate)(Handle* event, unsigned flags) = nullptr;
  int (*cuEventRecord)(Handle event, Handle stream) = nullptr;
  int (*cuEventSynchronize)(Handle event) = nullptr;
  int (*cuEventElapsedTime)(float* milliseconds, Handle start, Handle end) = nullptr;
  int (*cuEventDestroy)(Handle event) = nullptr;
  int (*cuModuleLoadData)(Handle* module, const void* image) = nullptr;
  int (*cuModuleUnload)(Handle module) = nullptr;
  int (*cuModuleGetFunction)(Handle* function, Handle module, const char* name) = nullptr;
  int (*cuLaunchKernel)(Handle function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        Handle stream, void** parameters, void** extra) = nullptr;
  // NOLINTEND(readability-identifier-naming)
};

// Returns the driver, which is never unloaded, as objects on a GPU may live as long as the process.
const Driver& driver();

// PerContext holds one handle of a library per CUDA context; current() returns the current
// context's handle. Handles are never destroyed, as the driver is not unloaded.
class PerContext {
 public:
  explicit PerContext(std::function<Handle()> make) : make_(std::move(make)) {}
  Handle current();

 private:
  std::mutex mutex_;
  std::function<Handle()> make_;
  std::map<Handle, Handle> made_;  // by context
};

// The values are those of cuda.h; tests/cuda_headers compares them.
namespace error_code {
inline constexpr int out_of_memory = 2, no_device = 100, illegal_address = 700,
                     first_fault_of_kernels = 714, launch_failed = 719, system_not_ready = 802;
}
namespace flag {
inline constexpr unsigned non_blocking_stream = 1, event_with_time = 0, event_without_time = 2,
                          portable_memory = 1;
inline constexpr int thread_local_capture = 1;
}  // namespace flag
namespace attribute {
inline constexpr int multiprocessors = 16, clock_khz = 13, memory_clock_khz = 36,
                     memory_bus_bits = 37, l2_bytes = 38, capability_major = 75,
                     capability_minor = 76;
}

}  // namespace weft::cuda
