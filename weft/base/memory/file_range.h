// A FileRange is a range of bytes in an unnamed temporary file, which holds values offloaded from
// memory. The system deletes the file with its last range, however the process ends.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "weft/base/memory/buffer.h"

namespace weft {

class FileRange {
 public:
  FileRange() = default;
  // Creates a zeroed file in the folder and reserves its disk space. Throws Error(failed), which
  // names the folder, where the folder is not writable or has too little space.
  FileRange(const std::string& folder, size_t bytes);
  FileRange part(size_t offset, size_t bytes) const;

  explicit operator bool() const { return file_ != nullptr; }
  size_t bytes() const { return bytes_; }
  // Transfer the whole range without mapping it into memory. Both throw Error(failed).
  void read(std::byte* to) const;
  void write(const std::byte* from) const;
  // Maps the range. Pages that are touched stay in memory until Buffer::release(). The range must
  // start at a multiple of `alignment`.
  std::shared_ptr<Buffer> map() const;
  static constexpr size_t alignment = 65536;  // the largest page of any system

 private:
  struct File;
  [[noreturn]] void fail(const char* action, int error) const;

  std::shared_ptr<const File> file_;
  size_t offset_ = 0, bytes_ = 0;
};

}  // namespace weft
