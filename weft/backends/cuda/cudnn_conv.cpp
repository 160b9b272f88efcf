#include "weft/backends/cuda/cudnn_conv.h"

#include <algorithm>
#include <array>
#include <utility>

#include "weft/backends/cuda/cuda_device.h"
#include "weft/backends/gpu/conversion.h"
#include "weft/base/error.h"
#include "weft/base/memory/alignment.h"
#include "weft/base/numbers/rounding.h"
#include "weft/device/bound.h"
#include "weft/ir/op_def.h"

namespace weft::cuda::cudnn {
namespace {
bool on_tensor_cores(const Node& node) {
  const DType dtype = node.inputs[0].dtype();
  return computes_wider(dtype) || node.annotations.tf32;
}

Dims order_of(const Node& node) {
  return on_tensor_cores(node) ? Dims{0, 2, 3, 1} : Dims{0, 1, 2, 3};
}

Direction direction_of(const Node& node) {
  if (node.op->role == Role::input_gradient) return Direction::input_gradient;
  return node.op->role == Role::weight_gradient ? Direction::weight_gradient : Direction::forward;
}

// Returns the bytes of the 16-bit result before it is widened; 0: cuDNN stores the result itself.
size_t narrow_bytes(const Node& node) {
  if (node.type.dtype == node.inputs[0].dtype()) return 0;
  return aligned(Type{node.inputs[0].dtype(), node.type.shape}.bytes());
}

// Winograd and FFT engines, and engines with a larger split-K, use up to this workspace if that
// memory is free.
constexpr size_t most_workspace = size_t{256} << 20;

// Returns an upper bound, as plans do not query the GPU. Tensor-core engines copy tensors whose
// channels do not fill 16 bytes, and split the sums of a weight's gradient.
size_t workspace_bytes(const Node& node) {
  constexpr size_t least = size_t{1} << 20, most_for_parts = size_t{8} << 20, parts = 64;
  const DType dtype = node.inputs[0].dtype();
  const auto whole = static_cast<int64_t>(16 / size_of(dtype));
  size_t bytes = least;
  const std::array shapes{node.inputs[0].shape(), node.inputs[1].shape(), node.type.shape};
  for (Shape shape : shapes) {
    if (!on_tensor_cores(node) || shape[1] % whole == 0) continue;
    shape[1] = round_up(shape[1], whole);
    bytes += Type{dtype, shape}.bytes();
  }
  if (node.op->role == Role::weight_gradient)
    bytes += std::min(most_for_parts, parts * Type{DType::f32, node.type.shape}.bytes());
  return aligned(bytes);
}

std::string describe(const Node& node) {
  return fmt::format("{} of {} and {}, stride {}, padding {}, dilation {}{}", node.op->name,
                     to_string(node.inputs[0].type()), to_string(node.inputs[1].type()),
                     to_string(node.attrs.dims("stride")), to_string(node.attrs.dims("padding")),
                     to_string(node.attrs.dims("dilation")), node.annotations.tf32 ? ", tf32" : "");
}

Graph graph_of(const Node& node, const std::array<int64_t, 3>& alignment) {
  const DType dtype = node.inputs[0].dtype();
  Graph graph;
  auto tensor = [&](const Shape& shape, int64_t bytes) {
    return graph.tensor(dtype, shape, dense_strides(shape, order_of(node)), bytes);
  };
  const Tensor a = tensor(node.inputs[0].shape(), alignment[0]),
               b = tensor(node.inputs[1].shape(), alignment[1]),
               result = tensor(node.type.shape, alignment[2]);
  const Direction direction = direction_of(node);
  const Tensor &x = direction == Direction::input_gradient ? result : a,
               &weight = direction == Direction::weight_gradient ? result : b,
               &y = direction == Direction::forward          ? result
                    : direction == Direction::input_gradient ? a
                                                             : b;
  graph.conv(direction, x, weight, y,
             {.stride = node.attrs.dims("stride"),
              .padding = node.attrs.dims("padding"),
              .dilation = node.attrs.dims("dilation"),
              .sums = dtype == DType::f64 ? DType::f64 : DType::f32});
  return graph;
}

EngineRules rules_of(const Node& node, size_t workspace) {
  return {workspace, node.inputs[0].dtype() == DType::f32 && !on_tensor_cores(node)};
}

class Convolution : public Kernel {
 public:
  Convolution(gpu::Device& device, const Launch& launch)
      : stream_(stream_of(device)), inputs_(bind_inputs(launch)), result_(bind_result(launch)) {
    const Node& node = *launch.body.front().node();
    narrow_bytes_ = narrow_bytes(node);
    WEFT_ASSERT(narrow_bytes_ <= launch.workspace, "{} has {} bytes of workspace", launch.kernel,
                launch.workspace);
    const std::array<int64_t, 3> alignment{
        inputs_[0].alignment(), inputs_[1].alignment(),
        narrow_bytes_ > 0 ? static_cast<int64_t>(buffer_alignment) : result_.alignment()};
    plan_ = graph_of(node, alignment)
                .select(device, rules_of(node, launch.workspace - narrow_bytes_), describe(node));
    if (narrow_bytes_ > 0)
      widen_ = gpu::make_conversion(device, {inputs_[0].type.dtype}, {DType::f32, result_.offset},
                                    result_.type.elements());
  }

  void run(void* const* operands, void* const* results, void* workspace) const override {
    void* const result = result_.out(results);
    auto* const scratch = static_cast<std::byte*>(workspace);
    const std::array<void*, 3> addresses{const_cast<std::byte*>(inputs_[0].in(operands)),
                                         const_cast<std::byte*>(inputs_[1].in(operands)),
                                         widen_ == nullptr ? result : workspace};
    plan_.run(stream_, addresses, scratch + narrow_bytes_);
    if (widen_ != nullptr) widen_->run(&workspace, results + result_.index, nullptr);
  }

 private:
  Stream stream_;
  std::vector<Bound> inputs_;
  Bound result_;
  size_t narrow_bytes_ = 0;
  ExecutionPlan plan_;
  std::unique_ptr<Kernel> widen_;
};
}  // namespace

std::optional<KernelChoice> choose_conv(const Node& node) {
  const Value &a = node.inputs[0], &b = node.inputs[1];
  const bool empty = a.elements() == 0 || b.elements() == 0 || node.type.elements() == 0;
  if (!is_float(a.dtype()) || empty) return std::nullopt;
  const Dims order = order_of(node);
  return KernelChoice{.kernel = "cudnn:" + std::string(node.op->name),
                      .operand_order = {order, order},
                      .result_order = order,
                      .workspace = workspace_bytes(node) + narrow_bytes(node),
                      .most_workspace = most_workspace + narrow_bytes(node)};
}

Graph conv_graph(const Node& node) {
  constexpr auto whole = static_cast<int64_t>(buffer_alignment);
  return graph_of(node, {whole, whole, whole});
}
EngineRules conv_rules(const Node& node) { return rules_of(node, workspace_bytes(node)); }

std::unique_ptr<Kernel> compile_conv(gpu::Device& device, const Launch& launch) {
  return std::make_unique<Convolution>(device, launch);
}

}  // namespace weft::cuda::cudnn
