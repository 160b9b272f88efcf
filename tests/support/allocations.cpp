#include "tests/support/allocations.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <new>
#include <string_view>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <link.h>
#include <malloc.h>

#include "tests/support/skip.h"
#include "weft/comm/network.h"

namespace weft::testing {
namespace {
std::atomic<bool> watching{false};
std::atomic<int64_t> live{0}, most{0}, largest{0}, own{0}, of_control{0};

uintptr_t onednn_begin = 0, onednn_end = 0;  // range of its code

void raise_to(std::atomic<int64_t>& value, int64_t to) {
  int64_t before = value;
  while (to > before && !value.compare_exchange_weak(before, to)) {
  }
}

bool is_control_thread() {
  std::array<char, 16> name{};
  prctl(PR_GET_NAME, name.data());
  return std::string_view(name.data()) == comm::control_thread;
}

[[maybe_unused]] void count(int64_t bytes, const void* caller) {
  if (!watching.load(std::memory_order_relaxed)) return;
  auto address = reinterpret_cast<uintptr_t>(caller);
  if (address < onednn_begin || address >= onednn_end) {
    ++own;
    if (is_control_thread()) ++of_control;
  }
  raise_to(largest, bytes);
  raise_to(most, live += bytes);
}
[[maybe_unused]] void* counted(void* memory, const void* caller) {
  if (memory != nullptr) count(static_cast<int64_t>(malloc_usable_size(memory)), caller);
  return memory;
}
[[maybe_unused]] void uncount(void* memory) {
  if (memory != nullptr && watching.load(std::memory_order_relaxed))
    live -= static_cast<int64_t>(malloc_usable_size(memory));
}

int find_onednn(dl_phdr_info* library, size_t, void*) {
  if (std::string_view(library->dlpi_name).find("libdnnl") == std::string_view::npos) return 0;
  for (int i = 0; i < library->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = library->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
    onednn_begin = library->dlpi_addr + part.p_vaddr;
    onednn_end = onednn_begin + part.p_memsz;
  }
  return 1;
}
}  // namespace

void start_watching() {
  dl_iterate_phdr(find_onednn, nullptr);
  live = most = largest = own = of_control = 0;
  watching = true;
}
Allocations stop_watching() {
  watching = false;
  return {static_cast<size_t>(most), static_cast<size_t>(live > 0 ? live.load() : 0),
          static_cast<size_t>(largest), own, of_control};
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)  // sanitizers replace malloc
bool can_watch_allocations() {
  skipped("sanitizers allocate beside the program");
  return false;
}
}  // namespace weft::testing
#else
bool can_watch_allocations() { return true; }
}  // namespace weft::testing

// These functions are the allocator of glibc, under the names that it provides for interposers.
// NOLINTBEGIN(readability-identifier-naming)
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void* memory);
}
// NOLINTEND(readability-identifier-naming)

using weft::testing::count;
using weft::testing::counted;
using weft::testing::uncount;
#define CALLER __builtin_return_address(0)

extern "C" {
void* malloc(size_t bytes) { return counted(__libc_malloc(bytes), CALLER); }
void* calloc(size_t n, size_t bytes) { return counted(__libc_calloc(n, bytes), CALLER); }
void* realloc(void* memory, size_t bytes) {
  uncount(memory);
  return counted(__libc_realloc(memory, bytes), CALLER);
}
void* memalign(size_t alignment, size_t bytes) {
  return counted(__libc_memalign(alignment, bytes), CALLER);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  return counted(__libc_memalign(alignment, bytes), CALLER);
}
int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  *memory = counted(__libc_memalign(alignment, bytes), CALLER);
  return *memory == nullptr ? ENOMEM : 0;
}
void free(void* memory) {
  uncount(memory);
  __libc_free(memory);
}
void* mmap(void* address, size_t bytes, int protection, int flags, int file, off_t offset) {
  count(static_cast<int64_t>(bytes), CALLER);
  return reinterpret_cast<void*>(
      syscall(SYS_mmap, address, bytes, protection, flags, file, offset));
}
}

// Replaces libstdc++'s operator new, whose calls of malloc would all have libstdc++ as caller.
void* operator new(size_t bytes) {
  if (void* memory = counted(__libc_malloc(bytes), CALLER)) return memory;
  throw std::bad_alloc();
}
void* operator new[](size_t bytes) {
  if (void* memory = counted(__libc_malloc(bytes), CALLER)) return memory;
  throw std::bad_alloc();
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  if (void* memory = counted(__libc_memalign(static_cast<size_t>(alignment), bytes), CALLER))
    return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { free(memory); }
void operator delete[](void* memory) noexcept { free(memory); }
void operator delete(void* memory, size_t) noexcept { free(memory); }
void operator delete[](void* memory, size_t) noexcept { free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { free(memory); }
#endif
