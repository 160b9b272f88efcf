#include "weft/device/device.h"

#include <utility>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/device/catalogue.h"

namespace weft {
namespace {
class Enqueues : public Kernel {
 public:
  explicit Enqueues(std::function<void()> enqueue) : enqueue_(std::move(enqueue)) {}
  void run(void* const*, void* const*, void*) const override { enqueue_(); }

 private:
  std::function<void()> enqueue_;
};

class HostMeters : public Meters {
 public:
  MachineSpec spec() const override { return processor_spec(); }
};

class NoLibrary : public KernelLibrary, public KernelChooser, public KernelCompiler {
 public:
  std::string name() const override { return "none"; }
  const KernelChooser& kernels() const override { return *this; }
  const KernelCompiler& compiler() const override { return *this; }
  std::optional<KernelChoice> choose(const Node&, std::span<const Placement>) const override {
    return std::nullopt;
  }
  bool generates() const override { return false; }
  std::unique_ptr<Kernel> compile(const Plan&, const Launch& launch) const override {
    throw InternalError(fmt::format("no library compiles {}", launch.kernel));
  }
};
}  // namespace

std::unique_ptr<Kernel> KernelCompiler::record(std::function<void()> enqueue) const {
  return std::make_unique<Enqueues>(std::move(enqueue));
}

const Meters& host_meters() {
  static const HostMeters meters;
  return meters;
}

const KernelLibrary& no_library() {
  static const NoLibrary library;
  return library;
}

}  // namespace weft
