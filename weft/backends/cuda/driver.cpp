#include "weft/backends/cuda/driver.h"

#include <string_view>

#include "weft/base/error.h"
#include "weft/base/host/env.h"

namespace weft::cuda {
namespace {
// Returns whether an error is a kernel's. Kernels run asynchronously, so a later call reports it.
bool is_fault_of_kernel(int status) {
  return status == error_code::illegal_address ||
         (status >= error_code::first_fault_of_kernels && status <= error_code::launch_failed);
}
constexpr int least_version = 12000;
}  // namespace

Driver::Driver()
    : library({"libcuda.so.1"}, "install NVIDIA's driver, or train with --device cpu.") {
  library.find(cuInit, "cuInit");
  library.find(cuDriverGetVersion, "cuDriverGetVersion");
  library.find(cuGetErrorName, "cuGetErrorName");
  library.find(cuGetErrorString, "cuGetErrorString");
  check(cuDriverGetVersion(&version), "cuDriverGetVersion");
  if (version < least_version)
    throw Error(ErrorKind::device,
                "[cuda] the driver is too old: it supports CUDA {}.{}, weft needs {}.{} or later. "
                "Hint: update NVIDIA's driver, or train with --device cpu.",
                version / 1000, version % 1000 / 10, least_version / 1000,
                least_version % 1000 / 10);
  library.find(cuDeviceGetCount, "cuDeviceGetCount");
  library.find(cuDeviceGet, "cuDeviceGet");
  library.find(cuDeviceGetName, "cuDeviceGetName");
  library.find(cuDeviceGetAttribute, "cuDeviceGetAttribute");
  library.find(cuDeviceGetUuid, "cuDeviceGetUuid_v2");
  library.find(cuDeviceTotalMem, "cuDeviceTotalMem_v2");
  library.find(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
  library.find(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2");
  library.find(cuCtxSetCurrent, "cuCtxSetCurrent");
  library.find(cuCtxGetCurrent, "cuCtxGetCurrent");
  library.find(cuCtxEnablePeerAccess, "cuCtxEnablePeerAccess");
  library.find(cuMemGetInfo, "cuMemGetInfo_v2");
  library.find(cuMemAlloc, "cuMemAlloc_v2");
  library.find(cuMemFree, "cuMemFree_v2");
  library.find(cuMemHostAlloc, "cuMemHostAlloc");
  library.find(cuMemFreeHost, "cuMemFreeHost");
  library.find(cuMemsetD8Async, "cuMemsetD8Async");
  library.find(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2");
  library.find(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2");
  library.find(cuMemcpyAsync, "cuMemcpyAsync");
  library.find(cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2");
  library.find(cuMemcpyPeerAsync, "cuMemcpyPeerAsync");
  library.find(cuStreamCreate, "cuStreamCreate");
  library.find(cuStreamDestroy, "cuStreamDestroy_v2");
  library.find(cuStreamSynchronize, "cuStreamSynchronize");
  library.find(cuStreamWaitEvent, "cuStreamWaitEvent");
  library.find(cuStreamBeginCapture, "cuStreamBeginCapture_v2");
  library.find(cuStreamEndCapture, "cuStreamEndCapture");
  library.find(cuGraphInstantiate, "cuGraphInstantiateWithFlags");
  library.find(cuGraphLaunch, "cuGraphLaunch");
  library.find(cuGraphExecDestroy, "cuGraphExecDestroy");
  library.find(cuGraphDestroy, "cuGraphDestroy");
  library.find(cuEventCreate, "cuEventCreate");
  library.find(cuEventRecord, "cuEventRecord");
  library.find(cuEventSynchronize, "cuEventSynchronize");
  library.find(cuEventElapsedTime, "cuEventElapsedTime");
  library.find(cuEventDestroy, "cuEventDestroy_v2");
  library.find(cuModuleLoadData, "cuModuleLoadData");
  library.find(cuModuleUnload, "cuModuleUnload");
  library.find(cuModuleGetFunction, "cuModuleGetFunction");
  library.find(cuLaunchKernel, "cuLaunchKernel");
  check(cuInit(0), "cuInit");
}

void Driver::check(int status, const char* call) const {
  if (status == 0) return;
  if (status == error_code::out_of_memory)
    throw Error(ErrorKind::does_not_fit,
                "[cuda] {} memory is exhausted ({}). Hint: weft plan shows how much a run takes, "
                "weft devices which processes use it.",
                std::string_view(call) == "cuMemHostAlloc" ? "the host's" : "the GPU's", call);
  const char *name = "an unknown error", *text = "";
  cuGetErrorName(status, &name);
  cuGetErrorString(status, &text);
  const bool none = status == error_code::no_device || status == error_code::system_not_ready;
  std::string_view hint;
  if (none) hint = " Hint: train with --device cpu.";
  if (is_fault_of_kernel(status))
    hint = env_flag("WEFT_CUDA_SYNC") ? " Hint: WEFT_CUDA_OFF turns off some kernels."
                                      : " Hint: WEFT_CUDA_SYNC=1 names the kernel.";
  throw Error(ErrorKind::device, "[cuda] {}: {} ({}).{}", call, text, name, hint);
}

const Driver& driver() {
  static const Driver* const instance = new Driver;
  return *instance;
}

Handle PerContext::current() {
  Handle context = nullptr;
  driver().check(driver().cuCtxGetCurrent(&context), "cuCtxGetCurrent");
  const std::lock_guard lock(mutex_);
  Handle& made = made_[context];
  if (made == nullptr) made = make_();
  return made;
}

}  // namespace weft::cuda
