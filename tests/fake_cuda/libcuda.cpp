// The driver: the functions of weft/backends/cuda/driver.h.
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>

#include "tests/fake_cuda/fake.h"

namespace {
using Address = unsigned long long;
using Handle = void*;
constexpr int out_of_memory = 2, no_device = 100, lost = 214;

struct Gpu {
  std::mutex mutex;
  std::map<Address, size_t> allocated;
  size_t used = 0;
  long launches = 0, captured = 0;
  bool capturing = false;
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
  if (status() == 0) std::memcpy(to, from, bytes);
  return status();
}
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
int cuDeviceGetUuid_v2(unsigned char* uuid, int) {
  std::memset(uuid, fake::uuid_byte, 16);
  return status();
}
int cuDeviceTotalMem_v2(size_t* bytes, int) {
  *bytes = fake::memory();
  return status();
}
int cuDevicePrimaryCtxRetain(Handle* context, int) { return give(context); }
int cuDevicePrimaryCtxRelease_v2(int) { return status(); }
int cuCtxSetCurrent(Handle) { return status(); }
int cuCtxGetCurrent(Handle* context) { return give(context); }
int cuCtxEnablePeerAccess(Handle, unsigned) { return status(); }
int cuMemGetInfo_v2(size_t* free, size_t* total) {
  *total = fake::memory();
  *free = *total - fake::held() - gpu().used;
  return status();
}
int cuMemAlloc_v2(Address* address, size_t bytes) {
  std::lock_guard lock(gpu().mutex);
  if (gpu().used + fake::held() + bytes > fake::memory()) return out_of_memory;
  void* memory = allocate(bytes);
  *address = reinterpret_cast<Address>(memory);
  gpu().allocated[*address] = bytes;
  gpu().used += bytes;
  return status();
}
int cuMemFree_v2(Address address) {
  std::lock_guard lock(gpu().mutex);
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
  std::memset(at(to), value, bytes);
  return status();
}
int cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t bytes, Handle) {
  return copy(at(to), from, bytes);
}
int cuMemcpyDtoHAsync_v2(void* to, Address from, size_t bytes, Handle) {
  return copy(to, at(from), bytes);
}
int cuMemcpyDtoDAsync_v2(Address to, Address from, size_t bytes, Handle) {
  return gpu().capturing ? status() : copy(at(to), at(from), bytes);
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
  gpu().captured = 0;
  return status();
}
int cuStreamEndCapture(Handle, Handle* graph) {
  gpu().capturing = false;
  return give(graph);
}
int cuGraphInstantiateWithFlags(Handle* executable, Handle, unsigned long long) {
  *executable = new long(gpu().captured);
  return status();
}
int cuGraphLaunch(Handle executable, Handle) {
  gpu().launches += *static_cast<long*>(executable);
  if (const char* file = std::getenv("FAKE_CUDA_GRAPHS")) std::ofstream(file, std::ios::app) << 'g';
  return status();
}
int cuGraphExecDestroy(Handle executable) {
  delete static_cast<long*>(executable);
  return status();
}
int cuGraphDestroy(Handle) { return status(); }
int cuEventCreate(Handle* event, unsigned) { return give(event); }
int cuEventRecord(Handle, Handle) { return status(); }
int cuEventSynchronize(Handle) { return status(); }
int cuEventDestroy_v2(Handle) { return status(); }
int cuModuleLoadData(Handle* module, const void*) { return give(module); }
int cuModuleUnload(Handle) { return status(); }
int cuModuleGetFunction(Handle* function, Handle, const char*) { return give(function); }
int cuLaunchKernel(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                   Handle, void**, void**) {
  ++(gpu().capturing ? gpu().captured : gpu().launches);
  return status();
}
}
