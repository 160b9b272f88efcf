#include "weft/backends/gpu/joined.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "weft/base/error.h"
#include "weft/codegen/lower.h"

namespace weft::gpu {
namespace {
class Joined : public Kernel {
 public:
  Joined(Device& device, const loop::GpuKernel& printed, loop::JoinedKernels kernels)
      : device_(device),
        parts_(std::move(kernels.parts)),
        operands_(static_cast<size_t>(kernels.kernel.operands)),
        results_(static_cast<size_t>(kernels.kernel.results)),
        launch_(printed.launches.front()) {
    function_ = device.function(device.compile(printed.source), launch_.function);
  }

  void bind(void* const* operands, void* const* results, void* workspace) const override {
    std::vector<int64_t> table;
    for (const loop::JoinedPart& part : parts_) {
      table.push_back(part.first);
      table.push_back(part.positions);
      for (size_t i = 0; i < part.offsets.size(); ++i) {
        void* const slot = i < operands_ ? operands[i] : results[i - operands_];
        table.push_back(reinterpret_cast<intptr_t>(slot) + part.offsets[i]);
      }
      operands += operands_;
      results += results_;
    }
    device_.write(static_cast<std::byte*>(workspace), table.data(),
                  table.size() * sizeof(table.front()));
  }

  void run(void* const*, void* const*, void* workspace) const override {
    if (launch_.groups > 0)
      device_.launch(function_, std::span(&workspace, 1), launch_.groups, launch_.threads);
  }

 private:
  Device& device_;
  std::vector<loop::JoinedPart> parts_;
  size_t operands_, results_;  // operands and results of one part
  loop::GpuLaunch launch_;
  Function function_;
};
}  // namespace

std::optional<KernelForm> form_of(const Launch& launch, loop::GpuLanguage language) {
  const auto form = loop::form_of(loop::lower(launch, language), language);
  if (!form) return std::nullopt;
  return KernelForm{form->text, form->operands};
}

size_t table_bytes(const Launch& launch) {
  const auto accesses = static_cast<int>(launch.operands.size() + launch.results.size());
  const auto parts = static_cast<size_t>(launch.parts);
  return parts * sizeof(int64_t) * loop::words_of_row(accesses / launch.parts);
}

loop::JoinedKernels joined_kernels(const Launch& launch, loop::GpuLanguage language) {
  std::vector<loop::Kernel> kernels;
  kernels.reserve(static_cast<size_t>(launch.parts));
  for (int part = 0; part < launch.parts; ++part)
    kernels.push_back(loop::lower(part_of(launch, part), language));
  return loop::joined(kernels, language);
}

std::unique_ptr<Kernel> make_joined(Device& device, const Launch& launch) {
  loop::JoinedKernels kernels = joined_kernels(launch, device.language());
  WEFT_ASSERT(table_bytes(launch) <= launch.workspace, "{} has no room for its table",
              launch.kernel);
  const loop::GpuKernel printed = print_named(
      [&](const std::string& name) { return emit_joined(kernels, device.language(), name); },
      launch);
  return std::make_unique<Joined>(device, printed, std::move(kernels));
}

}  // namespace weft::gpu
