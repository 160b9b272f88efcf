// Where the build found no CLBlast: the loops multiply.
#include "weft/backends/opencl/clblast.h"

namespace weft::opencl {

std::unique_ptr<gpu::Provider> clblast_provider() { return nullptr; }

}  // namespace weft::opencl
