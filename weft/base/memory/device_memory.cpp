#include "weft/base/memory/device_memory.h"

#include <cstring>

#include "weft/base/error.h"
#include "weft/base/host/stopwatch.h"
#include "weft/base/memory/memory.h"

namespace weft {
namespace {
// HostTimeline reads the host's clock after it has waited for the device at each mark.
class HostTimeline : public Timeline {
 public:
  explicit HostTimeline(DeviceMemory& device) : device_(device) {}
  void mark() override {
    device_.finish();
    marks_.push_back(1e-3 * watch_.milliseconds());
  }
  std::vector<double> seconds() override {
    std::vector<double> since(marks_);
    for (double& mark : since) mark -= marks_.front();
    return since;
  }

 private:
  DeviceMemory& device_;
  Stopwatch watch_;
  std::vector<double> marks_;
};

class HostMemory : public DeviceMemory {
 public:
  bool is_host() const override { return true; }
  MemoryUse use() const override { return {available_memory(), machine_memory(), 0}; }
  std::shared_ptr<Buffer> allocate(size_t bytes) override { return Buffer::allocate(bytes); }
  void write(std::byte* to, const void* from, size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void read(void* to, const std::byte* from, size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void copy(std::byte* to, const std::byte* from, size_t bytes) override {
    std::memmove(to, from, bytes);
  }
  std::unique_ptr<CopyStream> make_copy_stream(CopyDirection) override {
    WEFT_ASSERT(false, "the host copies beside nobody");
  }
  std::shared_ptr<Buffer> allocate_host(size_t bytes) override { return allocate(bytes); }
  void finish() override {}
  bool is_synchronous() const override { return true; }
};
}  // namespace

DeviceMemory& host_memory() {
  static HostMemory memory;
  return memory;
}

std::unique_ptr<Timeline> DeviceMemory::make_timeline() {
  return std::make_unique<HostTimeline>(*this);
}

void DeviceMemory::copy_from(DeviceMemory& other, std::byte* to, const std::byte* from,
                             size_t bytes) {
  const std::shared_ptr<Buffer> here = Buffer::allocate(bytes);
  other.read(here->data, from, bytes);
  write(to, here->data, bytes);
}

}  // namespace weft
