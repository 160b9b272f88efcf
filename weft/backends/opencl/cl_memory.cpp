#include "weft/backends/opencl/cl_memory.h"

#include <algorithm>
#include <sys/mman.h>
#include <vector>

#include "weft/base/error.h"

namespace weft::opencl {

std::shared_ptr<Buffer> AddressedMemory::allocate(size_t bytes) {
  const size_t size = std::max<size_t>(bytes, 1);
  void* range = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED)
    throw Error(ErrorKind::failed, "[opencl] no addresses for {} bytes of device memory.", size);
  auto buffer = std::make_shared<Buffer>();
  buffer->data = static_cast<std::byte*>(range);
  buffer->bytes = bytes;
  buffer->owner = std::shared_ptr<void>(range, [this, size](void* address) {
    forget(static_cast<std::byte*>(address));
    munmap(address, size);
  });
  {
    std::lock_guard lock(mutex_);
    ranges_[buffer->data] = device_.allocate(size);
  }
  device_.fill_zero(place_of(buffer->data), size);
  return buffer;
}

void AddressedMemory::forget(const std::byte* address) {
  std::lock_guard lock(mutex_);
  ranges_.erase(address);
}

Place AddressedMemory::place_of(const void* address) const {
  if (address == nullptr) return {};
  const auto* at = static_cast<const std::byte*>(address);
  std::lock_guard lock(mutex_);
  auto range = ranges_.lower_bound(at);  // the last that begins at or before it
  WEFT_ASSERT(range != ranges_.end(), "an address of no device memory");
  return {range->second, static_cast<size_t>(at - range->first)};
}

void AddressedMemory::write(std::byte* to, const void* from, size_t bytes) {
  device_.write(place_of(to), from, bytes);
}
void AddressedMemory::read(void* to, const std::byte* from, size_t bytes) {
  device_.read(place_of(from), to, bytes);
}
void AddressedMemory::copy(std::byte* to, const std::byte* from, size_t bytes) {
  device_.copy(place_of(to), place_of(from), bytes);
}

}  // namespace weft::opencl
