// NVRTC, NVIDIA's compiler of CUDA C, loaded when it is first asked for: nobody who has no NVIDIA
// GPU needs it, and compiling needs no GPU.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace weft::cuda {

class Nvrtc {
 public:
  // Throws Error(device) saying where it looked.
  Nvrtc();
  ~Nvrtc();
  Nvrtc(const Nvrtc&) = delete;
  Nvrtc& operator=(const Nvrtc&) = delete;

  int version() const;  // 13010: CUDA 13.1
  // Machine code (cubin) for compute capability `capability` (90: sm_90), in which no product and
  // sum become one operation. Throws InternalError with what the compiler says and the lines it
  // speaks of.
  std::string compile(const std::string& source, int capability) const;
  // What it is told, which decides the code as the source does.
  static std::vector<std::string> options(int capability);

 private:
  struct Library;
  std::unique_ptr<Library> library_;
};

}  // namespace weft::cuda
