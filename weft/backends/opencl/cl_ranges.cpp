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
    table->ranges.erase(static_cast<std::byte*>(address));
    ++table->changes;
    munmap(address, bytes);
  });
  std::lock_guard lock(table_->mutex);
  table_->ranges[buffer->data] = {std::move(memory), bytes};
  ++table_->changes;
  return buffer;
}

// The caller holds the table's mutex.
const std::pair<const std::byte* const, Ranges::Table::Range>* Ranges::range_of(
    const void* address) const {
  const auto* at = static_cast<const std::byte*>(address);
  auto range = table_->ranges.lower_bound(at);
  const bool has =
      range != table_->ranges.end() && static_cast<size_t>(at - range->first) < range->second.bytes;
  return has ? &*range : nullptr;
}

Place Ranges::place_of(const void* address) const {
  if (address == nullptr) return {};
  std::lock_guard lock(table_->mutex);
  const auto* range = range_of(address);
  WEFT_ASSERT(range != nullptr, "an address of no device memory");
  return {range->second.memory,
          static_cast<size_t>(static_cast<const std::byte*>(address) - range->first)};
}

bool Ranges::contains(const void* address) const {
  std::lock_guard lock(table_->mutex);
  return range_of(address) != nullptr;
}

uint64_t Ranges::changes() const {
  std::lock_guard lock(table_->mutex);
  return table_->changes;
}

}  // namespace weft::opencl
