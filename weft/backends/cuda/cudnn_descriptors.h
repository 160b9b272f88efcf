// Declares cuDNN itself, and its descriptors: opaque objects whose attributes are set before they
// are finalized, and read afterwards. Only cudnn_graph.cpp, cudnn_engines.cpp and the benchmark of
// libraries share this header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "weft/backends/cuda/cublaslt.h"
#include "weft/backends/cuda/cudnn_api.h"
#include "weft/backends/cuda/cudnn_graph.h"
#include "weft/backends/cuda/shared_library.h"

namespace weft::cuda::cudnn {

inline constexpr const char* comes_with =
    "it comes with Python's package nvidia-cudnn-cu13, and from developer.nvidia.com/cudnn.";

// Earlier versions sum over out-of-range keys in gradients of attention.
inline constexpr size_t least_version = 91600;

struct Library : api::Functions {
  Library();  // throws Error(device) if cuDNN is missing, too old, or made for another CUDA
  void check(int status, const char* call) const;  // throws Error(device) unless `status` is 0
  std::string reason(int status) const;

  // The parts are loaded here because cuDNN aborts the process if it does not find the first of
  // them, and has no engines without the others.
  const cublaslt::Library& products = cublaslt::library();
  SharedLibrary library{
      {"libcudnn.so.9"}, comes_with, {{"libcudnn_graph.so.9", "cudnnGetVersion", least_version}}};
  SharedLibrary parts[3] = {{library, "libcudnn_graph.so.9", comes_with},
                            {library, "libcudnn_heuristic.so.9", comes_with},
                            {library, "libcudnn_engines_precompiled.so.9", comes_with}};
};

const Library& library();
// Returns the cuDNN handle of the current context.
api::Handle handle();

Descriptor make(api::Kind kind);
void finish(const Descriptor& descriptor);

void set(const Descriptor& to, api::Attribute attribute, api::AttributeType type, int64_t count,
         const void* values);
void set(const Descriptor& to, api::Attribute attribute, api::AttributeType type,
         const auto& value) {
  set(to, attribute, type, 1, static_cast<const void*>(&value));
}
void set(const Descriptor& to, api::Attribute attribute, const Dims& values);
void set(const Descriptor& to, api::Attribute attribute, const Descriptor& part);
void set(const Descriptor& to, api::Attribute attribute, const Tensor& tensor);
void set(const Descriptor& to, api::Attribute attribute, DType dtype);

int64_t count_of(const Descriptor& of, api::Attribute attribute, api::AttributeType type);
// Reads at most as many values as `into` holds; returns their count.
size_t get(const Descriptor& of, api::Attribute attribute, api::AttributeType type, auto into) {
  int64_t count = 0;
  library().check(
      library().get_attribute(of.get(), attribute, type, static_cast<int64_t>(into.size()), &count,
                              static_cast<void*>(into.data())),
      "cudnnBackendGetAttribute");
  return static_cast<size_t>(count);
}
size_t bytes_of(const Descriptor& of, api::Attribute attribute);

}  // namespace weft::cuda::cudnn
