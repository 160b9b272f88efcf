// Checks and owns objects of oneDNN's C API, and describes primitives. It is internal to the
// wrapper of onednn.h.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <type_traits>

#include <dnnl.h>

#include "weft/backends/cpu/onednn/onednn.h"

static_assert(DNNL_VERSION_MAJOR == 2, "weft is written for version 2 of oneDNN's API");

namespace weft::onednn {

void check(dnnl_status_t status, const char* call);  // throws Error(device) for a failure

// Destroy is the deleter of a Handle, which owns a C object.
template <class T, dnnl_status_t (*destroy)(T*)>
struct Destroy {
  using pointer = T*;
  void operator()(T* object) const { destroy(object); }
};
template <class T, dnnl_status_t (*destroy)(T*)>
using Handle = std::unique_ptr<T, Destroy<T, destroy>>;
using Engine = Handle<dnnl_engine, dnnl_engine_destroy>;
using Stream = Handle<dnnl_stream, dnnl_stream_destroy>;
using Attributes = Handle<dnnl_primitive_attr, dnnl_primitive_attr_destroy>;
using Description = Handle<dnnl_primitive_desc, dnnl_primitive_desc_destroy>;
using Iterator = Handle<dnnl_primitive_desc_iterator, dnnl_primitive_desc_iterator_destroy>;

struct Host {
  Engine engine;
  Stream stream;
  Attributes attributes;  // the caller provides scratchpads
  Attributes adding;      // as above; primitives also add to the result
};
const Host& host();  // one per process; the first call caps oneDNN's instruction set

dnnl_memory_desc_t strided(const Tensor& tensor);
// Returns the first implementation that allocates no hidden memory, or null.
Description describe(const Problem& problem);
std::string implementation_of(const_dnnl_primitive_desc_t description);
dnnl_memory_desc_t layout_of(const_dnnl_primitive_desc_t description, int argument);
// Returns the names of a, b and the result among the primitive's arguments.
std::array<int, 3> argument_names(Operation operation);

}  // namespace weft::onednn
