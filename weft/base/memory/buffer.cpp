#include "weft/base/memory/buffer.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

#include "weft/base/error.h"
#include "weft/base/host/parallel.h"
#include "weft/base/memory/buffer_source.h"
#include "weft/base/memory/memory.h"
#include "weft/base/numbers/rounding.h"

namespace weft {
namespace {
constexpr size_t huge_page = size_t{2} << 20;

[[noreturn]] void refuse(size_t bytes) {
  check_fits("out of memory: the elements of a tensor", bytes);
  throw Error(ErrorKind::does_not_fit, "out of memory: the system refuses {} bytes.", bytes);
}

std::shared_ptr<void> map(size_t bytes) {
  // Reserves one huge page more, so that the start can be aligned to it, and unmaps the excess on
  // both sides, because the process's address space may be limited.
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t mapped = round_up(bytes, page), reserved = mapped + huge_page;
  void* base = mmap(nullptr, reserved, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) refuse(bytes);
  auto* begin = static_cast<std::byte*>(base);
  auto* aligned =
      reinterpret_cast<std::byte*>(round_up(reinterpret_cast<uintptr_t>(base), huge_page));
  if (aligned > begin) munmap(begin, static_cast<size_t>(aligned - begin));
  if (std::byte* end = begin + reserved; aligned + mapped < end)
    munmap(aligned + mapped, static_cast<size_t>(end - aligned) - mapped);
  madvise(aligned, bytes, MADV_HUGEPAGE);
  return {aligned, [mapped](void* memory) { munmap(memory, mapped); }};
}

std::shared_ptr<void> from_system(size_t bytes) {
  if (bytes >= huge_page) return map(bytes);
  size_t rounded = (bytes + buffer_alignment) / buffer_alignment * buffer_alignment;
  std::shared_ptr<void> memory(std::aligned_alloc(buffer_alignment, rounded), std::free);
  if (memory == nullptr) refuse(bytes);
  std::memset(memory.get(), 0, rounded);
  return memory;
}

std::atomic<BufferSource> buffer_source{from_system};
}  // namespace

void set_buffer_source(BufferSource source) {
  buffer_source = source != nullptr ? source : from_system;
}

std::shared_ptr<Buffer> Buffer::allocate(size_t bytes) {
  auto buffer = std::make_shared<Buffer>();
  buffer->bytes = bytes;
  buffer->owner = buffer_source.load()(bytes);
  buffer->data = static_cast<std::byte*>(buffer->owner.get());
  return buffer;
}

void Buffer::populate() const {
#ifdef MADV_POPULATE_WRITE  // Linux 5.14; older kernels fault pages in on first touch
  if (bytes < huge_page) return;
  parallel_for(static_cast<int64_t>(ceil_div(bytes, huge_page)), [&](int64_t begin, int64_t end) {
    size_t from = static_cast<size_t>(begin) * huge_page;
    size_t to = std::min(static_cast<size_t>(end) * huge_page, bytes);
    madvise(data + from, to - from, MADV_POPULATE_WRITE);
  });
#endif
}

void Buffer::release(size_t offset, size_t length) const {
  if (!in_file) return;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(data + offset) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(data + offset + length);
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

std::shared_ptr<Buffer> Buffer::part(const std::shared_ptr<Buffer>& whole, size_t offset,
                                     size_t bytes) {
  WEFT_ASSERT(offset + bytes <= whole->bytes, "part beyond its buffer");
  auto buffer = std::make_shared<Buffer>();
  buffer->data = whole->data + offset;
  buffer->bytes = bytes;
  buffer->owner = whole;
  buffer->pinned = whole->pinned;
  return buffer;
}
}  // namespace weft
