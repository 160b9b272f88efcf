// Declares the kernel library of a GPU: kernels of providers (a vendor's library, or handwritten
// ones), and for everything else generated ones, from the loops of fused launches or of primitives.
// Planning needs no device, which is opened to compile a kernel or to allocate memory.
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

// A Provider has kernels that were not generated for one launch, and compiles them.
class Provider : public KernelSource {
 public:
  // Returns the prefix of its kernels' names, up to a colon: "clblast".
  virtual std::string name() const = 0;
  // Compiles a launch that this provider chose. Thread-safe.
  virtual std::unique_ptr<Kernel> compile(Device& device, const Launch& launch) const = 0;
};

// Makes the library. It asks `providers` in this order. `open` throws Error(device) if there is no
// device. With a `model`, plans are for that GPU, and runs need it.
std::unique_ptr<KernelLibrary> make_library(std::string name, loop::GpuLanguage language,
                                            std::function<std::unique_ptr<Device>()> open,
                                            std::vector<std::unique_ptr<Provider>> providers = {},
                                            const DeviceModel* model = nullptr);

}  // namespace weft::gpu
