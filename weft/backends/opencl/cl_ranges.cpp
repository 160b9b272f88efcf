#include "weft/backends/opencl/cl_ranges.h"

#include <sys/mman.h>
#include <utility>

#include "weft/base/error.h"

namespace weft::opencl {

std::shared_ptr<Buffer> Ranges::add(Memory memory, size_t bytes) {
  void* range = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED)
    throw Error(ErrorKind::failed, "[opencl] no addresses for {} bytes of device memory.", bytes);
  auto buffer = std::make_shared<Buffer>();
  buffer->data = static_cast<std::byte*>(range);
  buffer->bytes = bytes;
  buffer->owner = std::shared_ptr<void>(range, [table = table_, bytes](void* address) {
    std::lock_guard lock(table->mutex);
    table->memory.erase(static_cast<std::byte*>(address));
    ++table->changes;
    munmap(address, bytes);
  });
  std::lock_guard lock(table_->mutex);
  table_->memory[buffer->data] = std::move(memory);
  ++table_->changes;
  return buffer;
}

Place Ranges::place_of(const void* address) const {
  if (address == nullptr) return {};
  const auto* at = static_cast<const std::byte*>(address);
  std::lock_guard lock(table_->mutex);
  auto range = table_->memory.lower_bound(at);  // the last that begins at or before it
  WEFT_ASSERT(range != table_->memory.end(), "an address of no device memory");
  return {range->second, static_cast<size_t>(at - range->first)};
}

uint64_t Ranges::changes() const {
  std::lock_guard lock(table_->mutex);
  return table_->changes;
}

}  // namespace weft::opencl
