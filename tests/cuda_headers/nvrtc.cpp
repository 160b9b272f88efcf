// Checks NVRTC's signatures against its header at compile time.
#include <nvrtc.h>

#include "tests/cuda_headers/abi.h"
#include "weft/backends/cuda/nvrtc_api.h"

namespace cuda_headers {
using weft::cuda::nvrtc::Functions;

static_assert(NVRTC_SUCCESS == 0);
static_assert(same_abi<decltype(Functions::create), decltype(&::nvrtcCreateProgram)>);
static_assert(same_abi<decltype(Functions::destroy), decltype(&::nvrtcDestroyProgram)>);
static_assert(same_abi<decltype(Functions::build), decltype(&::nvrtcCompileProgram)>);
static_assert(same_abi<decltype(Functions::log_bytes), decltype(&::nvrtcGetProgramLogSize)>);
static_assert(same_abi<decltype(Functions::log), decltype(&::nvrtcGetProgramLog)>);
static_assert(same_abi<decltype(Functions::cubin_bytes), decltype(&::nvrtcGetCUBINSize)>);
static_assert(same_abi<decltype(Functions::cubin), decltype(&::nvrtcGetCUBIN)>);
static_assert(same_abi<decltype(Functions::error_text), decltype(&::nvrtcGetErrorString)>);
static_assert(same_abi<decltype(Functions::version), decltype(&::nvrtcVersion)>);

}  // namespace cuda_headers
