// Memory that the kernels of a device see and the host does not. Its addresses are reckoned with as
// the host's are; only whoever reads and writes bytes must know.
#pragma once

#include <cstddef>
#include <memory>

#include "weft/base/buffer.h"

namespace weft {

struct MemoryUse {
  size_t available = 0, total = 0;  // bytes
};

class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual MemoryUse use() const = 0;  // by all processes
  // Zeroed and aligned.
  virtual std::shared_ptr<Buffer> allocate(size_t bytes) = 0;
  // In the order of the kernels that were begun before; `write` and `read` return when it is done.
  virtual void write(std::byte* to, const void* from, size_t bytes) = 0;
  virtual void read(void* to, const std::byte* from, size_t bytes) = 0;
  virtual void copy(std::byte* to, const std::byte* from, size_t bytes) = 0;
  virtual void finish() = 0;  // returns when all that was begun is done
};

}  // namespace weft
