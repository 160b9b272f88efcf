// The kernels of a GPU: those of providers (a vendor's library, or written by hand), and for all
// else generated ones, from the loops of fused steps or from those of primitives. Planning needs no
// device: it is opened when a kernel is compiled or memory is asked for.
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
  // What the names of its kernels begin with, up to a colon: "clblast".
  virtual std::string name() const = 0;
  virtual std::optional<KernelChoice> choose(const Node& node,
                                             std::span<const Placement> operands) const = 0;
  // These two: see KernelChooser.
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
  // Of a step that it chose. Called from several threads at once.
  virtual std::unique_ptr<Kernel> compile(Device& device, const Step& step) const = 0;
};

// `providers` are asked in this order. `open` throws Error(device) where there is no device. With a
// `model`, plans are for that one, and running them needs it.
std::unique_ptr<KernelLibrary> make_library(std::string name, loop::GpuLanguage language,
                                            std::function<std::unique_ptr<Device>()> open,
                                            std::vector<std::unique_ptr<Provider>> providers = {},
                                            const GpuModel* model = nullptr);

}  // namespace weft::gpu
