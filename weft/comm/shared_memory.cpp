#include "weft/comm/shared_memory.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "weft/base/error.h"
#include "weft/base/memory/alignment.h"

namespace weft::comm {

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
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  void* const at = mmap(nullptr, bytes, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (at == MAP_FAILED) fail_to_share("the memory of a rank could not be mapped");
  data_ = static_cast<std::byte*>(at);
}
Mapping::~Mapping() { munmap(data_, bytes_); }

size_t SharedMemory::room() {
  const auto pages = static_cast<size_t>(sysconf(_SC_PHYS_PAGES));
  return 4 * pages * static_cast<size_t>(sysconf(_SC_PAGE_SIZE));
}

std::shared_ptr<Buffer> SharedMemory::allocate(const std::shared_ptr<SharedMemory>& self,
                                               size_t bytes) {
  const size_t whole = aligned(std::max<size_t>(bytes, 1), page), at = end_;
  if (at + whole > room())
    throw Error(ErrorKind::failed, "[ranks] {} bytes of memory for the other ranks are too many.",
                bytes);
  if (ftruncate(file(), static_cast<off_t>(at + whole)) != 0)
    fail_to_share("memory for the other ranks");
  end_ += whole;
  madvise(own_.data() + at, whole, MADV_HUGEPAGE);  // where the system allows it
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
