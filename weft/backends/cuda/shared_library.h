// Finds and loads NVIDIA's shared libraries.
#pragma once

#include <string>
#include <vector>

#include "weft/base/shared_library.h"

namespace weft::cuda {

class SharedLibrary : public weft::SharedLibrary {
 public:
  // Loads the first of `names` ("libcuda.so.1") found in WEFT_CUDA_PATH or else where
  // tools/setup.sh --cuda installs libraries, then among the system's libraries, then in a CUDA
  // toolkit or Python's wheels. Throws Error(device) with `hint`.
  SharedLibrary(const std::vector<std::string>& names, const std::string& hint);
};

}  // namespace weft::cuda
