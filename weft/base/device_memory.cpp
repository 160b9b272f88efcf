#include "weft/base/device_memory.h"

#include "weft/base/stopwatch.h"

namespace weft {
namespace {
class HostTimeline : public Timeline {
 public:
  explicit HostTimeline(DeviceMemory* device) : device_(device) {}
  void mark() override {
    if (device_ != nullptr) device_->finish();
    marks_.push_back(1e-3 * watch_.milliseconds());
  }
  std::vector<double> seconds() override {
    std::vector<double> since(marks_);
    for (double& mark : since) mark -= marks_.front();
    return since;
  }

 private:
  DeviceMemory* device_;  // null: only the host works
  Stopwatch watch_;
  std::vector<double> marks_;
};
}  // namespace

std::unique_ptr<Timeline> host_timeline() { return std::make_unique<HostTimeline>(nullptr); }

std::unique_ptr<Timeline> DeviceMemory::make_timeline() {
  return std::make_unique<HostTimeline>(this);
}

void DeviceMemory::copy_from(DeviceMemory& other, std::byte* to, const std::byte* from,
                             size_t bytes) {
  const std::shared_ptr<Buffer> here = Buffer::allocate(bytes);
  other.read(here->data, from, bytes);
  write(to, here->data, bytes);
}

}  // namespace weft
