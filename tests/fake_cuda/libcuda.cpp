// Simulates the CUDA driver: the functions of weft/backends/cuda/driver.h for GPUs, contexts and
// memory.
#include "tests/fake_cuda/libcuda.h"

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sys/mman.h>
#include <utility>
#include <vector>

#include "tests/fake_cuda/fake.h"
#include "tests/fake_cuda/streams.h"

namespace fake::driver {

// Returns the GPU, which is never destroyed: device memory may be freed as the process ends.
Gpu& gpu() {
  static Gpu& instance = *new Gpu;
  return instance;
}

constinit thread_local const Context* current = nullptr;
constinit thread_local int captures = 0;

int status() {
  if (gpu().fault != 0) return gpu().fault;
  const long most = fake::number("FAKE_CUDA_LOST_AFTER", -1);
  if (most < 0 || gpu().launches <= most) return 0;
  return static_cast<int>(fake::number("FAKE_CUDA_LOST_CODE", lost));
}

int refusal(const Context* owner) {
  if (current == nullptr) return invalid_context;
  return owner == current ? 0 : invalid_handle;
}

void require(const Context* owner, const char* call) {
  if (refusal(owner) == 0) return;
  std::fprintf(stderr, "fake CUDA: %s while its context is not current\n", call);
  std::abort();
}

void do_until(const std::shared_ptr<Task>& last) {
  fake::take_until(last, [](const Work& what) {
    if (status() == 0) what();
  });
}

void tell(char what) {
  if (const char* file = std::getenv("FAKE_CUDA_WORK")) std::ofstream(file, std::ios::app) << what;
}

}  // namespace fake::driver

using namespace fake::driver;

namespace {
using fake::Context, fake::Stream;

struct ErrorCode {
  int code;
  const char *name, *text;
};
constexpr ErrorCode codes[] = {
    {invalid_value, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {out_of_memory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {no_device, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {invalid_context, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {lost, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
    {invalid_handle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {misaligned_address, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {illegal_address, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {capture_unsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {capture_invalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {capture_unjoined, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
    {capture_isolation, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
    {captured_event, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing stream"},
};
ErrorCode described(int code) {
  for (const ErrorCode& known : codes)
    if (known.code == code) return known;
  return {code, "CUDA_ERROR_UNKNOWN", "unknown error"};
}

void do_all() {
  for (const Stream* stream : gpu().streams)
    do_until(stream->capture == nullptr ? stream->last : stream->last_outside);
}

void* at(Address address) { return reinterpret_cast<void*>(address); }
Address address_of(const void* pointer) { return reinterpret_cast<Address>(pointer); }

// Uninitialized bytes have this value, which is NaN in every floating-point type.
constexpr int garbage = 0xff;

// An idle GPU may have more memory than the host, as nobody touches it.
void* take_memory(size_t bytes) {
  if (fake::is_idle()) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? nullptr : memory;
  }
  constexpr size_t alignment = 256;
  void* memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  std::memset(memory, garbage, bytes);
  return memory;
}
void give_memory_back(void* memory, size_t bytes) {
  if (fake::is_idle())
    munmap(memory, bytes);
  else
    std::free(memory);
}

int allocate(Address& address, size_t bytes, const Context* context) {
  const Lock lock(gpu().mutex);
  if (current == nullptr) return invalid_context;
  if (captures > 0) return capture_unsupported;
  const bool on_device = context != nullptr;
  if (on_device && gpu().used + fake::held() + bytes > fake::memory()) return out_of_memory;
  void* memory = take_memory(bytes);
  if (memory == nullptr) return out_of_memory;
  address = address_of(memory);
  gpu().memory[address] = {bytes, context};
  if (on_device) gpu().used += bytes;
  return status();
}
// Frees memory. Pending work that still reads pinned host memory reads garbage; for device memory,
// cuMemFree waits for it.
int release(Address address) {
  const Lock lock(gpu().mutex);
  const auto found = gpu().memory.find(address);
  if (found == gpu().memory.end()) return invalid_value;
  if (captures > 0) return capture_unsupported;
  const auto [bytes, context] = found->second;
  if (context != nullptr) {
    require(context, "cuMemFree");
    gpu().used -= bytes;
  } else {
    require(current, "cuMemFreeHost");
    std::memset(at(address), garbage, bytes);
  }
  do_all();
  give_memory_back(at(address), bytes);
  gpu().memory.erase(found);
  return status();
}
// Returns null for host memory that is not pinned.
const Memory* memory_at(Address address) {
  auto next = gpu().memory.upper_bound(address);
  if (next == gpu().memory.begin()) return nullptr;
  const auto& [start, memory] = *--next;
  return address < start + memory.bytes ? &memory : nullptr;
}
bool lies_on(const Context* context, Address address, size_t bytes) {
  const Memory* memory = memory_at(address);
  return memory != nullptr && memory->context == context &&
         memory == memory_at(address + bytes - 1);
}
bool lies_with_host(Address address) {
  const Memory* memory = memory_at(address);
  return memory == nullptr || memory->context == nullptr;
}

// Copies; unpinned host memory is read, or written, before the call returns.
int copy(Address to, Address from, size_t bytes, Handle stream) {
  const Lock lock(gpu().mutex);
  const bool reads = memory_at(from) == nullptr, writes = memory_at(to) == nullptr;
  const bool captured = as<Stream>(stream).capture != nullptr;
  if (captured && (reads || writes)) return capture_unsupported;
  std::vector<std::byte> kept;
  if (reads)
    kept.assign(static_cast<const std::byte*>(at(from)),
                static_cast<const std::byte*>(at(from)) + bytes);
  const bool beside = !as<Stream>(stream).is_first;
  const int refused = fake::enqueue(stream, [=, kept = std::move(kept)] {
    std::memmove(at(to), kept.empty() ? at(from) : kept.data(), bytes);
    if (beside) tell('c');
  });
  if (refused != 0) return refused;
  if (writes) do_until(as<Stream>(stream).last);
  return status();
}
int write_text(char* to, int bytes, const char* text) {
  std::strncpy(to, text, static_cast<size_t>(bytes) - 1);
  to[bytes - 1] = '\0';
  return status();
}
}  // namespace

void fake::fault(int code) {
  const Lock lock(gpu().mutex);
  gpu().fault = code;
}

extern "C" {
int cuInit(unsigned) { return fake::number("FAKE_CUDA_DEVICES", 1) == 0 ? no_device : 0; }
int cuDriverGetVersion(int* version) {
  *version = static_cast<int>(fake::number("FAKE_CUDA_VERSION", 13000));
  return 0;
}
int cuGetErrorName(int code, const char** name) {
  *name = described(code).name;
  return 0;
}
int cuGetErrorString(int code, const char** text) {
  *text = described(code).text;
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
  const auto capability = static_cast<int>(fake::number("FAKE_CUDA_CAPABILITY", 90));
  *value = attribute == capability_major   ? capability / 10
           : attribute == capability_minor ? capability % 10
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
  *context = &gpu().contexts[static_cast<size_t>(device)];
  return status();
}
int cuDevicePrimaryCtxRelease_v2(int) { return status(); }
int cuCtxSetCurrent(Handle context) {
  current = static_cast<const Context*>(context);
  return status();
}
int cuCtxGetCurrent(Handle* context) {
  *context = const_cast<Context*>(current);
  return status();
}
int cuCtxEnablePeerAccess(Handle, unsigned) {
  return current == nullptr ? invalid_context : status();
}
int cuMemGetInfo_v2(size_t* free, size_t* total) {
  if (current == nullptr) return invalid_context;
  *total = fake::memory();
  *free = *total - fake::held() - gpu().used;
  return status();
}
int cuMemAlloc_v2(Address* address, size_t bytes) { return allocate(*address, bytes, current); }
int cuMemFree_v2(Address address) { return release(address); }
int cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  Address address = 0;
  const int code = allocate(address, bytes, nullptr);
  *memory = at(address);
  return code;
}
int cuMemFreeHost(void* memory) { return release(address_of(memory)); }
int cuMemsetD8Async(Address to, unsigned char value, size_t bytes, Handle stream) {
  const Lock lock(gpu().mutex);
  if (!lies_on(current, to, bytes)) return invalid_value;
  const int refused = fake::enqueue(stream, [=] {
    std::memset(at(to), value, bytes);
    tell('s');
  });
  return refused != 0 ? refused : status();
}
int cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t bytes, Handle stream) {
  const Lock lock(gpu().mutex);
  const bool fits = lies_on(current, to, bytes) && lies_with_host(address_of(from));
  return fits ? copy(to, address_of(from), bytes, stream) : invalid_value;
}
int cuMemcpyDtoHAsync_v2(void* to, Address from, size_t bytes, Handle stream) {
  const Lock lock(gpu().mutex);
  const bool fits = lies_on(current, from, bytes) && lies_with_host(address_of(to));
  return fits ? copy(address_of(to), from, bytes, stream) : invalid_value;
}
int cuMemcpyPeerAsync(Address to, Handle to_context, Address from, Handle from_context,
                      size_t bytes, Handle stream) {
  const Lock lock(gpu().mutex);
  const bool fits = lies_on(static_cast<const Context*>(to_context), to, bytes) &&
                    lies_on(static_cast<const Context*>(from_context), from, bytes);
  return fits ? copy(to, from, bytes, stream) : invalid_value;
}
int cuMemcpyDtoDAsync_v2(Address to, Address from, size_t bytes, Handle stream) {
  auto* const here = const_cast<Context*>(current);
  return cuMemcpyPeerAsync(to, here, from, here, bytes, stream);
}
int cuMemcpyAsync(Address to, Address from, size_t bytes, Handle stream) {
  if (lies_with_host(from)) return cuMemcpyHtoDAsync_v2(to, at(from), bytes, stream);
  if (lies_with_host(to)) return cuMemcpyDtoHAsync_v2(at(to), from, bytes, stream);
  return cuMemcpyDtoDAsync_v2(to, from, bytes, stream);
}
}
