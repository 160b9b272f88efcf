// Declares the parts of cuDNN's backend API that weft uses
// (https://docs.nvidia.com/deeplearning/cudnn). tests/cuda_headers compares them with NVIDIA's
// headers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::cuda::cudnn::api {

using Handle = void*;  // cudnnHandle_t, cudnnBackendDescriptor_t, cudaStream_t

// The values are those of cudnn_graph.h.
enum Kind : int {
  pointwise_kind = 0,
  convolution_kind = 1,
  engine_kind = 2,
  engine_config_kind = 3,
  heuristics_kind = 4,
  execution_plan_kind = 5,
  conv_forward_kind = 10,
  conv_weight_gradient_kind = 11,
  conv_input_gradient_kind = 12,
  pointwise_operation_kind = 13,
  operation_graph_kind = 15,
  variant_pack_kind = 16,
  tensor_kind = 17,
  matmul_kind = 18,
  matmul_operation_kind = 19,
  reduction_kind = 21,
  reduction_operation_kind = 22,
  reshape_operation_kind = 31,
  device_properties_kind = 38,
};
enum Attribute : int {
  pointwise_mode = 0,
  pointwise_precision = 1,
  pointwise_axis = 9,
  convolution_precision = 100,
  convolution_mode = 101,
  convolution_dilations = 102,
  convolution_strides = 103,
  convolution_padding_after = 104,
  convolution_padding_before = 105,
  convolution_spatial_axes = 106,
  heuristics_mode = 200,
  heuristics_graph = 201,
  heuristics_results = 202,
  heuristics_device = 204,
  config_engine = 300,
  config_workspace = 303,
  plan_config = 401,
  plan_workspace = 402,
  plan_json = 405,
  plan_device = 407,
  conv_forward_alpha = 700,
  conv_forward_beta = 701,
  conv_forward_convolution = 702,
  conv_forward_weight = 703,
  conv_forward_x = 704,
  conv_forward_y = 705,
  conv_input_gradient_alpha = 706,
  conv_input_gradient_beta = 707,
  conv_input_gradient_convolution = 708,
  conv_input_gradient_weight = 709,
  conv_input_gradient_dx = 710,
  conv_input_gradient_dy = 711,
  conv_weight_gradient_alpha = 712,
  conv_weight_gradient_beta = 713,
  conv_weight_gradient_convolution = 714,
  conv_weight_gradient_dw = 715,
  conv_weight_gradient_x = 716,
  conv_weight_gradient_dy = 717,
  pointwise_descriptor = 750,
  pointwise_x = 751,
  pointwise_b = 752,
  pointwise_y = 753,
  pointwise_t = 758,
  graph_operations = 801,
  graph_engine_count = 802,
  tensor_alignment = 900,
  tensor_type = 901,
  tensor_shape = 902,
  tensor_strides = 903,
  tensor_id = 906,
  tensor_is_virtual = 907,
  tensor_is_by_value = 908,
  pack_ids = 1000,
  pack_addresses = 1001,
  pack_workspace = 1003,
  engine_graph = 1300,
  engine_number = 1301,
  engine_notes = 1303,
  engine_device = 1307,
  matmul_precision = 1500,
  matmul_a = 1520,
  matmul_b = 1521,
  matmul_c = 1522,
  matmul_descriptor = 1523,
  reduction_mode = 1600,
  reduction_precision = 1601,
  reduction_x = 1610,
  reduction_y = 1611,
  reduction_descriptor = 1612,
  reshape_x = 2200,
  reshape_y = 2201,
  device_handle = 2701,
  device_json = 2702,
};
enum AttributeType : int {
  handle_type = 0,
  data_type_type = 1,
  boolean_type = 2,
  int64_type = 3,
  float_type = 4,
  double_type = 5,
  void_pointer_type = 6,
  convolution_mode_type = 7,
  heuristics_mode_type = 8,
  note_type = 11,
  pointwise_mode_type = 14,
  descriptor_type = 15,
  reduction_mode_type = 18,
  char_type = 24,
};
enum DataType : int {
  float_data = 0,
  double_data = 1,
  half_data = 2,
  int32_data = 4,
  bfloat16_data = 9,
  boolean_data = 11,
};
enum Note : int {
  tensor_core = 0,
  nondeterministic = 4,
  strict_nan = 9,
  note_count = 10,
};
enum HeuristicsMode : int { fallback_heuristics = 2, best_heuristics = 3 };
inline constexpr int cross_correlation = 1;

struct Functions {
  size_t (*version)() = nullptr;
  size_t (*cuda_version)() = nullptr;  // 13010: built for CUDA 13.1
  int (*create)(Handle*) = nullptr;
  int (*set_stream)(Handle, Handle stream) = nullptr;
  int (*make_descriptor)(int kind, Handle*) = nullptr;
  int (*free_descriptor)(Handle) = nullptr;
  int (*set_attribute)(Handle, int attribute, int type, int64_t count, const void*) = nullptr;
  int (*get_attribute)(Handle, int attribute, int type, int64_t wanted, int64_t* count,
                       void*) = nullptr;
  int (*finalize)(Handle) = nullptr;
  int (*execute)(Handle, Handle plan, Handle pack) = nullptr;
  const char* (*status_text)(int) = nullptr;
  void (*last_error)(char*, size_t) = nullptr;
};

}  // namespace weft::cuda::cudnn::api
