// Bytes of a file that holds what does not stay in memory. The file has no name: it is gone with
// the last range of it, however the process ends.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "weft/base/buffer.h"

namespace weft {

class FileRange {
 public:
  FileRange() = default;
  // Zeros, on a new file in the folder; the disk has room for all of them from now on. Throws
  // Error(failed) that names the folder where it cannot be written or has no such room.
  FileRange(const std::string& folder, size_t bytes);
  FileRange part(size_t offset, size_t bytes) const;

  explicit operator bool() const { return file_ != nullptr; }
  size_t bytes() const { return bytes_; }
  // All of it. They take no memory of the process, and throw Error(failed).
  void read(std::byte* to) const;
  void write(const std::byte* from) const;
  // The same bytes in the process's addresses. What is touched there takes memory until
  // Buffer::release(). The range must start at a multiple of `alignment`.
  std::shared_ptr<Buffer> map() const;
  static constexpr size_t alignment = 65536;  // of no system are the pages larger

 private:
  struct File;
  [[noreturn]] void fail(const char* action, int error) const;

  std::shared_ptr<const File> file_;
  size_t offset_ = 0, bytes_ = 0;
};

}  // namespace weft
