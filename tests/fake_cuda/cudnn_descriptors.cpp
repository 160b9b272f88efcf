#include "tests/fake_cuda/cudnn_descriptors.h"

#include <algorithm>
#include <initializer_list>
#include <set>
#include <utility>

namespace fake::cudnn {
namespace {
Tensor tensor_of(const Descriptor& from) {
  return {.id = from.one<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID),
          .type = from.one<int>(CUDNN_ATTR_TENSOR_DATA_TYPE),
          .alignment = from.one<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT),
          .extents = from.all<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS),
          .strides = from.all<int64_t>(CUDNN_ATTR_TENSOR_STRIDES),
          .is_virtual = from.one<uint8_t>(CUDNN_ATTR_TENSOR_IS_VIRTUAL) != 0,
          .is_by_value = from.one<uint8_t>(CUDNN_ATTR_TENSOR_IS_BY_VALUE) != 0};
}
double scale_of(const Descriptor& from, AttributeName name) {
  return from.values.at(name).type == CUDNN_TYPE_DOUBLE ? from.one<double>(name)
                                                        : from.one<float>(name);
}
Operation convolution_of(const Descriptor& from, const ConvolutionNames& names) {
  const Descriptor& by = from.part(names.convolution, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  Operation made{
      .kind = from.kind,
      .convolution = {names.result, by.all<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES),
                      by.all<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS),
                      by.all<int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS),
                      by.all<int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS),
                      scale_of(from, names.alpha), scale_of(from, names.beta)}};
  for (size_t i = 0; i < names.tensors.size(); ++i) {
    const Tensor tensor = tensor_of(from.part(names.tensors[i], CUDNN_BACKEND_TENSOR_DESCRIPTOR));
    const bool wide = by.one<int>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE) == CUDNN_DATA_DOUBLE;
    require(wide == (tensor.type == CUDNN_DATA_DOUBLE), CUDNN_STATUS_NOT_SUPPORTED,
            "sums as wide as the elements");
    if (i == names.result)
      made.result = tensor;
    else
      made.inputs.push_back(tensor);
  }
  return made;
}
}  // namespace

void check_tensor(const Descriptor& from) {
  const Tensor tensor = tensor_of(from);
  auto positive = [](const Extents& all) {
    return std::ranges::all_of(all, [](int64_t x) { return x > 0; });
  };
  const auto bytes = static_cast<int64_t>(size_of(tensor.type));
  require(bytes > 0, CUDNN_STATUS_NOT_SUPPORTED, "a type of tensors that the fake has");
  require(tensor.extents.size() == tensor.strides.size(), CUDNN_STATUS_BAD_PARAM,
          "as many strides as extents");
  require(positive(tensor.extents) && positive(tensor.strides), CUDNN_STATUS_BAD_PARAM,
          "extents and strides above 0");
  require(tensor.alignment > 0 && tensor.alignment % bytes == 0, CUDNN_STATUS_BAD_PARAM,
          "an alignment of whole elements");
  require(tensor.is_virtual || (tensor.type != CUDNN_DATA_INT32 && bytes > 1),
          CUDNN_STATUS_NOT_SUPPORTED, "memory that the fake has: of floats");
  require(!tensor.is_virtual || !tensor.is_by_value, CUDNN_STATUS_BAD_PARAM,
          "virtual or by value, not both");
}

void check_convolution(const Descriptor& from) {
  const auto axes = from.one<int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS);
  require(axes == 2 && from.one<int>(CUDNN_ATTR_CONVOLUTION_CONV_MODE) == CUDNN_CROSS_CORRELATION,
          CUDNN_STATUS_NOT_SUPPORTED, "what the fake has: cross-correlations of images");
  for (auto [name, least] : {std::pair(CUDNN_ATTR_CONVOLUTION_DILATIONS, 1),
                             {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 1},
                             {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 0},
                             {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 0}}) {
    const auto numbers = from.all<int64_t>(name);
    require(static_cast<int64_t>(numbers.size()) == axes && std::ranges::min(numbers) >= least,
            CUDNN_STATUS_BAD_PARAM,
            "a number for each axis, " + std::to_string(least) + " or more");
  }
}

Operation operation_of(const Descriptor& from) {
  for (const ConvolutionNames& names : convolutions)
    if (from.kind == names.kind) return convolution_of(from, names);
  Operation made{.kind = from.kind};
  auto read = [&](std::initializer_list<AttributeName> inputs, AttributeName result) {
    for (AttributeName name : inputs)
      if (from.has(name))
        made.inputs.push_back(tensor_of(from.part(name, CUDNN_BACKEND_TENSOR_DESCRIPTOR)));
    made.result = tensor_of(from.part(result, CUDNN_BACKEND_TENSOR_DESCRIPTOR));
  };
  switch (from.kind) {
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: {
      const Descriptor& by = from.part(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
                                       CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
      read({CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
            CUDNN_ATTR_OPERATION_POINTWISE_TDESC},
           CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
      made.mode = by.one<int>(CUDNN_ATTR_POINTWISE_MODE);
      const bool indexes = made.mode == CUDNN_POINTWISE_GEN_INDEX;
      made.axis = by.one<int64_t>(CUDNN_ATTR_POINTWISE_AXIS, indexes ? -1 : 0);
      break;
    }
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      from.part(CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
      read({CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC},
           CUDNN_ATTR_OPERATION_MATMUL_CDESC);
      break;
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
      made.mode = from.part(CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_BACKEND_REDUCTION_DESCRIPTOR)
                      .one<int>(CUDNN_ATTR_REDUCTION_OPERATOR);
      read({CUDNN_ATTR_OPERATION_REDUCTION_XDESC}, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
      break;
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
      read({CUDNN_ATTR_OPERATION_RESHAPE_XDESC}, CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
      break;
    default:
      throw Refused{CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "an operation"};
  }
  return made;
}

// Sorts topologically.
std::vector<Operation> operations_of(const Descriptor& graph) {
  std::map<int64_t, Tensor> tensors;
  std::set<int64_t> written;
  std::vector<Operation> open;
  auto note = [&](const Tensor& tensor) {
    require(tensors.emplace(tensor.id, tensor).first->second == tensor, CUDNN_STATUS_BAD_PARAM,
            "one tensor by one id");
  };
  for (const Shared& part : graph.parts(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    open.push_back(operation_of(*part));
    std::ranges::for_each(open.back().inputs, note);
    note(open.back().result);
    require(written.insert(open.back().result.id).second, CUDNN_STATUS_BAD_PARAM,
            "a tensor is written once");
    require(!open.back().result.is_by_value, CUDNN_STATUS_BAD_PARAM, "constants are not written");
  }
  std::set<int64_t> there;
  for (const auto& [id, tensor] : tensors)
    if (!written.contains(id)) {
      require(!tensor.is_virtual, CUDNN_STATUS_BAD_PARAM, "what is virtual is written");
      there.insert(id);
    }
  std::vector<Operation> sorted;
  while (!open.empty()) {
    const auto next = std::ranges::find_if(open, [&](const Operation& operation) {
      return std::ranges::all_of(operation.inputs,
                                 [&](const Tensor& input) { return there.contains(input.id); });
    });
    require(next != open.end(), CUDNN_STATUS_BAD_PARAM, "a graph without circles");
    there.insert(next->result.id);
    sorted.push_back(std::move(*next));
    open.erase(next);
  }
  return sorted;
}

}  // namespace fake::cudnn
