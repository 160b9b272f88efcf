// Checks cuBLASLt's constants and signatures against its header at compile time.
#include <cstddef>

#include <cublasLt.h>

#include "tests/cuda_headers/abi.h"
#include "weft/backends/cuda/cublaslt_api.h"

namespace cuda_headers {
namespace ours = weft::cuda::cublaslt;
using ours::Functions;

static_assert(ours::r_32f == CUDA_R_32F && ours::r_64f == CUDA_R_64F);
static_assert(ours::r_16f == CUDA_R_16F && ours::r_16bf == CUDA_R_16BF);
static_assert(ours::compute_32f == CUBLAS_COMPUTE_32F && ours::compute_64f == CUBLAS_COMPUTE_64F);
static_assert(ours::compute_tf32 == CUBLAS_COMPUTE_32F_FAST_TF32);

static_assert(ours::transpose_a == CUBLASLT_MATMUL_DESC_TRANSA);
static_assert(ours::transpose_b == CUBLASLT_MATMUL_DESC_TRANSB);
static_assert(ours::epilogue == CUBLASLT_MATMUL_DESC_EPILOGUE);
static_assert(ours::bias_pointer == CUBLASLT_MATMUL_DESC_BIAS_POINTER);
static_assert(ours::aux_pointer == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER);
static_assert(ours::aux_stride == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD);

static_assert(ours::adds_bias == CUBLASLT_EPILOGUE_BIAS);
static_assert(ours::gelu_of_sum == CUBLASLT_EPILOGUE_GELU);
static_assert((ours::gelu_of_sum | ours::adds_bias) == CUBLASLT_EPILOGUE_GELU_BIAS);
static_assert((ours::gelu_of_sum | ours::has_aux) == CUBLASLT_EPILOGUE_GELU_AUX);
static_assert((ours::gelu_of_sum | ours::has_aux | ours::adds_bias) ==
              CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
static_assert((ours::times_gelu_slope | ours::has_aux) == CUBLASLT_EPILOGUE_DGELU);
static_assert(ours::sums_of_b == CUBLASLT_EPILOGUE_BGRADB);

static_assert(ours::batch_count == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
static_assert(ours::batch_stride == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
static_assert(ours::most_workspace == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
static_assert(ours::reduction_schemes == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
static_assert(ours::alignment_a == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
static_assert(ours::alignment_b == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
static_assert(ours::alignment_c == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
static_assert(ours::alignment_d == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
static_assert(ours::sums_in_workspace == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);

static_assert(sizeof(ours::Algorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(ours::Found) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(ours::Found, workspace) ==
              offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(ours::Found, status) == offsetof(cublasLtMatmulHeuristicResult_t, state));
static_assert(offsetof(ours::Found, waves) ==
              offsetof(cublasLtMatmulHeuristicResult_t, wavesCount));

static_assert(same_abi<decltype(Functions::create), decltype(&cublasLtCreate)>);
static_assert(same_abi<decltype(Functions::make_matmul), decltype(&cublasLtMatmulDescCreate)>);
static_assert(same_abi<decltype(Functions::free_matmul), decltype(&cublasLtMatmulDescDestroy)>);
static_assert(same_abi<decltype(Functions::set_matmul), decltype(&cublasLtMatmulDescSetAttribute)>);
static_assert(same_abi<decltype(Functions::make_layout), decltype(&cublasLtMatrixLayoutCreate)>);
static_assert(same_abi<decltype(Functions::free_layout), decltype(&cublasLtMatrixLayoutDestroy)>);
static_assert(
    same_abi<decltype(Functions::set_layout), decltype(&cublasLtMatrixLayoutSetAttribute)>);
static_assert(
    same_abi<decltype(Functions::make_preference), decltype(&cublasLtMatmulPreferenceCreate)>);
static_assert(
    same_abi<decltype(Functions::free_preference), decltype(&cublasLtMatmulPreferenceDestroy)>);
static_assert(
    same_abi<decltype(Functions::set_preference), decltype(&cublasLtMatmulPreferenceSetAttribute)>);
static_assert(same_abi<decltype(Functions::heuristic), decltype(&cublasLtMatmulAlgoGetHeuristic)>);
static_assert(same_abi<decltype(Functions::check_algorithm), decltype(&cublasLtMatmulAlgoCheck)>);
static_assert(same_abi<decltype(Functions::matmul), decltype(&cublasLtMatmul)>);
static_assert(same_abi<decltype(Functions::version), decltype(&cublasLtGetVersion)>);
static_assert(same_abi<decltype(Functions::status_text), decltype(&cublasLtGetStatusString)>);

}  // namespace cuda_headers
