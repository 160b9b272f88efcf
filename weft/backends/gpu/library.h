// The kernel library of a GPU: kernels of providers (a vendor's library, or handwritten ones), and
// for everything else generated ones, from the loops of fused launches or of primitives. Planning
// needs no device, which is opened to compile a kernel or to allocate memory.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/backends/gpu/device.h"
#include "weft/device/catalogue.h"
#include "weft/device/device.h"

namespace weft::gpu {

class Provider {
 public:
  virtual ~Provider() = default;
  // Returns the prefix of its kernels' names, up to a colon: "clblast".
  virtual std::string name() const = 0;
  virtual std::optional<KernelChoice> choose(const Node& node,
                                             std::span<const Placement> operands) const = 0;
  // KernelChooser documents choose_with() and is_epilogue().
  virtual std::optional<KernelChoice> choose_with(std::span<const Value> body,
                                                  std::span<const Value> results,
                                                  std::span<const Placement> operands) const {
    (void)body, (void)results, (void)operands;
    return std::nullopt;
  }
  virtual bool is_epilogue(const Node& composite) const {
    (void)composite;
    return false;
  }
  // Compiles a launch that this provider chose. Thread-safe.
  virtual std::unique_ptr<Kernel> compile(Device& device, const Launch& launch) const = 0;
};

// Makes the library. It asks `providers` in this order. `open` throws Error(device) if there is no
// device. With a `model`, plans are for that GPU, and runs need it.
std::unique_ptr<KernelLibrary> make_library(std::string name, loop::GpuLanguage language,
                                            std::function<std::unique_ptr<Device>()> open,
                                            std::vector<std::unique_ptr<Provider>> providers = {},
                                            const GpuModel* model = nullptr);

}  // namespace weft::gpu
