// Memory that holds values: a span of bytes and whoever keeps it alive.
#pragma once

#include <cstddef>
#include <memory>

namespace weft {

inline constexpr size_t buffer_alignment = 64;  // bytes; one cache line, one AVX-512 vector

struct Buffer {
  std::byte* data = nullptr;
  size_t bytes = 0;
  std::shared_ptr<void> owner;  // arenas, files and plain allocations alike

  // Zeroed and aligned. Large ones are mapped with huge pages. Throws Error(failed) when out of
  // memory.
  static std::shared_ptr<Buffer> allocate(size_t bytes);
  // A part of `whole`, which it keeps alive.
  static std::shared_ptr<Buffer> part(const std::shared_ptr<Buffer>& whole, size_t offset,
                                      size_t bytes);
  // Hands the pages of a large allocation that nobody wrote yet to the process, on the whole team.
  // A page that is read before it is written costs two faults and a stop of every core.
  void populate() const;
  // The pages in a part of a file that is mapped leave the process; read again, they come from the
  // file. Nothing else has somewhere to go.
  void release(size_t offset, size_t bytes) const;
  bool in_file = false;
  bool pinned = false;  // devices copy from there and to there by themselves
};

}  // namespace weft
