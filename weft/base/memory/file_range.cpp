#include "weft/base/memory/file_range.h"

#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <sys/mman.h>
#include <system_error>
#include <unistd.h>

#include "weft/base/error.h"
#include "weft/base/memory/disk.h"

namespace weft {

struct FileRange::File {
  std::string folder;
  int descriptor = -1;
  explicit File(std::string folder) : folder(std::move(folder)) {}
  ~File() {
    if (descriptor >= 0) close(descriptor);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
};

FileRange::FileRange(const std::string& folder, size_t bytes) : bytes_(bytes) {
  auto file = std::make_shared<File>(folder);
  std::string path = folder + "/.offload-XXXXXX";
  file->descriptor = mkostemp(path.data(), O_CLOEXEC);
  file_ = file;
  if (file->descriptor < 0) fail("cannot be written", errno);
  unlink(path.c_str());
  if (bytes == 0) return;
  // Checks first, because a failing posix_fallocate fills the disk until it gives up.
  if (disk_room(folder).value_or(bytes) < bytes) fail("has no room", ENOSPC);
  int error = 0;
  do {
    error = posix_fallocate(file->descriptor, 0, static_cast<off_t>(bytes));
  } while (error == EINTR);
  if (error != 0) fail("has no room", error);
}

FileRange FileRange::part(size_t offset, size_t bytes) const {
  WEFT_ASSERT(offset + bytes <= bytes_, "part beyond its file");
  FileRange part = *this;
  part.offset_ += offset;
  part.bytes_ = bytes;
  return part;
}

void FileRange::fail(const char* action, int error) const {
  throw Error(ErrorKind::failed, "[offload] {} {} for {:.1f} MiB: {}.", file_->folder, action,
              static_cast<double>(bytes_) / (1 << 20),
              error == 0 ? "the file ends early" : std::generic_category().message(error));
}

void FileRange::read(std::byte* to) const {
  for (size_t done = 0; done < bytes_;) {
    const ssize_t count =
        pread(file_->descriptor, to + done, bytes_ - done, static_cast<off_t>(offset_ + done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail("cannot be read", count < 0 ? errno : 0);
    done += static_cast<size_t>(count);
  }
}

void FileRange::write(const std::byte* from) const {
  for (size_t done = 0; done < bytes_;) {
    const ssize_t count =
        pwrite(file_->descriptor, from + done, bytes_ - done, static_cast<off_t>(offset_ + done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail("cannot be written", count < 0 ? errno : ENOSPC);
    done += static_cast<size_t>(count);
  }
}

std::shared_ptr<Buffer> FileRange::map() const {
  WEFT_ASSERT(offset_ % alignment == 0, "byte {} of a file cannot be mapped", offset_);
  const size_t length = bytes_;
  void* base = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, file_->descriptor,
                    static_cast<off_t>(offset_));
  if (base == MAP_FAILED) fail("cannot be mapped", errno);
  auto buffer = std::make_shared<Buffer>();
  buffer->data = static_cast<std::byte*>(base);
  buffer->bytes = length;
  buffer->in_file = true;
  buffer->owner = {base, [length, file = file_](void* at) { munmap(at, length); }};
  return buffer;
}

}  // namespace weft
