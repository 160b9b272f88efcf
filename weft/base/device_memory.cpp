#include "weft/base/device_memory.h"

namespace weft {

void DeviceMemory::copy_from(DeviceMemory& other, std::byte* to, const std::byte* from,
                             size_t bytes) {
  const std::shared_ptr<Buffer> here = Buffer::allocate(bytes);
  other.read(here->data, from, bytes);
  write(to, here->data, bytes);
}

}  // namespace weft
