#include "weft/backends/cuda/nvtx.h"

#include <utility>

#include "weft/backends/cuda/nvtx_api.h"
#include "weft/backends/cuda/shared_library.h"
#include "weft/base/error.h"
#include "weft/base/host/env.h"
#include "weft/base/logging.h"

namespace weft::cuda {
namespace {
struct Nvtx : nvtx::Functions {
  Nvtx() {
    library.find(push, "nvtxRangePushA");
    library.find(pop, "nvtxRangePop");
  }
  SharedLibrary library{{"libnvtx3interop.so.1", "libnvToolsExt.so.1"},
                        "it comes with CUDA, and with Python's package nvidia-nvtx."};
};

// Returns null if no profiler is attached or NVTX is missing.
const Nvtx* loaded() {
  static const std::unique_ptr<const Nvtx> instance = []() -> std::unique_ptr<const Nvtx> {
    if (!env("NVTX_INJECTION64_PATH")) return nullptr;
    try {
      return std::make_unique<const Nvtx>();
    } catch (const Error& missing) {
      logging::debug(1, "{}", missing.what());
      return nullptr;
    }
  }();
  return instance.get();
}

class Ranged : public Kernel {
 public:
  Ranged(std::unique_ptr<Kernel> kernel, std::string name)
      : kernel_(std::move(kernel)), name_(std::move(name)) {}
  void run(void* const* operands, void* const* results, void* workspace) const override {
    loaded()->push(name_.c_str());
    kernel_->run(operands, results, workspace);
    loaded()->pop();
  }
  void bind(void* const* operands, void* const* results, void* workspace) const override {
    kernel_->bind(operands, results, workspace);
  }

 private:
  std::unique_ptr<Kernel> kernel_;
  std::string name_;
};
}  // namespace

bool has_ranges() { return loaded() != nullptr; }

std::unique_ptr<Kernel> in_range(std::unique_ptr<Kernel> kernel, const std::string& name) {
  if (!has_ranges()) return kernel;
  return std::make_unique<Ranged>(std::move(kernel), name);
}

}  // namespace weft::cuda
