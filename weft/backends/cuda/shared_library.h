// A library of NVIDIA's, loaded when it is first needed, so that one program serves machines with
// and without. Functions are found by name and called through pointers: no header of CUDA is needed
// to build weft, and none of its libraries to run it.
#pragma once

#include <string>
#include <vector>

namespace weft::cuda {

class SharedLibrary {
 public:
  // The first of `names` ("libcuda.so.1") that is found: in WEFT_CUDA_PATH, else where
  // tools/setup.sh --cuda puts libraries, else where the system's are, else among those of a CUDA
  // toolkit or of Python's wheels. Throws Error(device) with `hint`.
  SharedLibrary(const std::vector<std::string>& names, const std::string& hint);
  ~SharedLibrary();
  SharedLibrary(const SharedLibrary&) = delete;
  SharedLibrary& operator=(const SharedLibrary&) = delete;

  // Throws Error(device) where the library has no such function.
  template <class F>
  void find(F*& function, const char* name) const {
    function = reinterpret_cast<F*>(address(name));
  }
  const std::string& path() const { return path_; }
  // Loads what lies in the same folder and begins with `prefix`: a part that the library would look
  // for among the system's only.
  void load_beside(const std::string& prefix) const;

 private:
  void* address(const char* name) const;

  void* handle_ = nullptr;
  std::string path_;
};

}  // namespace weft::cuda
