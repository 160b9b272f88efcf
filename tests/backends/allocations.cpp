#include "tests/backends/allocations.h"

#include <atomic>
#include <cerrno>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <malloc.h>

namespace weft::testing {
namespace {
std::atomic<bool> watching{false};
std::atomic<int64_t> live{0}, most{0};

[[maybe_unused]] void count(int64_t bytes) {
  if (!watching.load(std::memory_order_relaxed)) return;
  const int64_t now = live += bytes;
  int64_t before = most;
  while (now > before && !most.compare_exchange_weak(before, now)) {
  }
}
[[maybe_unused]] void* counted(void* memory) {
  if (memory != nullptr) count(static_cast<int64_t>(malloc_usable_size(memory)));
  return memory;
}
}  // namespace

void start_watching() {
  live = most = 0;
  watching = true;
}
Allocations stop_watching() {
  watching = false;
  return {static_cast<size_t>(most), static_cast<size_t>(live > 0 ? live.load() : 0)};
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
bool can_watch_allocations() { return false; }
}  // namespace weft::testing
#else
bool can_watch_allocations() { return true; }
}  // namespace weft::testing

// glibc's own, under the names that it keeps for interposers.
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void* memory);

using weft::testing::count;
using weft::testing::counted;

void* malloc(size_t bytes) { return counted(__libc_malloc(bytes)); }
void* calloc(size_t n, size_t bytes) { return counted(__libc_calloc(n, bytes)); }
void* realloc(void* memory, size_t bytes) {
  if (memory != nullptr) count(-static_cast<int64_t>(malloc_usable_size(memory)));
  return counted(__libc_realloc(memory, bytes));
}
void* memalign(size_t alignment, size_t bytes) {
  return counted(__libc_memalign(alignment, bytes));
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  return counted(__libc_memalign(alignment, bytes));
}
int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  *memory = counted(__libc_memalign(alignment, bytes));
  return *memory == nullptr ? ENOMEM : 0;
}
void free(void* memory) {
  if (memory != nullptr) count(-static_cast<int64_t>(malloc_usable_size(memory)));
  __libc_free(memory);
}
void* mmap(void* address, size_t bytes, int protection, int flags, int file, off_t offset) {
  count(static_cast<int64_t>(bytes));
  return reinterpret_cast<void*>(
      syscall(SYS_mmap, address, bytes, protection, flags, file, offset));
}
}
#endif
