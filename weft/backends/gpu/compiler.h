// Compiles launches for a GPU: kernels of providers and generated ones.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "weft/backends/gpu/device.h"
#include "weft/backends/gpu/library.h"
#include "weft/device/compiler.h"

namespace weft::gpu {

// Returns the index of the provider that has the launch's kernel; nullopt: it has loops of its own.
std::optional<size_t> provider_of(const Launch& launch);

class Compiler : public KernelCompiler {
 public:
  using Opened = std::function<Device&()>;  // opens the device on first use
  // `providers` are the vendors', then weft's own; they must outlive the compiler.
  Compiler(loop::GpuLanguage language, Opened device,
           std::span<const std::unique_ptr<Provider>> providers)
      : language_(language), device_(std::move(device)), providers_(providers) {}

  bool generates() const override { return true; }
  size_t workspace(const Launch& fused) const override;
  Reread reread(const Launch& fused) const override;
  std::optional<KernelForm> form(const Launch& fused) const override;
  std::unique_ptr<Kernel> compile(const Plan& plan, const Launch& launch) const override;
  std::unique_ptr<Kernel> record(std::function<void()> enqueue) const override;

 private:
  Device& device() const { return device_(); }
  std::unique_ptr<Kernel> compile_one(const Plan& plan, const Launch& launch) const;
  std::unique_ptr<Kernel> compile_whole(const Provider& provider, const Plan& plan,
                                        const Launch& launch) const;
  bool is_faster(const Kernel& one, const Kernel& other, const Plan& plan,
                 const Launch& launch) const;
  std::unique_ptr<Kernel> compile_in_two(const Provider& provider, const Launch& launch) const;
  std::unique_ptr<Kernel> compile_rest(const Launch& rest) const;
  std::unique_ptr<Kernel> compile_loops(const Launch& launch) const;

  loop::GpuLanguage language_;
  Opened device_;
  std::span<const std::unique_ptr<Provider>> providers_;
};

}  // namespace weft::gpu
