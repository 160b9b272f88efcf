// Converts arguments between Python and weft.
#include <cstring>

#include "weft/ir/origin.h"

#include "python/src/bind.h"

namespace weft::python {
namespace {
// Returns whether a frame is in the package itself, whose lines tell a user nothing.
bool is_of_package(std::string_view file) {
  static const std::string folder = [] {
    const auto file = nb::cast<std::string>(nb::module_::import_("weft").attr("__file__"));
    return file.substr(0, file.rfind('/') + 1);
  }();
  return file.starts_with(folder);
}

// Returns whether a file is one of Python's own modules, as those of context managers.
bool is_of_python(std::string_view file) {
  static const std::string folder = [] {
    const auto file = nb::cast<std::string>(nb::module_::import_("os").attr("__file__"));
    return file.substr(0, file.rfind('/') + 1);
  }();
  return file.starts_with(folder) && file.find("-packages/") == file.npos;
}

// Returns whether a frame is of torch's or of Python's modules, or of a function that torch has
// generated.
bool is_of_torch(nb::handle frame) {
  const auto file = nb::cast<std::string>(frame.attr("f_code").attr("co_filename"));
  if (is_of_python(file) || file.find(":codegen(") != file.npos) return true;
  const nb::object module = frame.attr("f_globals").attr("get")("__name__");
  if (!nb::isinstance<nb::str>(module)) return file.starts_with("<");
  const auto name = nb::cast<std::string>(module);
  return name == "torch" || name.starts_with("torch.") || file.starts_with("<eval_with_key>");
}

// Returns the line of the innermost frame outside of the package that `is_shown` accepts.
template <class Predicate>
UserLocation line_of(Predicate&& is_shown) {
  PyFrameObject* here = PyEval_GetFrame();  // borrowed
  if (here == nullptr) return {"", 0};
  auto frame = nb::borrow(reinterpret_cast<PyObject*>(here));
  while (!frame.is_none()) {
    const auto file = nb::cast<std::string>(frame.attr("f_code").attr("co_filename"));
    if (!is_of_package(file) && is_shown(frame))
      return {interned(file).c_str(), nb::cast<unsigned>(frame.attr("f_lineno"))};
    frame = frame.attr("f_back");
  }
  return {"", 0};
}

struct Drop {
  void operator()(void* held) const {
    if (!Py_IsInitialized()) return;
    const nb::gil_scoped_acquire gil;
    Py_DECREF(static_cast<PyObject*>(held));
  }
};
}  // namespace

UserLocation python_line() {
  return line_of([](nb::handle) { return true; });
}
UserLocation program_line() {
  return line_of([](nb::handle frame) { return !is_of_torch(frame); });
}

std::optional<Arg> to_arg(nb::handle value) try {
  if (nb::isinstance<Tensor>(value)) return Arg(nb::cast<Tensor>(value), python_line());
  if (nb::isinstance<Variable>(value)) return Arg(nb::cast<Variable>(value).value(), python_line());
  if (PyBool_Check(value.ptr()) || PyLong_Check(value.ptr()))
    return Arg(nb::cast<int64_t>(nb::int_(value)), python_line());
  if (PyFloat_Check(value.ptr())) return Arg(nb::cast<double>(value), python_line());
  if (!nb::hasattr(value, "__array__") && !nb::hasattr(value, "__dlpack__")) return {};
  return Arg(nb::cast<Tensor>(nb::module_::import_("weft").attr("asarray")(value)), python_line());
} catch (nb::python_error& error) {
  error.discard_as_unraisable("an argument of weft");
  return {};
} catch (const std::exception&) {  // an integer beyond 64 bits
  return {};
}

std::vector<Tensor> values_of(const std::vector<Arg>& args) {
  std::vector<Tensor> values;
  values.reserve(args.size());
  for (const Arg& arg : args) values.push_back(arg.value);
  return values;
}
Tensor or_empty(const std::optional<Arg>& value) { return value ? value->value : Tensor(); }

std::shared_ptr<void> keep(nb::object object) { return {object.release().ptr(), Drop()}; }
bool is_kept(const std::shared_ptr<void>& owner) {
  return std::get_deleter<Drop>(owner) != nullptr;
}
}  // namespace weft::python

namespace nanobind::detail {

bool type_caster<weft::Dims>::from_python(handle from, uint8_t, cleanup_list*) noexcept {
  weft::Dims dims;
  if (PyLong_Check(from.ptr())) {
    const long long one = PyLong_AsLongLong(from.ptr());
    if (one == -1 && PyErr_Occurred() != nullptr) return PyErr_Clear(), false;
    value = weft::Dims{one};
    return true;
  }
  if (!PySequence_Check(from.ptr()) || PyUnicode_Check(from.ptr())) return false;
  const Py_ssize_t size = PySequence_Size(from.ptr());
  if (size < 0 || size > weft::max_rank) return PyErr_Clear(), false;
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyObject* item = PySequence_GetItem(from.ptr(), i);
    PyObject* number = item == nullptr ? nullptr : PyNumber_Index(item);
    const long long one = number == nullptr ? -1 : PyLong_AsLongLong(number);
    Py_XDECREF(number);
    Py_XDECREF(item);
    if (one == -1 && PyErr_Occurred() != nullptr) return PyErr_Clear(), false;
    dims.push_back(one);
  }
  value = dims;
  return true;
}

handle type_caster<weft::Dims>::from_cpp(const weft::Dims& dims, rv_policy,
                                         cleanup_list*) noexcept {
  PyObject* tuple = PyTuple_New(dims.size());
  if (tuple == nullptr) return {};
  for (int i = 0; i < dims.size(); ++i) PyTuple_SetItem(tuple, i, PyLong_FromLongLong(dims[i]));
  return tuple;
}

// Takes weft's names ("f32") and all that NumPy takes for a dtype, which weft._dtypes knows.
bool type_caster<weft::DType>::from_python(handle from, uint8_t, cleanup_list*) noexcept try {
  value = weft::parse_dtype(
      nanobind::cast<std::string>(module_::import_("weft._dtypes").attr("name_of")(from)));
  return true;
} catch (python_error& error) {
  error.restore();
  PyErr_Clear();
  return false;
} catch (const std::exception&) {
  return false;
}

handle type_caster<weft::DType>::from_cpp(weft::DType dtype, rv_policy, cleanup_list*) noexcept {
  const std::string_view name = weft::name(dtype);
  return PyUnicode_FromStringAndSize(name.data(), static_cast<Py_ssize_t>(name.size()));
}

}  // namespace nanobind::detail
