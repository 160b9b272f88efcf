#include "weft/backends/cuda/cudnn_descriptors.h"

#include <array>

#include <fmt/format.h>

#include "weft/backends/cuda/driver.h"
#include "weft/base/error.h"

namespace weft::cuda::cudnn {
using namespace api;

namespace {
DataType data_type(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return double_data;
    case DType::f16:
      return half_data;
    case DType::i32:
      return int32_data;
    case DType::bf16:
      return bfloat16_data;
    case DType::boolean:
      return boolean_data;
    default:
      WEFT_ASSERT(dtype == DType::f32, "no tensor of cuDNN has elements of {}", name(dtype));
      return float_data;
  }
}
}  // namespace

Library::Library() {
  library.find(version, "cudnnGetVersion");
  if (version() < least_version)
    throw Error(ErrorKind::device,
                "[cuda] {} is too old: it is cuDNN {}.{}, weft needs {}.{} or later.",
                library.path(), version() / 10000, version() % 10000 / 100, least_version / 10000,
                least_version % 10000 / 100);
  library.find(cuda_version, "cudnnGetCudartVersion");
  if (const int cuda = static_cast<int>(cuda_version() / 1000); cuda != products.cuda())
    throw Error(ErrorKind::device, "[cuda] {} is built for CUDA {}, {} for CUDA {}.",
                library.path(), cuda, products.library.path(), products.cuda());
  library.find(create, "cudnnCreate");
  library.find(set_stream, "cudnnSetStream");
  library.find(make_descriptor, "cudnnBackendCreateDescriptor");
  library.find(free_descriptor, "cudnnBackendDestroyDescriptor");
  library.find(set_attribute, "cudnnBackendSetAttribute");
  library.find(get_attribute, "cudnnBackendGetAttribute");
  library.find(finalize, "cudnnBackendFinalize");
  library.find(execute, "cudnnBackendExecute");
  library.find(status_text, "cudnnGetErrorString");
  library.find(last_error, "cudnnGetLastErrorString");
}

void Library::check(int status, const char* call) const {
  if (status != 0) throw Error(ErrorKind::device, "[cuda] {}: {}.", call, reason(status));
}

std::string Library::reason(int status) const {
  std::array<char, 1024> detail{};
  last_error(detail.data(), detail.size());
  return detail[0] == '\0' ? status_text(status)
                           : fmt::format("{} ({})", status_text(status), detail.data());
}

// The library is never unloaded, as the driver is not.
const Library& library() {
  static const Library* const instance = new Library;
  return *instance;
}

Handle handle() {
  static PerContext& handles = *new PerContext([] {
    Handle made = nullptr;
    library().check(library().create(&made), "cudnnCreate");
    return made;
  });
  return handles.current();
}

Descriptor make(Kind kind) {
  Handle made = nullptr;
  library().check(library().make_descriptor(kind, &made), "cudnnBackendCreateDescriptor");
  return {made, library().free_descriptor};
}

void finish(const Descriptor& descriptor) {
  library().check(library().finalize(descriptor.get()), "cudnnBackendFinalize");
}

void set(const Descriptor& to, Attribute attribute, AttributeType type, int64_t count,
         const void* values) {
  library().check(library().set_attribute(to.get(), attribute, type, count, values),
                  "cudnnBackendSetAttribute");
}
void set(const Descriptor& to, Attribute attribute, const Dims& values) {
  set(to, attribute, int64_type, values.size(), values.begin());
}
void set(const Descriptor& to, Attribute attribute, const Descriptor& part) {
  const Handle handle = part.get();
  set(to, attribute, descriptor_type, 1, static_cast<const void*>(&handle));
}
void set(const Descriptor& to, Attribute attribute, const Tensor& tensor) {
  set(to, attribute, tensor.descriptor);
}
void set(const Descriptor& to, Attribute attribute, DType dtype) {
  set(to, attribute, data_type_type, data_type(dtype));
}

int64_t count_of(const Descriptor& of, Attribute attribute, AttributeType type) {
  int64_t count = 0;
  library().check(library().get_attribute(of.get(), attribute, type, 0, &count, nullptr),
                  "cudnnBackendGetAttribute");
  return count;
}
size_t bytes_of(const Descriptor& of, Attribute attribute) {
  int64_t bytes = 0;
  get(of, attribute, int64_type, std::span(&bytes, 1));
  return static_cast<size_t>(bytes);
}

}  // namespace weft::cuda::cudnn
