#include "weft/backends/cuda/cudnn_graph.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "weft/backends/cuda/cuda_device.h"
#include "weft/backends/cuda/cudnn_api.h"
#include "weft/backends/cuda/cudnn_descriptors.h"
#include "weft/base/error.h"
#include "weft/base/logging.h"
#include "weft/base/made_once.h"

namespace weft::cuda::cudnn {
namespace {
using namespace api;

Descriptor describe(int64_t id, DType dtype, const Shape& shape, const Dims& strides,
                    int64_t alignment) {
  Descriptor made = make(tensor_kind);
  set(made, tensor_id, int64_type, id);
  set(made, tensor_type, dtype);
  set(made, tensor_shape, shape);
  set(made, tensor_strides, strides);
  set(made, tensor_alignment, int64_type, alignment);
  return made;
}
}  // namespace

bool is_installed() {
  static const bool found = [] {
    try {
      library();
      return true;
    } catch (const Error& missing) {
      logging::warn("{} Convolutions and attention use weft's own kernels, which are slower.",
                    missing.what());
      return false;
    }
  }();
  return found;
}

// Caches the properties, because concurrent compilations must not share the handle.
Descriptor properties_of_current_device() {
  static MadeOnce<Descriptor>& known = *new MadeOnce<Descriptor>;  // never destroyed
  const Handle own = handle();
  return known.get(fmt::format("{}", fmt::ptr(own)), [own] {
    Descriptor made = make(device_properties_kind);
    set(made, device_handle, handle_type, own);
    finish(made);
    return made;
  });
}

Descriptor properties_from(const std::string& json) {
  Descriptor made = make(device_properties_kind);
  set(made, device_json, char_type, static_cast<int64_t>(json.size()), json.data());
  finish(made);
  return made;
}

int64_t Graph::next_id() { return ++count_; }

Tensor Graph::tensor(DType dtype, const Shape& shape, const Dims& strides, int64_t alignment) {
  const int64_t id = next_id();
  in_memory_.push_back(id);
  int64_t elements = 1;
  for (int axis = 0; axis < shape.size(); ++axis) elements += strides[axis] * (shape[axis] - 1);
  bytes_.push_back(static_cast<size_t>(elements) * size_of(dtype));
  text_ += fmt::format("{} = {}{} by {} at {}\n", id, name(dtype), to_string(shape),
                       to_string(strides), alignment);
  Tensor made{id, describe(id, dtype, shape, strides, alignment), shape};
  finish(made.descriptor);
  return made;
}

Tensor Graph::between(DType dtype, const Shape& shape, const Dims& strides) {
  const int64_t id = next_id();
  const Dims placed = strides.empty() ? Dims(row_major_strides(shape)) : strides;
  text_ += fmt::format("{} = {}{} by {}\n", id, name(dtype), to_string(shape), to_string(placed));
  Tensor made{id, describe(id, dtype, shape, placed, 16), shape};
  set(made.descriptor, tensor_is_virtual, boolean_type, true);
  finish(made.descriptor);
  return made;
}

Tensor Graph::constant(float value, int rank) {
  const int64_t id = next_id();
  constant_ids_.push_back(id);
  constants_.push_back(value);
  text_ += fmt::format("{} = {} of rank {}\n", id, value, rank);
  const Dims ones = Dims::filled(rank, 1);
  Tensor made{id, describe(id, DType::f32, ones, ones, 16), ones};
  set(made.descriptor, tensor_is_by_value, boolean_type, true);
  finish(made.descriptor);
  return made;
}

void Graph::conv(Direction direction, const Tensor& x, const Tensor& weight, const Tensor& y,
                 const ConvAttributes& attributes) {
  text_ += fmt::format("conv {} of {} {} {}, {} {} {} {}\n", static_cast<int>(direction), x.id,
                       weight.id, y.id, to_string(attributes.stride), to_string(attributes.padding),
                       to_string(attributes.dilation), name(attributes.sums));
  const Descriptor convolution = make(convolution_kind);
  set(convolution, convolution_precision, attributes.sums);
  set(convolution, convolution_mode, convolution_mode_type, cross_correlation);
  set(convolution, convolution_spatial_axes, int64_type, int64_t{attributes.stride.size()});
  set(convolution, convolution_strides, attributes.stride);
  set(convolution, convolution_padding_before, attributes.padding);
  set(convolution, convolution_padding_after, attributes.padding);
  set(convolution, convolution_dilations, attributes.dilation);
  finish(convolution);

  struct Names {
    Kind kind;
    Attribute alpha, beta, convolution, x, weight, y;
  };
  const Names names = direction == Direction::forward
                          ? Names{conv_forward_kind, conv_forward_alpha,
                                  conv_forward_beta, conv_forward_convolution,
                                  conv_forward_x,    conv_forward_weight,
                                  conv_forward_y}
                      : direction == Direction::input_gradient
                          ? Names{conv_input_gradient_kind, conv_input_gradient_alpha,
                                  conv_input_gradient_beta, conv_input_gradient_convolution,
                                  conv_input_gradient_dx,   conv_input_gradient_weight,
                                  conv_input_gradient_dy}
                          : Names{conv_weight_gradient_kind, conv_weight_gradient_alpha,
                                  conv_weight_gradient_beta, conv_weight_gradient_convolution,
                                  conv_weight_gradient_x,    conv_weight_gradient_dw,
                                  conv_weight_gradient_dy};
  const Descriptor operation = make(names.kind);
  set(operation, names.convolution, convolution);
  set(operation, names.x, x);
  set(operation, names.weight, weight);
  set(operation, names.y, y);
  if (attributes.sums == DType::f64) {
    set(operation, names.alpha, double_type, 1.0);
    set(operation, names.beta, double_type, 0.0);
  } else {
    set(operation, names.alpha, float_type, 1.0f);
    set(operation, names.beta, float_type, 0.0f);
  }
  finish(operation);
  operations_.push_back(operation);
}

void Graph::matmul(const Tensor& a, const Tensor& b, const Tensor& result) {
  text_ += fmt::format("{} = {} times {}\n", result.id, a.id, b.id);
  const Descriptor matmul = make(matmul_kind);
  set(matmul, matmul_precision, DType::f32);
  finish(matmul);
  const Descriptor operation = make(matmul_operation_kind);
  set(operation, matmul_descriptor, matmul);
  set(operation, matmul_a, a);
  set(operation, matmul_b, b);
  set(operation, matmul_c, result);
  finish(operation);
  operations_.push_back(operation);
}

void Graph::pointwise(Pointwise mode, const std::vector<Tensor>& inputs, const Tensor& result,
                      int axis) {
  text_ += fmt::format("{} = pointwise {} {}", result.id, static_cast<int>(mode), axis);
  for (const Tensor& input : inputs) text_ += fmt::format(" {}", input.id);
  text_ += '\n';
  const Descriptor pointwise = make(pointwise_kind);
  set(pointwise, pointwise_mode, pointwise_mode_type, mode);
  set(pointwise, pointwise_precision,
      mode == Pointwise::greater_equal ? DType::boolean : DType::f32);
  if (axis >= 0) set(pointwise, pointwise_axis, int64_type, int64_t{axis});
  finish(pointwise);
  const Descriptor operation = make(pointwise_operation_kind);
  set(operation, pointwise_descriptor, pointwise);
  constexpr std::array names{pointwise_x, pointwise_b, pointwise_t};
  for (size_t i = 0; i < inputs.size(); ++i) set(operation, names[i], inputs[i]);
  set(operation, pointwise_y, result);
  finish(operation);
  operations_.push_back(operation);
}

void Graph::reduce(Reduction mode, const Tensor& x, const Tensor& result) {
  text_ += fmt::format("{} = reduce {} {}\n", result.id, static_cast<int>(mode), x.id);
  const Descriptor reduction = make(reduction_kind);
  set(reduction, reduction_mode, reduction_mode_type, mode);
  set(reduction, reduction_precision, DType::f32);
  finish(reduction);
  const Descriptor operation = make(reduction_operation_kind);
  set(operation, reduction_descriptor, reduction);
  set(operation, reduction_x, x);
  set(operation, reduction_y, result);
  finish(operation);
  operations_.push_back(operation);
}

void Graph::reshape(const Tensor& x, const Tensor& result) {
  text_ += fmt::format("{} = reshape {}\n", result.id, x.id);
  const Descriptor operation = make(reshape_operation_kind);
  set(operation, reshape_x, x);
  set(operation, reshape_y, result);
  finish(operation);
  operations_.push_back(operation);
}

Descriptor Graph::finished() const {
  Descriptor graph = make(operation_graph_kind);
  std::vector<Handle> handles(operations_.size());
  std::ranges::transform(operations_, handles.begin(), &Descriptor::get);
  set(graph, graph_operations, descriptor_type, static_cast<int64_t>(handles.size()),
      static_cast<const void*>(handles.data()));
  finish(graph);
  return graph;
}

// Returns a plan without an engine.
ExecutionPlan Graph::empty_plan() const {
  ExecutionPlan plan;
  plan.bytes_ = bytes_;
  plan.ids_ = in_memory_;
  plan.ids_.insert(plan.ids_.end(), constant_ids_.begin(), constant_ids_.end());
  plan.constants_ = std::make_shared<const std::vector<float>>(constants_);
  return plan;
}

std::string ExecutionPlan::json() const {
  int64_t count = 0;
  if (library().get_attribute(plan_.get(), plan_json, char_type, 0, &count, nullptr) != 0)
    return "";
  std::string json(static_cast<size_t>(count), '\0');
  if (library().get_attribute(plan_.get(), plan_json, char_type, count, &count, json.data()) != 0)
    return "";
  return json.c_str();  // drops the characters after the first zero
}

void ExecutionPlan::run(const Stream& stream, std::span<void* const> addresses,
                        void* workspace) const {
  const bool same = bound_ != nullptr && bound_to_.back() == workspace &&
                    std::equal(addresses.begin(), addresses.end(), bound_to_.begin());
  if (!same) {
    bound_to_.assign(addresses.begin(), addresses.end());
    for (const float& constant : *constants_) bound_to_.push_back(const_cast<float*>(&constant));
    bound_ = make(variant_pack_kind);
    set(bound_, pack_ids, int64_type, static_cast<int64_t>(ids_.size()), ids_.data());
    set(bound_, pack_addresses, void_pointer_type, static_cast<int64_t>(bound_to_.size()),
        static_cast<const void*>(bound_to_.data()));
    set(bound_, pack_workspace, void_pointer_type, workspace);
    finish(bound_);
    bound_to_.push_back(workspace);
  }
  stream.make_current();
  const Handle own = handle();
  library().check(library().set_stream(own, stream.stream), "cudnnSetStream");
  library().check(library().execute(own, plan_.get(), bound_.get()), "cudnnBackendExecute");
}

}  // namespace weft::cuda::cudnn
