// Wraps NVRTC, NVIDIA's runtime compiler of CUDA C. The library is loaded on first use, so machines
// without an NVIDIA GPU do not need it; compiling needs no GPU.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace weft::cuda {

class Nvrtc {
 public:
  // Throws Error(device), which says where it looked.
  Nvrtc();
  ~Nvrtc();
  Nvrtc(const Nvrtc&) = delete;
  Nvrtc& operator=(const Nvrtc&) = delete;

  int version() const;  // 13010: CUDA 13.1
  // Compiles to machine code (cubin) for compute capability `capability` (90: sm_90), without
  // contraction to fused multiply-add. Throws InternalError with the compiler's messages and the
  // source lines that they name.
  std::string compile(const std::string& source, int capability) const;
  // Returns the compiler's options, which are part of the cache key.
  static std::vector<std::string> options(int capability);

 private:
  struct Library;
  std::unique_ptr<Library> library_;
};

}  // namespace weft::cuda
