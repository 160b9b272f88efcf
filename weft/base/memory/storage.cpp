#include "weft/base/memory/storage.h"

#include <cstring>
#include <mutex>
#include <utility>

#include "weft/base/error.h"

namespace weft {
namespace {
// Held when a storage may be allocated: several sessions may be the first to read one variable.
std::mutex first_use;
}  // namespace

Storage::Storage(DeviceMemory& memory, std::shared_ptr<Buffer> view) : bytes_(view->bytes) {
  if (memory.is_host()) {
    buffer_ = std::move(view);
  } else {
    device_buffer_ = std::move(view);
    device_ = &memory;
  }
}

bool Storage::is_on(const DeviceMemory& memory) const {
  return memory.is_host() ? !is_on_device() : is_on_device() && device_ == &memory;
}

void Storage::lend_to(DeviceMemory* device) {
  if (borrower_ == device) return;
  if (borrower_ != nullptr) {
    const auto lock = borrower_->enter();
    borrower_->finish();
  }
  borrower_ = device;
}

Buffer& Storage::on_host() {
  lend_to(nullptr);
  if (device_buffer_ != nullptr) {
    const auto lock = device_->enter();
    buffer_ = file_ ? file_.map() : Buffer::allocate(bytes_);
    device_->read(buffer_->data, device_buffer_->data, bytes_);
    previous_address_ = device_buffer_->data;
    previous_owner_ = device_buffer_->owner;
    device_buffer_ = nullptr;
    ++moves_;
  }
  const std::lock_guard lock(first_use);
  if (buffer_ == nullptr) buffer_ = Buffer::allocate(bytes_);
  return *buffer_;
}

Buffer& Storage::on(DeviceMemory& memory) {
  if (memory.is_host()) return on_host();
  if (device_buffer_ != nullptr && device_ == &memory) return *device_buffer_;
  const auto lock = memory.enter();
  std::shared_ptr<Buffer> place;
  if (std::shared_ptr<void> owner = device_ == &memory ? previous_owner_.lock() : nullptr) {
    place = std::make_shared<Buffer>();
    place->data = previous_address_;
    place->bytes = bytes_;
    place->owner = std::move(owner);
  } else {
    place = memory.allocate(bytes_);
  }
  move_to(memory, std::move(place));
  return *device_buffer_;
}

bool Storage::has_place_on(const DeviceMemory& memory) const {
  return device_ == &memory && (device_buffer_ != nullptr || !previous_owner_.expired());
}

void Storage::copy_to(std::byte* to) {
  if (device_buffer_ != nullptr) {
    const auto lock = device_->enter();
    device_->read(to, device_buffer_->data, bytes_);
    return;
  }
  std::memcpy(to, on_host().data, bytes_);
  buffer_->release(0, bytes_);
}

void Storage::copy_from(const std::byte* from, size_t bytes) {
  if (device_buffer_ != nullptr) {
    const auto lock = device_->enter();
    device_->write(device_buffer_->data, from, bytes);
  } else {
    std::memcpy(on_host().data, from, bytes);
  }
}

void Storage::move_to_own_memory() {
  if (is_on_device())
    on_host();
  else
    move_to(Buffer::allocate(bytes_));
}

void Storage::move_to(const FileRange& range) {
  WEFT_ASSERT(range.bytes() == bytes_, "{} bytes move to {}", bytes_, range.bytes());
  lend_to(nullptr);
  std::shared_ptr<Buffer> mapped = range.map();
  if (device_buffer_ != nullptr || buffer_ != nullptr) range.write(on_host().data);
  file_ = range;
  buffer_ = std::move(mapped);
  ++moves_;
}

void Storage::move_to(std::shared_ptr<Buffer> memory) {
  WEFT_ASSERT(memory->bytes == bytes_, "{} bytes move to {}", bytes_, memory->bytes);
  if (device_buffer_ != nullptr || buffer_ != nullptr)
    std::memcpy(memory->data, on_host().data, bytes_);
  file_ = FileRange();
  buffer_ = std::move(memory);
  ++moves_;
}

void Storage::adopt(std::shared_ptr<Buffer> memory) {
  WEFT_ASSERT(memory->bytes == bytes_, "{} bytes adopt {}", bytes_, memory->bytes);
  lend_to(nullptr);
  file_ = FileRange();
  device_buffer_ = nullptr;
  buffer_ = std::move(memory);
  ++moves_;
  note_write();
}

void Storage::move_to(DeviceMemory& device, std::shared_ptr<Buffer> memory) {
  WEFT_ASSERT(!device.is_host(), "a device of its own");
  WEFT_ASSERT(memory->bytes == bytes_, "{} bytes move to {}", bytes_, memory->bytes);
  lend_to(nullptr);
  const auto lock = device.enter();
  if (device_buffer_ != nullptr)
    device.copy_from(*device_, memory->data, device_buffer_->data, bytes_);
  else if (buffer_ != nullptr)
    device.write(memory->data, buffer_->data, bytes_);
  device_buffer_ = std::move(memory);
  device_ = &device;
  buffer_ = nullptr;
  ++moves_;
}

}  // namespace weft
