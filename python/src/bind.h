// Declares the parts of the extension module, and how Python's values become those of weft.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "weft/base/numbers/dtype.h"
#include "weft/base/numbers/shape.h"
#include "weft/ir/value.h"
#include "weft/tensor/tensor.h"

namespace weft::python {
namespace nb = nanobind;
using namespace nb::literals;
using Addresses = std::vector<uintptr_t>;

// Returns the line of the Python program that called into the package, which errors and nodes name.
UserLocation python_line();
// The same beyond the frames of torch, through which a compiled model comes here: an error's line.
UserLocation program_line();

// Makes an argument of an operation out of a tensor, a variable, a number, or anything that NumPy
// takes for an array; empty: it is none of them.
std::optional<Arg> to_arg(nb::handle value);
std::vector<Tensor> values_of(const std::vector<Arg>& args);
Tensor or_empty(const std::optional<Arg>& value);  // None is the empty tensor
// Returns an owner of memory that keeps a Python object alive, and may be dropped on any thread.
std::shared_ptr<void> keep(nb::object object);
bool is_kept(const std::shared_ptr<void>& owner);  // whether keep() made it

void bind_errors(nb::module_& m);
void bind_tensors(nb::module_& m);
void bind_numbers(nb::module_& m);
void bind_elementwise(nb::module_& m);
void bind_arrangement(nb::module_& m);
void bind_layers(nb::module_& m);
void bind_steps(nb::module_& m);
void bind_exchange(nb::module_& m);
void bind_export(nb::module_& m);
void bind_planning(nb::module_& m);
void bind_devices(nb::module_& m);
void bind_optimizers(nb::module_& m);
void bind_modules(nb::module_& package);
void bind_files(nb::module_& package);
void bind_data(nb::module_& package);
void bind_tokenizers(nb::module_& m);
void bind_models(nb::module_& package);
void bind_training(nb::module_& package);

// Defines an operation as a function of the module and as a method of tensors and variables, which
// are its first argument.
template <class Function, class... Extra>
void def_operation(nb::module_& m, const char* name, Function function, const Extra&... extra) {
  m.def(name, function, nb::arg("x"), extra...);
  for (const char* type : {"Tensor", "Variable"})
    nb::borrow<nb::class_<Tensor>>(m.attr(type)).def(name, function, extra...);
}

// A child of a process that computed has none of its threads: check_process() throws Error(usage)
// there. note_fork() is called in each child.
void note_fork();
void check_process();

}  // namespace weft::python

namespace nanobind::detail {

template <>
struct type_caster<weft::Arg> {
  static constexpr auto Name = const_name("Tensor | Variable | float | numpy.ndarray");
  template <class T>
  using Cast = movable_cast_t<T>;
  template <class T>
  static constexpr bool can_cast() {
    return true;
  }
  bool from_python(handle from, uint8_t, cleanup_list*) noexcept {
    value = weft::python::to_arg(from);
    return value.has_value();
  }
  explicit operator weft::Arg*() { return &*value; }
  explicit operator weft::Arg&() { return *value; }
  explicit operator weft::Arg&&() { return std::move(*value); }

  std::optional<weft::Arg> value;
};

template <>
struct type_caster<weft::Dims> {
  NB_TYPE_CASTER(weft::Dims, const_name("int | Sequence[int]"))
  bool from_python(handle from, uint8_t, cleanup_list*) noexcept;
  static handle from_cpp(const weft::Dims& dims, rv_policy, cleanup_list*) noexcept;
};

template <>
struct type_caster<weft::DType> {
  NB_TYPE_CASTER(weft::DType, const_name("DTypeLike"))
  bool from_python(handle from, uint8_t, cleanup_list*) noexcept;
  static handle from_cpp(weft::DType dtype, rv_policy, cleanup_list*) noexcept;
};

}  // namespace nanobind::detail
