#include "weft/backends/cuda/cudnn.h"

#include "weft/backends/cuda/cudnn_attention.h"
#include "weft/backends/cuda/cudnn_conv.h"
#include "weft/base/host/env.h"
#include "weft/ir/op_def.h"

namespace weft::cuda {
namespace {
bool is_conv(const Node& node) { return node.op->family == OpFamily::convolution; }
bool is_attention(const Node& node) {
  const Role role = node.op->role;
  return node.op->family == OpFamily::attention &&
         (role == Role::forward || role == Role::backward);
}

class Cudnn : public gpu::Provider {
 public:
  std::string name() const override { return "cudnn"; }

  std::optional<KernelChoice> choose(const Node& node,
                                     std::span<const Placement> operands) const override {
    if (is_conv(node) && convolves_) return cudnn::choose_conv(node);
    if (is_attention(node) && attends_) return cudnn::choose_attention(node, operands);
    return std::nullopt;
  }

  std::optional<KernelChoice> choose_with(std::span<const Value> body,
                                          std::span<const Value> results,
                                          std::span<const Placement> operands) const override {
    if (!attends_) return std::nullopt;
    return cudnn::choose_attention_with(body, results, operands);
  }

  std::unique_ptr<Kernel> compile(gpu::Device& device, const Launch& launch) const override {
    if (is_conv(*launch.body.front().node())) return cudnn::compile_conv(device, launch);
    return cudnn::compile_attention(device, launch);
  }

 private:
  bool convolves_ = !env_lists("WEFT_CUDA_OFF", "cudnn-conv");
  bool attends_ = !env_lists("WEFT_CUDA_OFF", "cudnn-attention");
};
}  // namespace

std::unique_ptr<gpu::Provider> cudnn_provider() { return std::make_unique<Cudnn>(); }

}  // namespace weft::cuda
