// A Storage holds the elements of a tensor, in the host's memory, in a file, or on a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "weft/base/memory/buffer.h"
#include "weft/base/memory/device_memory.h"
#include "weft/base/memory/file_range.h"

namespace weft {

class Storage {
 public:
  // Makes a storage of zeros, which is allocated on first use.
  explicit Storage(size_t bytes) : bytes_(bytes) {}
  explicit Storage(std::shared_ptr<Buffer> buffer)
      : bytes_(buffer->bytes), buffer_(std::move(buffer)) {}
  // Makes a view of a part of the host's or of a device's memory.
  Storage(DeviceMemory& memory, std::shared_ptr<Buffer> view);
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  size_t bytes() const { return bytes_; }
  // Returns the host memory or file mapping; null while on a device or not yet allocated.
  const std::shared_ptr<Buffer>& buffer() const { return buffer_; }
  const FileRange& file() const { return file_; }

  Buffer& on_host();
  // Moves the elements to a device, where they stay until on_host() moves them back. They return to
  // their previous address on that device as long as that allocation lives.
  Buffer& on(DeviceMemory& memory);
  void copy_to(std::byte* to);                          // does not move the elements
  void copy_from(const std::byte* from, size_t bytes);  // overwrites the first `bytes` in place
  bool is_on_device() const { return device_buffer_ != nullptr; }
  bool is_on(const DeviceMemory& memory) const;
  // Returns whether the elements are on that device or their previous place there still exists.
  bool has_place_on(const DeviceMemory& memory) const;
  // Lets launches of a device copy from and to buffer(); null returns it to the host, as on_host()
  // does. Waits for pending work of the previous borrower.
  void lend_to(DeviceMemory* device);
  // Move the elements to the given place.
  void move_to_own_memory();  // on the host, from a view
  void move_to(const FileRange& range);
  void move_to(std::shared_ptr<Buffer> memory);  // host memory
  void move_to(DeviceMemory& device, std::shared_ptr<Buffer> memory);
  // Discards the elements for those that `memory` has; nothing is copied.
  void adopt(std::shared_ptr<Buffer> memory);
  // Returns a count that changes with every move, after which earlier addresses are invalid.
  uint64_t moves() const { return moves_; }
  // Code that may have written elements calls note_write(), which invalidates copies of them.
  void note_write() { ++writes_; }
  uint64_t writes() const { return writes_; }
  // Records that these elements are a copy of those that `source` has now.
  void note_copy_of(const Storage& source) { copied_ = source.writes_; }
  bool is_copy_of(const Storage& source) const { return copied_ == source.writes_; }
  // Records that buffer() is a view of a file. Its pages are page cache, which the kernel can drop,
  // until elements are written or moved.
  void note_mapped() { mapped_ = moves_ + writes_; }
  bool is_mapped() const { return mapped_ == moves_ + writes_; }

 private:
  size_t bytes_;
  std::shared_ptr<Buffer> buffer_;
  FileRange file_;                         // backing file; `buffer_` then maps it
  std::shared_ptr<Buffer> device_buffer_;  // on `device_`; null while in `buffer_`
  DeviceMemory* device_ = nullptr;
  std::byte* previous_address_ = nullptr;  // on `device_`; valid while `previous_owner_` lives
  std::weak_ptr<void> previous_owner_;
  DeviceMemory* borrower_ = nullptr;
  uint64_t moves_ = 0;
  uint64_t writes_ = 1;
  uint64_t copied_ = 0;  // writes_ of the source at the time of the copy
  uint64_t mapped_ = 0;  // moves_ + writes_, which only grow, at the time of note_mapped()
};

}  // namespace weft
