// Simulates a driver that shows no GPU and runs nothing, with which cuDNN plans for one that need
// not be here: it asks for functions when it is loaded, and to build a plan for a kernel that it
// compiled.
#include <dlfcn.h>
#include <string>

namespace {
constexpr int not_supported = 801;
int something;

int give(void** to) {
  *to = &something;
  return 0;
}
}  // namespace

extern "C" {
int cuInit(unsigned) { return 0; }
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
int cuGetErrorName(int, const char** name) {
  *name = "CUDA_ERROR_NOT_SUPPORTED";
  return 0;
}
int cuGetErrorString(int, const char** text) {
  *text = "this driver only plans";
  return 0;
}

// These calls build a plan: any machine code is accepted.
int cuLibraryLoadData(void** library) { return give(library); }
int cuLibraryGetKernel(void** kernel) { return give(kernel); }
int cuKernelGetFunction(void** function) { return give(function); }
int cuLibraryUnload() { return 0; }

// These symbols have to exist, but nobody who only plans calls them, or the calls may fail.
int cuCtxGetCurrent() { return not_supported; }
int cuCtxGetLimit() { return not_supported; }
int cuCtxPopCurrent() { return not_supported; }
int cuCtxPushCurrent() { return not_supported; }
int cuDeviceGet() { return not_supported; }
int cuDeviceGetCount() { return not_supported; }
int cuGetExportTable() { return not_supported; }
int cuKernelGetAttribute() { return not_supported; }
int cuKernelSetAttribute() { return not_supported; }
int cuLaunchCooperativeKernel() { return not_supported; }
int cuLaunchKernel() { return not_supported; }
int cuLaunchKernelEx() { return not_supported; }
int cuLibraryLoadFromFile() { return not_supported; }
int cuLinkAddData() { return not_supported; }
int cuLinkComplete() { return not_supported; }
int cuLinkCreate() { return not_supported; }
int cuLinkDestroy() { return not_supported; }
int cuModuleGetFunction() { return not_supported; }
int cuModuleLoadData() { return not_supported; }
int cuModuleUnload() { return not_supported; }
int cuOccupancyMaxPotentialClusterSize() { return not_supported; }
int cuStreamGetCtx() { return not_supported; }
int cuTensorMapEncodeIm2col() { return not_supported; }
int cuTensorMapEncodeTiled() { return not_supported; }

// CUDA's runtime, which is a part of cuDNN, finds all others by this.
int cuGetProcAddress_v2(const char* name, void** function, int, unsigned long, int* found) {
  static void* const self = [] {
    Dl_info info;
    dladdr(reinterpret_cast<void*>(&cuInit), &info);
    return dlopen(info.dli_fname, RTLD_LAZY);
  }();
  *function = dlsym(self, name);
  if (*function == nullptr) *function = dlsym(self, (std::string(name) + "_v2").c_str());
  if (*function == nullptr) *function = reinterpret_cast<void*>(&cuDeviceGet);
  if (found != nullptr) *found = 0;  // CU_GET_PROC_ADDRESS_SUCCESS
  return 0;
}
}
