// The driver: the functions of weft/backends/cuda/driver.h.
#include <cstdint>
#include <cstring>
#include <dlfcn.h>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/fake_cuda/fake.h"
#include "tests/fake_cuda/threads.h"
#include "tests/support/temporary_folder.h"

namespace {
using Address = unsigned long long;
using Handle = void*;
constexpr int out_of_memory = 2, no_device = 100, no_image = 200, lost = 214, no_such_name = 500;

using Work = std::vector<std::function<void()>>;
struct Gpu {
  std::recursive_mutex mutex;
  std::map<Address, size_t> allocated;
  size_t used = 0;
  long launches = 0;
  bool capturing = false;
  Work captured;
};
// Never destroyed: what is on a GPU may be freed as the process ends.
Gpu& gpu() {
  static Gpu& instance = *new Gpu;
  return instance;
}
Handle some_handle() { return &gpu(); }

int status() {
  const long most = fake::number("FAKE_CUDA_LOST_AFTER", -1);
  if (most < 0 || gpu().launches <= most) return 0;
  return static_cast<int>(fake::number("FAKE_CUDA_LOST_CODE", lost));
}
int give(Handle* to) {
  *to = some_handle();
  return status();
}
int copy(void* to, const void* from, size_t bytes) {
  fake::enqueue([=] {
    if (status() == 0) std::memmove(to, from, bytes);
  });
  return status();
}
thread_local Handle current;  // context
void* allocate(size_t bytes) {
  constexpr size_t alignment = 256;
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}
void* at(Address address) { return reinterpret_cast<void*>(address); }
int write_text(char* to, int bytes, const char* text) {
  std::strncpy(to, text, static_cast<size_t>(bytes) - 1);
  to[bytes - 1] = '\0';
  return status();
}
}  // namespace

void fake::enqueue(std::function<void()> what) {
  const std::lock_guard lock(gpu().mutex);
  if (gpu().capturing)
    gpu().captured.push_back(std::move(what));
  else
    what();
}

extern "C" {
int cuInit(unsigned) { return fake::number("FAKE_CUDA_DEVICES", 1) == 0 ? no_device : 0; }
int cuDriverGetVersion(int* version) {
  *version = static_cast<int>(fake::number("FAKE_CUDA_VERSION", 13000));
  return 0;
}
int cuGetErrorName(int code, const char** name) {
  *name = code == lost            ? "CUDA_ERROR_ECC_UNCORRECTABLE"
          : code == no_device     ? "CUDA_ERROR_NO_DEVICE"
          : code == out_of_memory ? "CUDA_ERROR_OUT_OF_MEMORY"
          : code == 700           ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                                  : "CUDA_ERROR_UNKNOWN";
  return 0;
}
int cuGetErrorString(int code, const char** text) {
  *text = code == lost            ? "uncorrectable ECC error encountered"
          : code == no_device     ? "no CUDA-capable device is detected"
          : code == out_of_memory ? "out of memory"
          : code == 700           ? "an illegal memory access was encountered"
                                  : "unknown error";
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = static_cast<int>(fake::number("FAKE_CUDA_DEVICES", 1));
  return status();
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return status();
}
int cuDeviceGetName(char* name, int bytes, int) { return write_text(name, bytes, fake::name()); }
int cuDeviceGetAttribute(int* value, int attribute, int) {
  constexpr int capability_major = 75, capability_minor = 76, multiprocessors = 16;
  *value = attribute == capability_major   ? 9
           : attribute == capability_minor ? 0
           : attribute == multiprocessors  ? 132
                                           : 1;
  return status();
}
int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  std::memset(uuid, fake::uuid_byte(device), 16);
  return status();
}
int cuDeviceTotalMem_v2(size_t* bytes, int) {
  *bytes = fake::memory();
  return status();
}
int cuDevicePrimaryCtxRetain(Handle* context, int device) {
  static int contexts[16];
  *context = &contexts[device];
  return status();
}
int cuDevicePrimaryCtxRelease_v2(int) { return status(); }
int cuCtxSetCurrent(Handle context) {
  current = context;
  return status();
}
int cuCtxGetCurrent(Handle* context) {
  *context = current;
  return status();
}
int cuCtxEnablePeerAccess(Handle, unsigned) { return status(); }
int cuMemGetInfo_v2(size_t* free, size_t* total) {
  *total = fake::memory();
  *free = *total - fake::held() - gpu().used;
  return status();
}
int cuMemAlloc_v2(Address* address, size_t bytes) {
  const std::lock_guard lock(gpu().mutex);
  if (gpu().used + fake::held() + bytes > fake::memory()) return out_of_memory;
  void* memory = allocate(bytes);
  *address = reinterpret_cast<Address>(memory);
  gpu().allocated[*address] = bytes;
  gpu().used += bytes;
  return status();
}
int cuMemFree_v2(Address address) {
  const std::lock_guard lock(gpu().mutex);
  gpu().used -= gpu().allocated[address];
  gpu().allocated.erase(address);
  std::free(at(address));
  return status();
}
int cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  *memory = allocate(bytes);
  return status();
}
int cuMemFreeHost(void* memory) {
  std::free(memory);
  return status();
}
int cuMemsetD8Async(Address to, unsigned char value, size_t bytes, Handle) {
  fake::enqueue([=] { std::memset(at(to), value, bytes); });
  return status();
}
int cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t bytes, Handle) {
  return copy(at(to), from, bytes);
}
int cuMemcpyDtoHAsync_v2(void* to, Address from, size_t bytes, Handle) {
  return copy(to, at(from), bytes);
}
int cuMemcpyDtoDAsync_v2(Address to, Address from, size_t bytes, Handle) {
  return copy(at(to), at(from), bytes);
}
int cuMemcpyPeerAsync(Address to, Handle, Address from, Handle, size_t bytes, Handle stream) {
  return cuMemcpyDtoDAsync_v2(to, from, bytes, stream);
}
// Both addresses are the host's here.
int cuMemcpyAsync(Address to, Address from, size_t bytes, Handle stream) {
  return cuMemcpyDtoDAsync_v2(to, from, bytes, stream);
}
int cuStreamCreate(Handle* stream, unsigned) { return give(stream); }
int cuStreamDestroy_v2(Handle) { return status(); }
int cuStreamSynchronize(Handle) { return status(); }
int cuStreamWaitEvent(Handle, Handle, unsigned) { return status(); }
int cuStreamBeginCapture_v2(Handle, int) {
  gpu().capturing = true;
  return status();
}
int cuStreamEndCapture(Handle, Handle* graph) {
  gpu().capturing = false;
  *graph = new Work(std::exchange(gpu().captured, {}));
  return status();
}
int cuGraphInstantiateWithFlags(Handle* executable, Handle graph, unsigned long long) {
  *executable = new Work(*static_cast<const Work*>(graph));
  return status();
}
int cuGraphLaunch(Handle executable, Handle) {
  const std::lock_guard lock(gpu().mutex);
  for (const auto& what : *static_cast<const Work*>(executable)) what();
  if (const char* file = std::getenv("FAKE_CUDA_GRAPHS")) std::ofstream(file, std::ios::app) << 'g';
  return status();
}
int cuGraphExecDestroy(Handle executable) {
  delete static_cast<Work*>(executable);
  return status();
}
int cuGraphDestroy(Handle graph) {
  delete static_cast<Work*>(graph);
  return status();
}
int cuEventCreate(Handle* event, unsigned) { return give(event); }
int cuEventRecord(Handle, Handle) { return status(); }
int cuEventSynchronize(Handle) { return status(); }
int cuEventDestroy_v2(Handle) { return status(); }
// What libnvrtc.cpp made.
int cuModuleLoadData(Handle* module, const void* image) {
  *module = nullptr;
  if (*fake::compiler() == '\0') return status();
  uint64_t size = 0;
  std::memcpy(&size, image, sizeof size);
  const std::string_view library(static_cast<const char*>(image) + sizeof size, size);
  const weft::test::TemporaryFolder folder;  // a name of its own: the loader knows libraries by it
  *module = dlopen(folder.file("kernels.so", library).c_str(), RTLD_NOW | RTLD_LOCAL);
  return *module == nullptr ? no_image : status();
}
int cuModuleUnload(Handle module) {
  if (module != nullptr) dlclose(module);
  return status();
}
// Never let go.
int cuModuleGetFunction(Handle* function, Handle module, const char* name) {
  auto* const kernel = new fake::Kernel(module == nullptr ? fake::Kernel{.name = name}
                                                          : fake::kernel_in(module, name));
  *function = kernel;
  return module != nullptr && kernel->call == nullptr ? no_such_name : status();
}
int cuLaunchKernel(Handle function, unsigned groups, unsigned, unsigned, unsigned threads, unsigned,
                   unsigned, unsigned, Handle, void** parameters, void**) {
  const fake::Kernel& kernel = *static_cast<const fake::Kernel*>(function);
  std::vector<uint64_t> arguments(static_cast<size_t>(kernel.parameters));
  for (size_t i = 0; i < arguments.size(); ++i)
    std::memcpy(&arguments[i], parameters[i], sizeof(uint64_t));
  fake::enqueue([=, &kernel] {
    ++gpu().launches;
    if (kernel.call != nullptr && status() == 0) fake::run(kernel, groups, threads, arguments);
  });
  return status();
}
}
