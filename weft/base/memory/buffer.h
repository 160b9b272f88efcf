// A Buffer is a span of memory that holds values, and the owner that keeps it alive.
#pragma once

#include <cstddef>
#include <memory>

namespace weft {

inline constexpr size_t buffer_alignment = 64;  // bytes; one cache line, one AVX-512 vector

struct Buffer {
  std::byte* data = nullptr;
  size_t bytes = 0;
  std::shared_ptr<void> owner;  // an arena, a file mapping or an allocation

  // Returns zeroed memory, aligned to buffer_alignment; large allocations use huge pages. Throws
  // Error(failed) when out of memory.
  static std::shared_ptr<Buffer> allocate(size_t bytes);
  // Returns a view of a part of `whole`; the view keeps `whole` alive.
  static std::shared_ptr<Buffer> part(const std::shared_ptr<Buffer>& whole, size_t offset,
                                      size_t bytes);
  // Faults in the untouched pages of a large allocation for writing, in parallel. A page that is
  // read before it is written costs two faults and a TLB shootdown on every core.
  void populate() const;
  // Drops the pages of a range of a file mapping from memory; the next access reads them from the
  // file again. Does nothing for other memory, whose contents would be lost.
  void release(size_t offset, size_t bytes) const;
  bool in_file = false;
  bool pinned = false;  // devices copy from and to it asynchronously
};

}  // namespace weft
