#include "weft/comm/shared_memory.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "weft/base/error.h"
#include "weft/base/memory/alignment.h"

#ifndef MADV_COLLAPSE  // Linux 6.1
#define MADV_COLLAPSE 25
#endif

namespace weft::comm {
namespace {
constexpr size_t page = 2 << 20;  // a huge page
}

void fail_to_share(std::string_view what) {
  throw Error(ErrorKind::failed, "[ranks] {}: {}.", what, std::strerror(errno));
}

Descriptor::~Descriptor() { close(number_); }

std::unique_ptr<Descriptor> make_memory_file(const char* name, size_t bytes) {
  const int made = memfd_create(name, MFD_CLOEXEC);
  if (made < 0 || ftruncate(made, static_cast<off_t>(bytes)) != 0)
    fail_to_share("memory that ranks share could not be made");
  return std::make_unique<Descriptor>(made);
}

Mapping::Mapping(int file, size_t bytes, bool writable) : bytes_(bytes) {
  const auto map = [](void* at, size_t size, int protection, int flags, int from) {
    void* const mapped = mmap(at, size, protection, flags | MAP_NORESERVE, from, 0);
    if (mapped == MAP_FAILED) fail_to_share("the memory of a rank could not be mapped");
    return static_cast<std::byte*>(mapped);
  };
  reserved_ = map(nullptr, bytes + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  data_ = reserved_ + (page - reinterpret_cast<uintptr_t>(reserved_) % page) % page;
  map(data_, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED | MAP_FIXED, file);
}
Mapping::~Mapping() { munmap(reserved_, bytes_ + page); }

void use_huge_pages(std::byte* data, size_t bytes) {
  // A page that is touched just before has nothing to be copied.
  for (size_t at = 0; at + page <= bytes; at += page) {
    *static_cast<volatile std::byte*>(data + at) = std::byte{0};
    if (madvise(data + at, page, MADV_COLLAPSE) != 0) return;
  }
}

size_t SharedMemory::room() {
  const auto pages = static_cast<size_t>(sysconf(_SC_PHYS_PAGES));
  return 4 * pages * static_cast<size_t>(sysconf(_SC_PAGE_SIZE));
}

size_t SharedMemory::grow(size_t bytes) {
  const size_t whole = aligned(std::max<size_t>(bytes, 1), page), at = end_;
  if (at + whole > room())
    throw Error(ErrorKind::failed, "[ranks] {} bytes of memory for the other ranks are too many.",
                bytes);
  if (ftruncate(file(), static_cast<off_t>(at + whole)) != 0)
    fail_to_share("memory for the other ranks");
  end_ += whole;
  return at;
}

std::shared_ptr<Buffer> SharedMemory::allocate(const std::shared_ptr<SharedMemory>& self,
                                               size_t bytes) {
  const size_t at = grow(bytes), whole = end_ - at;
  use_huge_pages(own_.data() + at, bytes);
  auto owner = std::shared_ptr<void>(nullptr, [self, at, whole](void*) {
    fallocate(self->file(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(at),
              static_cast<off_t>(whole));
  });
  return std::make_shared<Buffer>(Buffer{.data = own_.data() + at, .bytes = bytes, .owner = owner});
}

int64_t SharedMemory::offset(const void* address) const {
  const auto* const at = static_cast<const std::byte*>(address);
  return at >= own_.data() && at < own_.data() + end_ ? at - own_.data() : -1;
}

}  // namespace weft::comm
