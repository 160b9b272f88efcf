// Runs steps on tensors of another library, PyTorch's, by DLPack's C exchange API (DLPack 1.2):
// the loop over a step's arguments and results is in C++, as a step of a small net takes
// microseconds.
#include <algorithm>
#include <map>
#include <optional>

#include "weft/base/host/stopwatch.h"
#include "weft/base/memory/storage.h"

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

// Ends the threads that the other library's OpenMP keeps for the calling thread (OpenMP 5.0,
// omp_pause_resource_all); null: unknown. They wait for their next region in a loop, on cores that
// a step needs; making them anew takes tens of microseconds, so only longer steps end them.
using Pause = int (*)(int kind);
Pause pause_others = nullptr;
constexpr int pause_soft = 1;
constexpr double long_step = 1;  // milliseconds

void raise_memory(void*, const char*, const char* message) {
  PyErr_SetString(PyExc_MemoryError, message);
}

struct Place {
  int argument;  // its index among the arguments
  Dims strides;  // that the step reads it with, in elements
};
// A Bound is what elements of an argument, or of a view of it, may be: those that an operation
// takes for places along an axis. A plan reads zeros outside, where the program's own library
// refuses.
struct Bound {
  size_t place;                // of the argument, among places
  int bytes;                   // of an element, a signed integer: 4 or 8
  int64_t offset;              // of the view, in elements
  Dims shape, strides;         // of the view, in elements
  int64_t begin, end, beside;  // in [begin, end), or `beside`
  std::string what;            // "aten.embedding.default (net.py:12)"
};
struct Made {
  DlType dtype;
  std::vector<int64_t> shape;
};

// Returns the first element outside of the bound; nullopt where there is none.
template <class Integer>
std::optional<int64_t> outside(const Bound& bound, const Integer* at, int axis = 0) {
  const auto is_wrong = [&](int64_t value) {
    return (value < bound.begin || value >= bound.end) && value != bound.beside;
  };
  const int64_t stride = axis < bound.shape.size() ? bound.strides[axis] : 0;
  const int64_t extent = axis < bound.shape.size() ? bound.shape[axis] : 1;
  if (axis + 1 < bound.shape.size()) {
    for (int64_t i = 0; i < extent; ++i)
      if (const auto found = outside(bound, at + i * stride, axis + 1)) return found;
    return {};
  }
  bool is_any = false;  // without a branch for each element
  for (int64_t i = 0; i < extent; ++i) is_any |= is_wrong(at[i * stride]);
  for (int64_t i = 0; is_any && i < extent; ++i)
    if (is_wrong(at[i * stride])) return at[i * stride];
  return {};
}

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

// A Places remembers where tensors are in memory, and how: parameters move where somebody replaces
// their elements, as model.to() does, and a plan would go on with the former ones.
class Places {
 public:
  Places(const nb::capsule& table, nb::list tensors)
      : exchange_(table), tensors_(std::move(tensors)) {
    for (const nb::handle tensor : tensors_) places_.push_back(of(tensor));
  }
  bool have_moved() const {
    size_t i = 0;
    for (const nb::handle tensor : tensors_)
      if (!is_at(exchange_.viewed(tensor), places_[i++])) return true;
    return false;
  }

 private:
  struct Layout {
    const std::byte* at;
    uint8_t code, bits;  // of the elements
    Dims shape, strides;
  };
  static bool is_at(const Exchange::View& view, const Layout& place) {
    const DlTensor& tensor = view.tensor;
    const auto rank = static_cast<size_t>(tensor.ndim);
    return view.data == place.at && tensor.dtype.code == place.code &&
           tensor.dtype.bits == place.bits && tensor.ndim == place.shape.size() &&
           std::equal(tensor.shape, tensor.shape + rank, place.shape.begin()) &&
           (tensor.strides == nullptr ||
            std::equal(tensor.strides, tensor.strides + rank, place.strides.begin()));
  }
  Layout of(nb::handle tensor) const {
    const Exchange::View view = exchange_.viewed(tensor);
    Layout place{view.data, view.tensor.dtype.code, view.tensor.dtype.bits, {}, {}};
    for (int i = 0; i < view.tensor.ndim; ++i) {
      place.shape.push_back(view.tensor.shape[i]);
      if (view.tensor.strides != nullptr) place.strides.push_back(view.tensor.strides[i]);
    }
    return place;
  }

  Exchange exchange_;
  nb::list tensors_;
  std::vector<Layout> places_;
};

// A Watch remembers what dicts, lists and objects of Python hold: a plan stands for the modules,
// hooks and tensors that a model had when it was made. An entry is (dict, key, value or None where
// it has none), (list, index, value), (object, name of an attribute, value), or (dict or list,
// None, length).
class Watch {
 public:
  explicit Watch(nb::list entries) : held_(std::move(entries)) {
    for (const nb::handle entry : held_) {
      const nb::tuple parts = nb::cast<nb::tuple>(entry);
      const nb::handle holder = parts[0], key = parts[1];
      const Kind kind = key.is_none()                      ? Kind::length
                        : nb::isinstance<nb::dict>(holder) ? Kind::item
                        : nb::isinstance<nb::list>(holder) ? Kind::element
                                                           : Kind::attribute;
      Py_ssize_t number = 0;
      if (kind == Kind::length) number = nb::cast<Py_ssize_t>(parts[2]);
      if (kind == Kind::element) number = nb::cast<Py_ssize_t>(parts[1]);
      entries_.push_back({kind, holder.ptr(), key.ptr(), nb::handle(parts[2]).ptr(), number});
    }
  }

  // Returns the entries that do not hold any more.
  nb::list changed() const {
    nb::list found;
    for (size_t i = 0; i < entries_.size(); ++i)
      if (!holds(entries_[i])) found.append(held_[i]);
    return found;
  }

 private:
  enum class Kind : uint8_t { length, item, element, attribute };
  struct Entry {
    Kind kind;
    PyObject *holder, *key, *value;  // which `held_` keeps alive
    Py_ssize_t number;               // a length, or a place
  };

  static bool holds(const Entry& entry) {
    switch (entry.kind) {
      case Kind::length:
        return PyObject_Size(entry.holder) == entry.number;
      case Kind::item: {
        PyObject* const held = PyDict_GetItem(entry.holder, entry.key);
        return held == entry.value || (held == nullptr && entry.value == Py_None);
      }
      case Kind::element:
        return entry.number < PyList_Size(entry.holder) &&
               PyList_GetItem(entry.holder, entry.number) == entry.value;
      case Kind::attribute:
        break;
    }
    return nb::getattr(nb::handle(entry.holder), nb::handle(entry.key)).is(entry.value);
  }

  nb::list held_;
  std::vector<Entry> entries_;
};

// A Call is a step whose inputs are some of the arguments, in a given order of their axes, and
// whose results are new tensors.
class Call {
 public:
  Call(Step& step, const nb::capsule& exchange, const std::vector<std::pair<int, Dims>>& places,
       const std::vector<std::pair<nb::tuple, std::vector<int64_t>>>& results,
       const std::vector<nb::tuple>& bounds, const std::vector<Variable>& read,
       const std::vector<std::tuple<uintptr_t, uintptr_t, std::string>>& states)
      : step_(step), exchange_(exchange), read_(read) {
    for (const auto& [argument, strides] : places) places_.push_back({argument, strides});
    for (const auto& [dtype, shape] : results)
      made_.push_back({{nb::cast<uint8_t>(dtype[0]), nb::cast<uint8_t>(dtype[1]), 1}, shape});
    for (const nb::tuple& bound : bounds)
      bounds_.push_back({nb::cast<size_t>(bound[0]), nb::cast<int>(bound[1]),
                         nb::cast<int64_t>(bound[2]), nb::cast<Dims>(bound[3]),
                         nb::cast<Dims>(bound[4]), nb::cast<int64_t>(bound[5]),
                         nb::cast<int64_t>(bound[6]), nb::cast<int64_t>(bound[7]),
                         nb::cast<std::string>(bound[8])});
    for (const auto& [begin, end, name] : states) states_[begin] = {end, name};
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
      check_apart(reinterpret_cast<uintptr_t>(at));
      inputs.push_back(at);
    }
    for (const Bound& bound : bounds_) check(bound, inputs[bound.place]);
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
    if (pause_others != nullptr && milliseconds_ > long_step) pause_others(pause_soft);
    // Whoever shares the memory of variables may have written to it since the latest run.
    for (const Variable& variable : read_) variable.state()->storage->note_write();
    const Stopwatch watch;
    step_.run_at(inputs, addresses);
    milliseconds_ = watch.milliseconds();
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
  // An input within a state would change while the step runs.
  void check_apart(uintptr_t at) const {
    auto next = states_.upper_bound(at);
    if (next == states_.begin()) return;
    const auto& [end, name] = std::prev(next)->second;
    if (at < end)
      throw Error(ErrorKind::usage,
                  "[step] an input shares memory with {}. Hint: clone() it before the step.", name);
  }
  static void check(const Bound& bound, const std::byte* at) {
    const std::optional<int64_t> found =
        bound.bytes == 8 ? outside(bound, reinterpret_cast<const int64_t*>(at) + bound.offset)
                         : outside(bound, reinterpret_cast<const int32_t*>(at) + bound.offset);
    if (found)
      throw nb::index_error(fmt::format("[torch] {}: {} is outside of [{}, {})", bound.what, *found,
                                        bound.begin, bound.end)
                                .c_str());
  }

  Step& step_;
  Exchange exchange_;
  std::vector<Place> places_;
  std::vector<Made> made_;
  std::vector<Bound> bounds_;
  std::vector<Variable> read_;                                     // and not assigned
  std::map<uintptr_t, std::pair<uintptr_t, std::string>> states_;  // end and name, by beginning
  double milliseconds_ = 0;                                        // of the latest run
  alignas(64) std::byte empty_[64] = {};
};
}  // namespace

void bind_exchange(nb::module_& m) {
  m.def(
      "_set_pause", [](uintptr_t function) { pause_others = reinterpret_cast<Pause>(function); },
      "function"_a, "Takes the address of another OpenMP's omp_pause_resource_all.");
  nb::class_<Places>(m, "_Places", "Where tensors are in memory.")
      .def(nb::init<const nb::capsule&, nb::list>(), "exchange"_a, "tensors"_a)
      .def("have_moved", &Places::have_moved);
  nb::class_<Watch>(m, "_Watch", "What dicts, lists and objects hold.")
      .def(nb::init<nb::list>(), "entries"_a)
      .def("changed", &Watch::changed);
  nb::class_<Call>(m, "_Call", "A step on tensors of a library with DLPack's C exchange API.")
      .def(nb::init<Step&, const nb::capsule&, const std::vector<std::pair<int, Dims>>&,
                    const std::vector<std::pair<nb::tuple, std::vector<int64_t>>>&,
                    const std::vector<nb::tuple>&, const std::vector<Variable>&,
                    const std::vector<std::tuple<uintptr_t, uintptr_t, std::string>>&>(),
           "step"_a, "exchange"_a, "places"_a, "results"_a, "bounds"_a, "read"_a, "states"_a,
           nb::keep_alive<1, 2>())
      .def("__call__", &Call::operator(), "arguments"_a, "further"_a);
}

}  // namespace weft::python
