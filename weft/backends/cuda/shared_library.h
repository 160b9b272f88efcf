// Where NVIDIA's libraries are found.
#pragma once

#include <string>
#include <vector>

#include "weft/base/shared_library.h"

namespace weft::cuda {

class SharedLibrary : public weft::SharedLibrary {
 public:
  // The first of `names` ("libcuda.so.1") that is found: in WEFT_CUDA_PATH, else where
  // tools/setup.sh --cuda puts libraries, else where the system's are, else among those of a CUDA
  // toolkit or of Python's wheels. Throws Error(device) with `hint`.
  SharedLibrary(const std::vector<std::string>& names, const std::string& hint);
};

}  // namespace weft::cuda
