// Checks cuDNN's constants and signatures against its header at compile time.
#include <cudnn_graph.h>

#include "tests/cuda_headers/abi.h"
#include "weft/backends/cuda/cudnn_api.h"
#include "weft/backends/cuda/cudnn_graph.h"

namespace cuda_headers {
namespace ours = weft::cuda::cudnn::api;
using ours::Functions;
using weft::cuda::cudnn::Pointwise;
using weft::cuda::cudnn::Reduction;

static_assert(int{ours::pointwise_kind} == int{CUDNN_BACKEND_POINTWISE_DESCRIPTOR});
static_assert(int{ours::convolution_kind} == int{CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR});
static_assert(int{ours::engine_kind} == int{CUDNN_BACKEND_ENGINE_DESCRIPTOR});
static_assert(int{ours::engine_config_kind} == int{CUDNN_BACKEND_ENGINECFG_DESCRIPTOR});
static_assert(int{ours::heuristics_kind} == int{CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR});
static_assert(int{ours::execution_plan_kind} == int{CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR});
static_assert(int{ours::conv_forward_kind} ==
              int{CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR});
static_assert(int{ours::conv_weight_gradient_kind} ==
              int{CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR});
static_assert(int{ours::conv_input_gradient_kind} ==
              int{CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR});
static_assert(int{ours::pointwise_operation_kind} ==
              int{CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR});
static_assert(int{ours::operation_graph_kind} == int{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR});
static_assert(int{ours::variant_pack_kind} == int{CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR});
static_assert(int{ours::tensor_kind} == int{CUDNN_BACKEND_TENSOR_DESCRIPTOR});
static_assert(int{ours::matmul_kind} == int{CUDNN_BACKEND_MATMUL_DESCRIPTOR});
static_assert(int{ours::matmul_operation_kind} == int{CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR});
static_assert(int{ours::reduction_kind} == int{CUDNN_BACKEND_REDUCTION_DESCRIPTOR});
static_assert(int{ours::reduction_operation_kind} ==
              int{CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR});
static_assert(int{ours::reshape_operation_kind} == int{CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR});
static_assert(int{ours::device_properties_kind} == int{CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR});
static_assert(int{ours::pointwise_mode} == int{CUDNN_ATTR_POINTWISE_MODE});
static_assert(int{ours::pointwise_precision} == int{CUDNN_ATTR_POINTWISE_MATH_PREC});
static_assert(int{ours::pointwise_axis} == int{CUDNN_ATTR_POINTWISE_AXIS});
static_assert(int{ours::convolution_precision} == int{CUDNN_ATTR_CONVOLUTION_COMP_TYPE});
static_assert(int{ours::convolution_mode} == int{CUDNN_ATTR_CONVOLUTION_CONV_MODE});
static_assert(int{ours::convolution_dilations} == int{CUDNN_ATTR_CONVOLUTION_DILATIONS});
static_assert(int{ours::convolution_strides} == int{CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES});
static_assert(int{ours::convolution_padding_after} == int{CUDNN_ATTR_CONVOLUTION_POST_PADDINGS});
static_assert(int{ours::convolution_padding_before} == int{CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS});
static_assert(int{ours::convolution_spatial_axes} == int{CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS});
static_assert(int{ours::heuristics_mode} == int{CUDNN_ATTR_ENGINEHEUR_MODE});
static_assert(int{ours::heuristics_graph} == int{CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH});
static_assert(int{ours::heuristics_results} == int{CUDNN_ATTR_ENGINEHEUR_RESULTS});
static_assert(int{ours::heuristics_device} == int{CUDNN_ATTR_ENGINEHEUR_DEVICEPROP});
static_assert(int{ours::config_engine} == int{CUDNN_ATTR_ENGINECFG_ENGINE});
static_assert(int{ours::config_workspace} == int{CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE});
static_assert(int{ours::plan_config} == int{CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG});
static_assert(int{ours::plan_workspace} == int{CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE});
static_assert(int{ours::plan_json} == int{CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION});
static_assert(int{ours::plan_device} == int{CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP});
static_assert(int{ours::conv_forward_alpha} == int{CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA});
static_assert(int{ours::conv_forward_beta} == int{CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA});
static_assert(int{ours::conv_forward_convolution} ==
              int{CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC});
static_assert(int{ours::conv_forward_weight} == int{CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W});
static_assert(int{ours::conv_forward_x} == int{CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X});
static_assert(int{ours::conv_forward_y} == int{CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y});
static_assert(int{ours::conv_input_gradient_alpha} ==
              int{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA});
static_assert(int{ours::conv_input_gradient_beta} ==
              int{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA});
static_assert(int{ours::conv_input_gradient_convolution} ==
              int{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC});
static_assert(int{ours::conv_input_gradient_weight} ==
              int{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W});
static_assert(int{ours::conv_input_gradient_dx} ==
              int{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX});
static_assert(int{ours::conv_input_gradient_dy} ==
              int{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY});
static_assert(int{ours::conv_weight_gradient_alpha} ==
              int{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA});
static_assert(int{ours::conv_weight_gradient_beta} ==
              int{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA});
static_assert(int{ours::conv_weight_gradient_convolution} ==
              int{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC});
static_assert(int{ours::conv_weight_gradient_dw} ==
              int{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW});
static_assert(int{ours::conv_weight_gradient_x} ==
              int{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X});
static_assert(int{ours::conv_weight_gradient_dy} ==
              int{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY});
static_assert(int{ours::pointwise_descriptor} == int{CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR});
static_assert(int{ours::pointwise_x} == int{CUDNN_ATTR_OPERATION_POINTWISE_XDESC});
static_assert(int{ours::pointwise_b} == int{CUDNN_ATTR_OPERATION_POINTWISE_BDESC});
static_assert(int{ours::pointwise_y} == int{CUDNN_ATTR_OPERATION_POINTWISE_YDESC});
static_assert(int{ours::pointwise_t} == int{CUDNN_ATTR_OPERATION_POINTWISE_TDESC});
static_assert(int{ours::graph_operations} == int{CUDNN_ATTR_OPERATIONGRAPH_OPS});
static_assert(int{ours::graph_engine_count} == int{CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT});
static_assert(int{ours::tensor_alignment} == int{CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT});
static_assert(int{ours::tensor_type} == int{CUDNN_ATTR_TENSOR_DATA_TYPE});
static_assert(int{ours::tensor_shape} == int{CUDNN_ATTR_TENSOR_DIMENSIONS});
static_assert(int{ours::tensor_strides} == int{CUDNN_ATTR_TENSOR_STRIDES});
static_assert(int{ours::tensor_id} == int{CUDNN_ATTR_TENSOR_UNIQUE_ID});
static_assert(int{ours::tensor_is_virtual} == int{CUDNN_ATTR_TENSOR_IS_VIRTUAL});
static_assert(int{ours::tensor_is_by_value} == int{CUDNN_ATTR_TENSOR_IS_BY_VALUE});
static_assert(int{ours::pack_ids} == int{CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS});
static_assert(int{ours::pack_addresses} == int{CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS});
static_assert(int{ours::pack_workspace} == int{CUDNN_ATTR_VARIANT_PACK_WORKSPACE});
static_assert(int{ours::engine_graph} == int{CUDNN_ATTR_ENGINE_OPERATION_GRAPH});
static_assert(int{ours::engine_number} == int{CUDNN_ATTR_ENGINE_GLOBAL_INDEX});
static_assert(int{ours::engine_notes} == int{CUDNN_ATTR_ENGINE_NUMERICAL_NOTE});
static_assert(int{ours::engine_device} == int{CUDNN_ATTR_ENGINE_DEVICEPROP});
static_assert(int{ours::matmul_precision} == int{CUDNN_ATTR_MATMUL_COMP_TYPE});
static_assert(int{ours::matmul_a} == int{CUDNN_ATTR_OPERATION_MATMUL_ADESC});
static_assert(int{ours::matmul_b} == int{CUDNN_ATTR_OPERATION_MATMUL_BDESC});
static_assert(int{ours::matmul_c} == int{CUDNN_ATTR_OPERATION_MATMUL_CDESC});
static_assert(int{ours::matmul_descriptor} == int{CUDNN_ATTR_OPERATION_MATMUL_DESC});
static_assert(int{ours::reduction_mode} == int{CUDNN_ATTR_REDUCTION_OPERATOR});
static_assert(int{ours::reduction_precision} == int{CUDNN_ATTR_REDUCTION_COMP_TYPE});
static_assert(int{ours::reduction_x} == int{CUDNN_ATTR_OPERATION_REDUCTION_XDESC});
static_assert(int{ours::reduction_y} == int{CUDNN_ATTR_OPERATION_REDUCTION_YDESC});
static_assert(int{ours::reduction_descriptor} == int{CUDNN_ATTR_OPERATION_REDUCTION_DESC});
static_assert(int{ours::reshape_x} == int{CUDNN_ATTR_OPERATION_RESHAPE_XDESC});
static_assert(int{ours::reshape_y} == int{CUDNN_ATTR_OPERATION_RESHAPE_YDESC});
static_assert(int{ours::device_handle} == int{CUDNN_ATTR_DEVICEPROP_HANDLE});
static_assert(int{ours::device_json} == int{CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION});
static_assert(int{ours::handle_type} == int{CUDNN_TYPE_HANDLE});
static_assert(int{ours::data_type_type} == int{CUDNN_TYPE_DATA_TYPE});
static_assert(int{ours::boolean_type} == int{CUDNN_TYPE_BOOLEAN});
static_assert(int{ours::int64_type} == int{CUDNN_TYPE_INT64});
static_assert(int{ours::float_type} == int{CUDNN_TYPE_FLOAT});
static_assert(int{ours::double_type} == int{CUDNN_TYPE_DOUBLE});
static_assert(int{ours::void_pointer_type} == int{CUDNN_TYPE_VOID_PTR});
static_assert(int{ours::convolution_mode_type} == int{CUDNN_TYPE_CONVOLUTION_MODE});
static_assert(int{ours::heuristics_mode_type} == int{CUDNN_TYPE_HEUR_MODE});
static_assert(int{ours::note_type} == int{CUDNN_TYPE_NUMERICAL_NOTE});
static_assert(int{ours::pointwise_mode_type} == int{CUDNN_TYPE_POINTWISE_MODE});
static_assert(int{ours::descriptor_type} == int{CUDNN_TYPE_BACKEND_DESCRIPTOR});
static_assert(int{ours::reduction_mode_type} == int{CUDNN_TYPE_REDUCTION_OPERATOR_TYPE});
static_assert(int{ours::char_type} == int{CUDNN_TYPE_CHAR});
static_assert(int{ours::float_data} == int{CUDNN_DATA_FLOAT});
static_assert(int{ours::double_data} == int{CUDNN_DATA_DOUBLE});
static_assert(int{ours::half_data} == int{CUDNN_DATA_HALF});
static_assert(int{ours::int32_data} == int{CUDNN_DATA_INT32});
static_assert(int{ours::bfloat16_data} == int{CUDNN_DATA_BFLOAT16});
static_assert(int{ours::boolean_data} == int{CUDNN_DATA_BOOLEAN});
static_assert(int{ours::tensor_core} == int{CUDNN_NUMERICAL_NOTE_TENSOR_CORE});
static_assert(int{ours::nondeterministic} == int{CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC});
static_assert(int{ours::strict_nan} == int{CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP});
static_assert(int{ours::note_count} == int{CUDNN_NUMERICAL_NOTE_TYPE_COUNT});
static_assert(int{ours::fallback_heuristics} == int{CUDNN_HEUR_MODE_FALLBACK});
static_assert(int{ours::best_heuristics} == int{CUDNN_HEUR_MODE_A});
static_assert(int{ours::cross_correlation} == int{CUDNN_CROSS_CORRELATION});
static_assert(static_cast<int>(Pointwise::add) == int{CUDNN_POINTWISE_ADD});
static_assert(static_cast<int>(Pointwise::multiply) == int{CUDNN_POINTWISE_MUL});
static_assert(static_cast<int>(Pointwise::divide) == int{CUDNN_POINTWISE_DIV});
static_assert(static_cast<int>(Pointwise::subtract) == int{CUDNN_POINTWISE_SUB});
static_assert(static_cast<int>(Pointwise::exponential) == int{CUDNN_POINTWISE_EXP});
static_assert(static_cast<int>(Pointwise::logarithm) == int{CUDNN_POINTWISE_LOG});
static_assert(static_cast<int>(Pointwise::index) == int{CUDNN_POINTWISE_GEN_INDEX});
static_assert(static_cast<int>(Pointwise::greater_equal) == int{CUDNN_POINTWISE_CMP_GE});
static_assert(static_cast<int>(Pointwise::select) == int{CUDNN_POINTWISE_BINARY_SELECT});
static_assert(static_cast<int>(Reduction::sum) == int{CUDNN_REDUCE_TENSOR_ADD});
static_assert(static_cast<int>(Reduction::maximum) == int{CUDNN_REDUCE_TENSOR_MAX});

static_assert(same_abi<decltype(Functions::version), decltype(&cudnnGetVersion)>);
static_assert(same_abi<decltype(Functions::cuda_version), decltype(&cudnnGetCudartVersion)>);
static_assert(same_abi<decltype(Functions::create), decltype(&cudnnCreate)>);
static_assert(same_abi<decltype(Functions::set_stream), decltype(&cudnnSetStream)>);
static_assert(
    same_abi<decltype(Functions::make_descriptor), decltype(&cudnnBackendCreateDescriptor)>);
static_assert(
    same_abi<decltype(Functions::free_descriptor), decltype(&cudnnBackendDestroyDescriptor)>);
static_assert(same_abi<decltype(Functions::set_attribute), decltype(&cudnnBackendSetAttribute)>);
static_assert(same_abi<decltype(Functions::get_attribute), decltype(&cudnnBackendGetAttribute)>);
static_assert(same_abi<decltype(Functions::finalize), decltype(&cudnnBackendFinalize)>);
static_assert(same_abi<decltype(Functions::execute), decltype(&cudnnBackendExecute)>);
static_assert(same_abi<decltype(Functions::status_text), decltype(&cudnnGetErrorString)>);
static_assert(same_abi<decltype(Functions::last_error), decltype(&cudnnGetLastErrorString)>);

}  // namespace cuda_headers
