// Finds and loads NVIDIA's shared libraries.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "weft/base/host/shared_library.h"

namespace weft::cuda {

// LeastVersion is the oldest version of a library that weft can use. The library in the file `part`
// beside it has a function that returns its version.
struct LeastVersion {
  const char* part;
  const char* function;
  size_t version;
};

class SharedLibrary : public weft::SharedLibrary {
 public:
  // Loads the first of `names` ("libcuda.so.1") found in WEFT_CUDA_PATH or else where
  // tools/setup.sh --cuda installs libraries, then among the system's libraries, then in a CUDA
  // toolkit or Python's wheels. Outside of the first two folders, a library of at least the version
  // `least` is preferred, as the system's library may be older than the library in the current
  // Python's wheels. Throws Error(device) with `hint`.
  SharedLibrary(const std::vector<std::string>& names, const std::string& hint,
                std::optional<LeastVersion> least = {});
  // Loads a part of the library `whole`: from the folder of `whole`, or by the system's loader if
  // that found `whole`.
  SharedLibrary(const SharedLibrary& whole, const std::string& name, const std::string& hint);
};

}  // namespace weft::cuda
