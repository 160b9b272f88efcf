#include "weft/backends/gpu/written.h"

#include "weft/backends/gpu/attention.h"
#include "weft/backends/gpu/scatter.h"
#include "weft/backends/gpu/sort.h"
#include "weft/ir/op_def.h"

namespace weft::gpu {
namespace {
struct Written {
  std::string_view op;
  std::optional<KernelChoice> (*choose)(const Node& node, std::span<const Placement> operands);
  loop::GpuKernel (*print)(const Launch& launch, loop::GpuLanguage language, const std::string& prefix);
};

const Written* find(std::string_view op) {
  static constexpr Written all[] = {
      {"attention", choose_attention, attention},
      {"attention_logsumexp", choose_attention, attention_logsumexp},
      {"attention_backward", choose_attention, attention_backward},
      {"scatter_add", choose_scatter_add, scatter_add},
      {"first_position", choose_first_position, first_position},
      {"argsort", choose_argsort, argsort},
  };
  for (const Written& written : all)
    if (written.op == op) return &written;
  return nullptr;
}

class WrittenKernels : public Provider {
 public:
  std::string name() const override { return "weft"; }

  std::optional<KernelChoice> choose(const Node& node,
                                     std::span<const Placement> operands) const override {
    const Written* written = find(node.op->name);
    if (written == nullptr) return std::nullopt;
    return written->choose(node, operands);
  }
  std::optional<KernelChoice> choose_with(std::span<const Value> body,
                                          std::span<const Value> results,
                                          std::span<const Placement> operands) const override {
    return choose_attention_with(body, results, operands);
  }
  std::unique_ptr<Kernel> compile(Device& device, const Launch& launch) const override {
    return make_kernel(
        device,
        [&](const std::string& prefix) { return print_written(launch, device.language(), prefix); },
        launch);
  }
};
}  // namespace

loop::GpuKernel print_written(const Launch& launch, loop::GpuLanguage language,
                              const std::string& prefix) {
  return find(launch.body.front()->op->name)->print(launch, language, prefix);
}

std::unique_ptr<Provider> written_kernels() { return std::make_unique<WrittenKernels>(); }

}  // namespace weft::gpu
