#include "weft/backends/gpu/handwritten.h"

#include "weft/backends/gpu/attention.h"
#include "weft/backends/gpu/block_matmul.h"
#include "weft/backends/gpu/scatter.h"
#include "weft/backends/gpu/sort.h"
#include "weft/backends/gpu/update.h"
#include "weft/ir/op_def.h"

namespace weft::gpu {
namespace {
struct Handwritten {
  std::string_view op;
  std::optional<KernelChoice> (*choose)(const Node& node, std::span<const Placement> operands);
  loop::GpuKernel (*print)(const Launch& launch, loop::GpuLanguage language,
                           const std::string& prefix);
};

const Handwritten* find(std::string_view op) {
  static constexpr Handwritten all[] = {
      {"attention", choose_attention, attention},
      {"attention_logsumexp", choose_attention, attention_logsumexp},
      {"attention_backward", choose_attention, attention_backward},
      {"matmul_blocks", choose_matmul_blocks, matmul_blocks},
      {"grouped_matmul_blocks", choose_matmul_blocks, matmul_blocks},
      {"scatter_add", choose_scatter_add, scatter_add},
      {"first_position", choose_first_position, first_position},
      {"argsort", choose_argsort, argsort},
      {"update_at", choose_update_at, update_at},
  };
  for (const Handwritten& handwritten : all)
    if (handwritten.op == op) return &handwritten;
  return nullptr;
}

class HandwrittenKernels : public Provider {
 public:
  std::string name() const override { return "weft"; }

  std::optional<KernelChoice> choose(const Node& node,
                                     std::span<const Placement> operands) const override {
    const Handwritten* handwritten = find(node.op->name);
    if (handwritten == nullptr) return std::nullopt;
    return handwritten->choose(node, operands);
  }
  std::optional<KernelChoice> choose_with(std::span<const Value> body,
                                          std::span<const Value> results,
                                          std::span<const Placement> operands) const override {
    return choose_attention_with(body, results, operands);
  }
  std::unique_ptr<Kernel> compile(Device& device, const Launch& launch) const override {
    return make_kernel(
        device,
        [&](const std::string& prefix) {
          return print_handwritten(launch, device.language(), prefix);
        },
        launch);
  }
};
}  // namespace

loop::GpuKernel print_handwritten(const Launch& launch, loop::GpuLanguage language,
                                  const std::string& prefix) {
  return find(launch.body.front()->op->name)->print(launch, language, prefix);
}

std::unique_ptr<Provider> handwritten_kernels() { return std::make_unique<HandwrittenKernels>(); }

}  // namespace weft::gpu
