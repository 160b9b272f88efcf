// Tensors and variables of one element as Python's own numbers.
#include <cstring>

#include "weft/ir/origin.h"

#include "python/src/bind.h"

namespace weft::python {
namespace {
nb::object checked(PyObject* made) {
  if (made == nullptr) throw nb::python_error();
  return nb::steal(made);
}

// Returns the element as a bool, an int or a float of Python, each of which holds it exactly.
nb::object number_of(const Arg& x) {
  check_process();
  const DType dtype = x.value.dtype();
  double rounded;
  {
    const CallSite site(x.where, "item");
    const nb::gil_scoped_release released;
    rounded = x.value.item();
  }
  if (is_float(dtype)) return nb::float_(rounded);
  if (dtype == DType::boolean) return nb::bool_(rounded != 0);
  int64_t exact = static_cast<int64_t>(rounded);
  if (dtype == DType::i64) std::memcpy(&exact, x.value->data(), sizeof exact);
  return nb::int_(exact);
}

nb::object index_of(const Arg& x) {
  const DType dtype = x.value.dtype();
  if (is_float(dtype) || dtype == DType::boolean || x.value.elements() != 1)
    throw nb::type_error("only a tensor of one integer is an index");
  return number_of(x);
}

// A tensor without axes is written as its number, as in PyTorch, and a format needs one number.
nb::object format(nb::handle self, const std::string& spec) {
  const Arg x = *to_arg(self);
  const bool is_number = x.value.elements() == 1;
  if (is_number && (x.value.rank() == 0 || !spec.empty()))
    return number_of(x).attr("__format__")(spec);
  if (spec.empty()) return nb::str(self);
  throw nb::type_error(
      fmt::format("a tensor of {} elements has no format '{}'", x.value.elements(), spec).c_str());
}
}  // namespace

void bind_numbers(nb::module_& m) {
  for (const char* type : {"Tensor", "Variable"})
    nb::borrow<nb::class_<Tensor>>(m.attr(type))
        .def("item", &number_of, nb::sig("def item(self) -> float | int | bool"),
             "Returns the only element as a number of Python.")
        .def("__float__",
             [](const Arg& x) {
               return nb::borrow<nb::float_>(checked(PyNumber_Float(number_of(x).ptr())));
             })
        .def("__int__",
             [](const Arg& x) {
               return nb::borrow<nb::int_>(checked(PyNumber_Long(number_of(x).ptr())));
             })
        .def("__index__", [](const Arg& x) { return nb::borrow<nb::int_>(index_of(x)); })
        .def("__bool__", [](const Arg& x) { return nb::bool_(number_of(x)); })
        .def(
            "__format__",
            [](nb::handle self, const std::string& spec) {
              return nb::borrow<nb::str>(format(self, spec));
            },
            "spec"_a);
}

}  // namespace weft::python
