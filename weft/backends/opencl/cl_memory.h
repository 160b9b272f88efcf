// The memory of an OpenCL device at addresses: OpenCL 1.2 has none, so each buffer takes a range of
// the process's addresses that nothing lies at.
#pragma once

#include <map>
#include <mutex>

#include "weft/backends/opencl/cl_device.h"
#include "weft/base/device_memory.h"

namespace weft::opencl {

class AddressedMemory : public DeviceMemory {
 public:
  explicit AddressedMemory(Device& device) : device_(device) {}

  std::shared_ptr<Buffer> allocate(size_t bytes) override;
  void write(std::byte* to, const void* from, size_t bytes) override;
  void read(void* to, const std::byte* from, size_t bytes) override;
  void copy(std::byte* to, const std::byte* from, size_t bytes) override;
  // Where the bytes at an address lie; null at null.
  Place place_of(const void* address) const;

 private:
  void forget(const std::byte* address);

  Device& device_;
  mutable std::mutex mutex_;
  std::map<const std::byte*, Memory, std::greater<>> ranges_;  // by their first address
};

}  // namespace weft::opencl
