// Where the elements of a tensor are: in the host's memory, in a file, or on a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "weft/base/buffer.h"
#include "weft/base/device_memory.h"
#include "weft/base/file_range.h"

namespace weft {

class Storage {
 public:
  // Zeros, which take no memory while nobody asks for them.
  explicit Storage(size_t bytes) : bytes_(bytes) {}
  explicit Storage(std::shared_ptr<Buffer> buffer)
      : bytes_(buffer->bytes), buffer_(std::move(buffer)) {}
  // A view of elements in a device's memory, which the caller keeps alive.
  Storage(DeviceMemory& memory, std::byte* at, size_t bytes);
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  size_t bytes() const { return bytes_; }
  // With the host, or the mapped file; null while they are on a device, or nobody has asked for
  // them.
  const std::shared_ptr<Buffer>& buffer() const { return buffer_; }
  const FileRange& file() const { return file_; }

  Buffer& on_host();
  // In the memory of a device, where they stay until on_host() brings them back. They take the
  // place that they left there again, while another holds the allocation that it is of.
  Buffer& on(DeviceMemory& memory);
  void copy_to(std::byte* to);                          // from where they are, and stay
  void copy_from(const std::byte* from, size_t bytes);  // the first of them, to where they are
  bool is_on_device() const { return away_ != nullptr; }
  // There, or could at once.
  bool has_place_on(const DeviceMemory& memory) const;
  // Steps of that device copy from buffer() and to it from now on; null: the host does, as whoever
  // asks for on_host(). Waits for what another may still do there.
  void lend_to(DeviceMemory* device);
  // The elements go there.
  void move_to(const FileRange& range);
  void move_to(std::shared_ptr<Buffer> memory);  // of the host
  void move_to(DeviceMemory& device, std::shared_ptr<Buffer> memory);
  // Changes whenever they have moved: nobody must look for them any more where they were.
  uint64_t moves() const { return moves_; }
  // Whoever may have written elements says so, for those who keep a copy of them in another type.
  void note_write() { ++writes_; }
  // These elements are those that `source` has now.
  void note_copy_of(const Storage& source) { copied_ = source.writes_; }
  bool is_copy_of(const Storage& source) const { return copied_ == source.writes_; }

 private:
  size_t bytes_;
  std::shared_ptr<Buffer> buffer_;
  FileRange file_;                // where they lie instead of in memory; `buffer_` then maps it
  std::shared_ptr<Buffer> away_;  // on `device_`; null: in `buffer_`
  DeviceMemory* device_ = nullptr;
  std::byte* left_ = nullptr;  // where they lay there before, as long as `left_owner_` lives
  std::weak_ptr<void> left_owner_;
  DeviceMemory* borrower_ = nullptr;
  uint64_t moves_ = 0;
  uint64_t writes_ = 1;
  uint64_t copied_ = 0;  // writes_ of the storage that this is a copy of, when it was made
};

}  // namespace weft
