// Tensors and variables in Python: their elements, operators and indices.
#include <algorithm>
#include <span>

#include <nanobind/ndarray.h>

#include "weft/base/memory/buffer.h"
#include "weft/base/memory/storage.h"
#include "weft/ops/apply.h"

#include "python/src/bind.h"

namespace weft::python {
namespace {
// Computes the elements, which other threads of Python need not wait for.
const Tensor& evaluated(const Tensor& value) {
  check_process();
  const nb::gil_scoped_release released;
  value.eval();
  return value;
}

nb::dlpack::dtype dlpack_type(DType dtype) {
  const auto bits = static_cast<uint8_t>(info(dtype).bits);
  // The codes are those of DLPack 1.1 (dlpack.h, DLDataTypeCode).
  switch (dtype) {
    case DType::boolean:
      return {6, bits, 1};
    case DType::bf16:
      return {4, bits, 1};
    case DType::f8_e4m3:
      return {10, bits, 1};
    case DType::f8_e5m2:
      return {12, bits, 1};
    case DType::i4x2:
      return {1, bits, 1};
    default:
      return {static_cast<uint8_t>(is_float(dtype) ? 2 : has_sign(dtype) ? 0 : 1), bits, 1};
  }
}

// Returns the elements of a tensor in memory that nothing writes to, which an array keeps wherever
// the tensor moves: an allocation of its own, or the memory of an object of Python. A view of other
// memory is copied.
std::shared_ptr<Buffer> fixed_buffer(const Tensor& value) {
  Storage& storage = *evaluated(value)->storage;
  const Buffer& buffer = storage.on_host();
  const bool is_allocation = buffer.owner.get() == buffer.data;
  if (!is_allocation && !is_kept(buffer.owner)) storage.move_to_own_memory();
  return storage.buffer();
}

// Returns the elements in `buffer` as an array of `dtype`, which keeps them alive.
template <class... Options>
nb::ndarray<Options...> array_over(const std::shared_ptr<Buffer>& buffer, nb::dlpack::dtype dtype,
                                   std::span<const int64_t> shape) {
  const std::vector<size_t> extents(shape.begin(), shape.end());
  const nb::capsule owner(new std::shared_ptr<Buffer>(buffer), [](void* held) noexcept {
    delete static_cast<std::shared_ptr<Buffer>*>(held);
  });
  return {buffer->data, extents.size(), extents.data(),         owner,
          nullptr,      dtype,          nb::device::cpu::value, 0};
}

std::shared_ptr<Buffer> copy_of(const Tensor& value) {
  Storage& storage = *evaluated(value)->storage;
  std::shared_ptr<Buffer> memory = Buffer::allocate(storage.bytes());
  const nb::gil_scoped_release released;
  storage.copy_to(memory->data);
  return memory;
}

// Exports the elements by DLPack. A consumer that knows version 1 gets a capsule that says that
// they are read-only; capsules of earlier versions cannot say so. A copy is the consumer's own.
nb::object dlpack(const Tensor& value, const nb::object& stream, const nb::object& max_version,
                  const nb::object& dl_device, const nb::object& copy) {
  const std::vector<int64_t> shape(value.shape().begin(), value.shape().end());
  const nb::dlpack::dtype dtype = dlpack_type(value.dtype());
  const bool is_copy = copy.is(nb::bool_(true));
  const bool can_say_read_only = nb::isinstance<nb::tuple>(max_version) &&
                                 nb::len(max_version) == 2 &&
                                 nb::cast<int64_t>(max_version[0]) >= 1;
  nb::object array;
  if (is_copy)
    array =
        nb::cast(array_over<nb::array_api>(copy_of(value), dtype, shape), nb::rv_policy::reference);
  else if (can_say_read_only)
    array = nb::cast(array_over<nb::array_api, nb::ro>(fixed_buffer(value), dtype, shape),
                     nb::rv_policy::reference);
  else
    array = nb::cast(array_over<nb::array_api>(fixed_buffer(value), dtype, shape),
                     nb::rv_policy::reference);
  return array.attr("__dlpack__")("stream"_a = stream, "max_version"_a = max_version,
                                  "dl_device"_a = dl_device);
}

// Returns the bytes of a tensor as an array.
nb::object bytes_of(const Tensor& value) {
  const auto bytes = static_cast<int64_t>(value.type().bytes());
  return nb::cast(array_over<nb::numpy>(fixed_buffer(value), {1, 8, 1}, {&bytes, 1}),
                  nb::rv_policy::reference);
}

// The buffer protocol (PEP 3118) of a tensor or variable is that of its NumPy array.
int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  const nb::object array = nb::steal(PyObject_CallMethod(self, "numpy", nullptr));
  view->obj = nullptr;
  return array.is_valid() ? PyObject_GetBuffer(array.ptr(), view, flags) : -1;
}
PyType_Slot buffer_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(&get_buffer)},
                              {0, nullptr}};

std::shared_ptr<Buffer> buffer_over(uintptr_t address, size_t bytes, nb::object owner) {
  auto buffer = std::make_shared<Buffer>();
  buffer->data = reinterpret_cast<std::byte*>(address);
  buffer->bytes = bytes;
  buffer->owner = keep(std::move(owner));
  return buffer;
}

Index index_of(nb::handle item, const std::source_location& where) {
  if (item.is_none()) return {newaxis, where};
  if (item.ptr() == Py_Ellipsis) return {ellipsis, where};
  if (PySlice_Check(item.ptr())) {
    const auto part = [&](const char* name, int64_t otherwise) {
      const nb::object given = item.attr(name);
      return given.is_none() ? otherwise : nb::cast<int64_t>(given);
    };
    const int64_t step = part("step", 1);
    if (step < 1)
      throw Error(ErrorKind::usage,
                  "[index] the step of a slice is at least 1: flip() reverses. Got {}.", step);
    return {IndexRange(part("start", 0), part("stop", to_end), step), where};
  }
  if (PyBool_Check(item.ptr())) throw nb::index_error("True and False are no indices");
  if (PyLong_Check(item.ptr())) return {nb::cast<int64_t>(item), where};
  const nb::object list = PyList_Check(item.ptr())
                              ? nb::module_::import_("weft").attr("tensor")(item)
                              : nb::borrow(item);
  const std::optional<Arg> given = to_arg(list);
  if (!given || given->is_scalar)
    throw nb::index_error("an index is a number, a slice, None, ... or a tensor");
  return {given->value, where};
}

// Unlike weft's own ranges, Python's slices end where the axis ends.
Tensor at(const Arg& x, nb::handle key) {
  const CallSite site(x.where, "index");
  std::vector<nb::object> items;
  if (PyTuple_Check(key.ptr()))
    for (const nb::handle item : nb::borrow<nb::tuple>(key)) items.push_back(nb::borrow(item));
  else
    items.push_back(nb::borrow(key));
  int named = 0;
  bool has_ellipsis = false;
  for (const nb::object& item : items) {
    has_ellipsis |= item.ptr() == Py_Ellipsis;
    named += item.is_none() || item.ptr() == Py_Ellipsis ? 0 : 1;
  }
  std::vector<Index> indices;
  int axis = 0;
  for (const nb::object& item : items) {
    Index index = index_of(item, {});
    index.where = x.where;
    if (index.kind == Index::Kind::ellipsis) axis += x.value.rank() - named;
    if (index.kind == Index::Kind::range && axis < x.value.rank()) {
      const int64_t extent = x.value.dim(axis);
      const auto within = [&](int64_t i) {
        return std::clamp<int64_t>(i < 0 ? i + extent : i, 0, extent);
      };
      const int64_t start = within(index.range.start());
      index.range = {start, std::max(start, within(index.range.stop())), index.range.step()};
    }
    if (index.kind == Index::Kind::number && axis < x.value.rank()) {
      const int64_t number = index.range.start(), extent = x.value.dim(axis);
      if (number < -extent || number >= extent)  // which ends a loop over the rows
        throw nb::index_error(fmt::format("[index] {} is out of range for axis {} of extent {}.",
                                          number, axis, extent)
                                  .c_str());
    }
    if (index.kind != Index::Kind::ellipsis && index.kind != Index::Kind::newaxis) ++axis;
    indices.push_back(std::move(index));
  }
  return indexed(x.value, indices);
}

template <class Class>
void def_common(Class& type) {
  type.def_prop_ro("shape", [](const Arg& x) { return x.value.shape(); })
      .def_prop_ro("dtype", [](const Arg& x) { return x.value.dtype(); })
      .def_prop_ro("ndim", [](const Arg& x) { return x.value.rank(); })
      .def_prop_ro("size", [](const Arg& x) { return x.value.type().elements(); })
      .def_prop_ro("nbytes", [](const Arg& x) { return x.value.type().bytes(); })
      .def("__len__",
           [](const Arg& x) {
             if (x.value.rank() == 0) throw nb::type_error("a tensor of one number has no len()");
             return x.value.dim(0);
           })
      .def("__getitem__", &at, nb::arg().none());
}

// Python asks both operands, so that numbers may stand on the left.
using Binary = Tensor (*)(Arg, Arg);
template <class Class>
void def_operators(Class& type) {
  const auto def = [&](const char* name, const char* reflected, Binary function) {
    type.def(name, function, nb::is_operator());
    if (reflected != nullptr)
      type.def(
          reflected, [function](Arg b, Arg a) { return function(std::move(a), std::move(b)); },
          nb::is_operator());
  };
  def("__add__", "__radd__", &add);
  def("__sub__", "__rsub__", &sub);
  def("__mul__", "__rmul__", &mul);
  def("__truediv__", "__rtruediv__", &div);
  def("__floordiv__", "__rfloordiv__", &floor_divide);
  def("__mod__", "__rmod__", &remainder);
  def("__pow__", "__rpow__", &pow);
  def("__matmul__", "__rmatmul__", &matmul);
  def("__eq__", nullptr, &equal);
  def("__ne__", nullptr, &not_equal);
  def("__lt__", nullptr, &less);
  def("__le__", nullptr, &less_equal);
  def("__gt__", nullptr, &greater);
  def("__ge__", nullptr, &greater_equal);
  const auto is_bool = [](const Arg& x) {
    return x.value.defined() && x.value.dtype() == DType::boolean;
  };
  const auto def_bits = [&](const char* name, const char* reflected, Binary logical, Binary bits) {
    const auto either = [=](Arg a, Arg b) {
      return (is_bool(a) || is_bool(b) ? logical : bits)(std::move(a), std::move(b));
    };
    type.def(name, either, nb::is_operator());
    type.def(reflected, either, nb::is_operator());
  };
  def_bits("__and__", "__rand__", &logical_and, &bitwise_and);
  def_bits("__or__", "__ror__", &logical_or, &bitwise_or);
  def_bits("__xor__", "__rxor__", &logical_xor, &bitwise_xor);
  type.def("__neg__", &neg).def("__abs__", &weft::abs);
  type.def("__invert__", [=](Arg x) {
    return is_bool(x) ? logical_not(std::move(x)) : bitwise_not(std::move(x));
  });
  type.def("__hash__", [](nb::handle self) { return reinterpret_cast<intptr_t>(self.ptr()) >> 4; });
}

// Defines a function whose nodes and errors name the line of Python that calls it.
template <class... Args, class... Extra>
void def_at_line(nb::module_& m, const char* name, Tensor (*function)(Args...),
                 const Extra&... extra) {
  m.def(
      name,
      [=](Args... args) {
        const CallSite site(python_line(), name);
        return function(std::forward<Args>(args)...);
      },
      extra...);
}

Category category_named(const std::string& name) {
  if (name == "parameter") return Category::parameter;
  if (name == "optimizer") return Category::optimizer_state;
  if (name == "buffer") return Category::buffer_state;
  throw Error(ErrorKind::usage,
              "[variable] category is 'parameter', 'optimizer' or 'buffer'. Got '{}'.", name);
}

// Takes memory that kernels may write in place. Where it is aligned less, the elements would move
// to other memory at the first assignment, and the owner of this memory would never see them.
void adopt(const Variable& variable, uintptr_t address, nb::object owner) {
  if (address % buffer_alignment != 0)
    throw Error(ErrorKind::usage,
                "[adopt] the memory of {} must be aligned to {} bytes, as a step assigns it. Got "
                "an address that is {} bytes beyond.",
                variable.name(), buffer_alignment, address % buffer_alignment);
  variable.adopt(buffer_over(address, variable.type().bytes(), std::move(owner)));
}
}  // namespace

void bind_tensors(nb::module_& m) {
  auto tensor =
      nb::class_<Tensor>(m, "Tensor", nb::type_slots(buffer_slots),
                         "A value: an array that was computed, or that will be when it is read.");
  def_common(tensor);
  def_operators(tensor);
  tensor.def("__repr__", [](const Tensor& x) { return to_string(evaluated(x)); })
      .def("__dlpack__", &dlpack, nb::kw_only(), "stream"_a = nb::none(),
           "max_version"_a = nb::none(), "dl_device"_a = nb::none(), "copy"_a = nb::none())
      .def("__dlpack_device__", [](const Tensor&) { return std::pair(1, 0); })
      .def("_bytes", &bytes_of)
      .def(
          "eval",
          [](nb::handle self) {
            return evaluated(nb::cast<const Tensor&>(self)), nb::borrow(self);
          },
          "Computes the elements now.");

  auto variable =
      nb::class_<Variable>(m, "Variable", nb::type_slots(buffer_slots),
                           "State that outlives a step: a parameter, a moment, a running mean.");
  variable.def(
      "__init__",
      [](Variable* self, const std::string& name, DType dtype, const Shape& shape,
         const std::string& category) {
        new (self) Variable(name, {dtype, shape}, category_named(category));
      },
      "name"_a, "dtype"_a, "shape"_a, "category"_a = "parameter");
  def_common(variable);
  def_operators(variable);
  variable.def_prop_ro("name", &Variable::name)
      .def_prop_ro("frozen", &Variable::frozen)
      .def("__repr__",
           [](const Variable& x) { return x.name() + " = " + to_string(evaluated(x.value())); })
      .def("freeze", &Variable::freeze, "frozen"_a = true)
      .def("value", &Variable::value,
           "Returns the value at the start of the step, or the one assigned last.")
      .def(
          "assign",
          [](const Variable& self, const Arg& value) {
            const CallSite site(value.where, "assign");
            self.assign(to_value(value, self.value()));
          },
          "value"_a, "Sets the value, from the end of the step on.")
      .def("_adopt", &adopt, "address"_a, "owner"_a)
      .def("_address",
           [](const Variable& self) {
             return reinterpret_cast<uintptr_t>(self.state()->storage->on_host().data);
           })
      .def("_note_write", [](const Variable& self) { self.state()->storage->note_write(); });

  m.def(
      "_from_buffer",
      [](uintptr_t address, DType dtype, const Shape& shape, nb::object owner) {
        const Type type{dtype, shape};
        return from_buffer(buffer_over(address, type.bytes(), std::move(owner)), type);
      },
      "address"_a, "dtype"_a, "shape"_a, "owner"_a);
  // Defines a function without arguments that could say which line of Python calls it.
  const auto def = [&](const char* name, auto function, const auto&... extra) {
    def_at_line(m, name, +function, extra...);
  };
  const nb::arg_v f32 = "dtype"_a = DType::f32, i64 = "dtype"_a = DType::i64;
  def(
      "full",
      [](const Shape& shape, double value, DType dtype) { return full(shape, value, dtype); },
      "shape"_a, "value"_a, f32);
  def("zeros", [](const Shape& shape, DType dtype) { return zeros(shape, dtype); }, "shape"_a, f32);
  def("ones", [](const Shape& shape, DType dtype) { return ones(shape, dtype); }, "shape"_a, f32);
  def("arange", [](int64_t count, DType dtype) { return arange(count, dtype); }, "count"_a, i64);
  def(
      "iota", [](const Shape& shape, int axis, DType dtype) { return iota(shape, axis, dtype); },
      "shape"_a, "axis"_a, i64);
  def("rand", [](const Shape& shape) { return rand(shape); }, "shape"_a);
  def("randn", [](const Shape& shape) { return randn(shape); }, "shape"_a);
  def(
      "randint",
      [](int64_t low, int64_t high, const Shape& shape) { return randint(low, high, shape); },
      "low"_a, "high"_a, "shape"_a);
  def(
      "bernoulli",
      [](double probability, const Shape& shape) { return bernoulli(probability, shape); },
      "probability"_a, "shape"_a);
  def("randperm", [](int64_t count) { return randperm(count); }, "count"_a);
  m.def("manual_seed", &manual_seed, "seed"_a);
}

}  // namespace weft::python
