// Runs steps on tensors of another library, PyTorch's, by DLPack's C exchange API (DLPack 1.2):
// the loop over a step's arguments and results is in C++, as a step of a small net takes
// microseconds.
#include <algorithm>

#include "python/src/step.h"

namespace weft::python {
namespace {
// These are the structs of dlpack.h that the exchange needs, with their layout.
struct DlDevice {
  int32_t type, id;
};
struct DlType {
  uint8_t code, bits;
  uint16_t lanes;
};
struct DlTensor {
  void* data;
  DlDevice device;
  int32_t ndim;
  DlType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};
struct DlManaged;  // DLManagedTensorVersioned, which only its library looks into
using SetError = void (*)(void* context, const char* kind, const char* message);
struct DlExchange {
  uint32_t major, minor;
  DlExchange* previous;
  int (*allocate)(DlTensor* prototype, DlManaged** out, void* context, SetError set_error);
  int (*export_owning)(void* object, DlManaged** out);
  int (*import_owning)(DlManaged* tensor, void** object);
  int (*view)(void* object, DlTensor* out);
  int (*current_stream)(int32_t type, int32_t id, void** out);
};
constexpr int32_t cpu = 1;

void raise_memory(void*, const char*, const char* message) {
  PyErr_SetString(PyExc_MemoryError, message);
}

struct Place {
  int argument;  // its index among the arguments
  Dims strides;  // that the step reads it with, in elements
};
struct Made {
  DlType dtype;
  std::vector<int64_t> shape;
};

// An Exchange looks at tensors of the library that gave its table of functions.
class Exchange {
 public:
  explicit Exchange(const nb::capsule& table)
      : table_(static_cast<const DlExchange*>(table.data("dlpack_exchange_api"))) {}

  struct View {
    DlTensor tensor;
    const std::byte* data;
  };
  View viewed(nb::handle object) const {
    View view{};
    if (table_->view(object.ptr(), &view.tensor) != 0) throw nb::python_error();
    view.data = static_cast<const std::byte*>(view.tensor.data) + view.tensor.byte_offset;
    return view;
  }
  nb::object allocated(DlType dtype, std::vector<int64_t>& shape) const {
    DlTensor prototype{.device = {cpu, 0},
                       .ndim = static_cast<int32_t>(shape.size()),
                       .dtype = dtype,
                       .shape = shape.data()};
    DlManaged* managed = nullptr;
    if (table_->allocate(&prototype, &managed, nullptr, &raise_memory) != 0)
      throw nb::python_error();
    void* object = nullptr;
    if (table_->import_owning(managed, &object) != 0) throw nb::python_error();
    return nb::steal(static_cast<PyObject*>(object));
  }

 private:
  const DlExchange* table_;
};

// A Places remembers where tensors are in memory: parameters move where somebody replaces their
// elements, as model.to() does, and a plan would go on with the former ones.
class Places {
 public:
  Places(const nb::capsule& table, nb::list tensors)
      : exchange_(table), tensors_(std::move(tensors)) {
    for (const nb::handle tensor : tensors_) at_.push_back(exchange_.viewed(tensor).data);
  }
  bool have_moved() const {
    size_t i = 0;
    for (const nb::handle tensor : tensors_)
      if (exchange_.viewed(tensor).data != at_[i++]) return true;
    return false;
  }

 private:
  Exchange exchange_;
  nb::list tensors_;
  std::vector<const std::byte*> at_;
};

// A Call is a step whose inputs are some of the arguments, in a given order of their axes, and
// whose results are new tensors.
class Call {
 public:
  Call(Step& step, const nb::capsule& exchange, const std::vector<std::pair<int, Dims>>& places,
       const std::vector<std::pair<nb::tuple, std::vector<int64_t>>>& results)
      : step_(step), exchange_(exchange) {
    for (const auto& [argument, strides] : places) places_.push_back({argument, strides});
    for (const auto& [dtype, shape] : results)
      made_.push_back({{nb::cast<uint8_t>(dtype[0]), nb::cast<uint8_t>(dtype[1]), 1}, shape});
  }

  // Returns the results; None where an argument has other strides than the step reads, or is on
  // another device.
  nb::object operator()(const nb::list& arguments, const Addresses& further) {
    std::vector<const std::byte*> inputs;
    inputs.reserve(places_.size() + further.size());
    for (const Place& place : places_) {
      const std::byte* at =
          address(nb::handle(PyList_GetItem(arguments.ptr(), place.argument)), place.strides);
      if (at == nullptr) return nb::none();
      inputs.push_back(at);
    }
    for (const uintptr_t address : further)
      inputs.push_back(reinterpret_cast<const std::byte*>(address));
    nb::list results;
    std::vector<std::byte*> addresses;
    addresses.reserve(made_.size());
    for (Made& made : made_) {
      nb::object tensor = exchange_.allocated(made.dtype, made.shape);
      addresses.push_back(const_cast<std::byte*>(exchange_.viewed(tensor).data));
      results.append(std::move(tensor));
    }
    step_.run_at(inputs, addresses);
    return results;
  }

 private:
  const std::byte* address(nb::handle object, const Dims& strides) const {
    const Exchange::View view = exchange_.viewed(object);
    if (view.tensor.device.type != cpu || view.tensor.ndim != strides.size()) return nullptr;
    if (std::find(view.tensor.shape, view.tensor.shape + strides.size(), 0) !=
        view.tensor.shape + strides.size())
      return empty_;  // whatever the strides
    for (int i = 0; i < strides.size(); ++i)
      if (view.tensor.shape[i] > 1 && view.tensor.strides != nullptr &&
          view.tensor.strides[i] != strides[i])
        return nullptr;
    return view.data;
  }
  Step& step_;
  Exchange exchange_;
  std::vector<Place> places_;
  std::vector<Made> made_;
  alignas(64) std::byte empty_[64] = {};
};
}  // namespace

void bind_exchange(nb::module_& m) {
  nb::class_<Places>(m, "_Places", "Where tensors are in memory.")
      .def(nb::init<const nb::capsule&, nb::list>(), "exchange"_a, "tensors"_a)
      .def("have_moved", &Places::have_moved);
  nb::class_<Call>(m, "_Call", "A step on tensors of a library with DLPack's C exchange API.")
      .def(nb::init<Step&, const nb::capsule&, const std::vector<std::pair<int, Dims>>&,
                    const std::vector<std::pair<nb::tuple, std::vector<int64_t>>>&>(),
           "step"_a, "exchange"_a, "places"_a, "results"_a, nb::keep_alive<1, 2>())
      .def("__call__", &Call::operator(), "arguments"_a, "further"_a);
}

}  // namespace weft::python
