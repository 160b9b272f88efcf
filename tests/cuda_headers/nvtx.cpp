// Checks NVTX's signatures against its header at compile time.
#include <nvtx3/nvToolsExt.h>

#include "tests/cuda_headers/abi.h"
#include "weft/backends/cuda/nvtx_api.h"

namespace cuda_headers {
using weft::cuda::nvtx::Functions;

static_assert(same_abi<decltype(Functions::push), decltype(&::nvtxRangePushA)>);
static_assert(same_abi<decltype(Functions::pop), decltype(&::nvtxRangePop)>);

}  // namespace cuda_headers
