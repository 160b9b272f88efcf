// Operations that move, gather, scatter and sort elements.
#include "weft/ops/apply.h"

#include "python/src/bind.h"

namespace weft::python {
namespace {
const std::source_location nowhere;  // the line is that of Python, which a CallSite names

Tensor joined(Tensor (*function)(std::span<const Tensor>, int, std::source_location),
              const char* name, const std::vector<Arg>& parts, int axis) {
  const CallSite site(python_line(), name);
  std::vector<Tensor> values;
  for (const Arg& part : parts)
    values.push_back(to_value(part, values.empty() ? Tensor() : values[0]));
  return function(values, axis, nowhere);
}
using Join = Tensor (*)(std::span<const Tensor>, int, std::source_location);
}  // namespace

// As NumPy's and PyTorch's methods do, x.reshape(2, 3) takes what x.reshape((2, 3)) takes.
template <class Function>
void def_spread(nb::module_& m, const char* name, Function function, const char* what) {
  const nb::arg list(what);
  def_operation(m, name, function, list);
  for (const char* type : {"Tensor", "Variable"})
    nb::borrow<nb::class_<Tensor>>(m.attr(type))
        .def(name, [=](const Arg& x, const nb::args& numbers) {
          Dims dims;
          if (!nb::try_cast(numbers, dims))
            throw nb::type_error(
                fmt::format("{}() takes numbers, or a list of them", name).c_str());
          return function(x, dims);
        });
}

void bind_arrangement(nb::module_& m) {
  def_spread(m, "reshape", &reshape, "shape");
  def_spread(m, "permute", &permute, "axes");
  def_operation(m, "transpose", &transpose, "a"_a = -2, "b"_a = -1);
  def_spread(m, "broadcast_to", &broadcast_to, "shape");
  def_operation(m, "slice", &slice, "axis"_a, "start"_a, "stop"_a, "step"_a = 1);
  def_operation(m, "slice_at", &slice_at, "axis"_a, "start"_a, "size"_a);
  def_operation(m, "update_at", &update_at, "axis"_a, "start"_a, "updates"_a);
  def_operation(m, "flip", &flip, "axes"_a);
  def_operation(m, "pad", &pad, "low"_a, "high"_a, "value"_a = 0);
  def_operation(m, "reflect_pad", &reflect_pad, "low"_a, "high"_a);
  def_operation(m, "squeeze", &squeeze, "axis"_a);
  def_operation(m, "unsqueeze", &unsqueeze, "axis"_a);
  def_operation(m, "flatten", &flatten, "first"_a = 0, "last"_a = -1);
  def_operation(m, "tile", &tile, "counts"_a);
  def_operation(m, "repeat", &repeat, "count"_a, "axis"_a);
  def_operation(m, "tril", &tril, "diagonal"_a = 0);
  def_operation(m, "triu", &triu, "diagonal"_a = 0);
  m.def(
      "concat",
      [](const std::vector<Arg>& parts, int axis) {
        return joined(Join(&concat), "concat", parts, axis);
      },
      "parts"_a, "axis"_a = 0);
  m.def(
      "stack",
      [](const std::vector<Arg>& parts, int axis) {
        return joined(Join(&stack), "stack", parts, axis);
      },
      "parts"_a, "axis"_a = 0);
  def_operation(
      m, "split",
      [](const Arg& x, const std::vector<int64_t>& sizes, int axis) {
        return split(x, std::span<const int64_t>(sizes), axis);
      },
      "sizes"_a, "axis"_a);

  def_operation(m, "gather", &gather, "indices"_a, "axis"_a = 0);
  def_operation(m, "scatter_add", &scatter_add, "indices"_a, "updates"_a);
  def_operation(m, "index_put", &index_put, "indices"_a, "updates"_a);
  def_operation(m, "take_along_axis", &take_along_axis, "indices"_a, "axis"_a = -1);
  def_operation(m, "put_along_axis", &put_along_axis, "indices"_a, "values"_a, "axis"_a = -1);
  m.def("embedding", &embedding, "indices"_a, "weight"_a);
  def_operation(m, "one_hot", &one_hot, "classes"_a, "dtype"_a = DType::f32);

  def_operation(m, "argsort", &argsort, "axis"_a = -1, "descending"_a = false);
  def_operation(m, "sort", &sort, "axis"_a = -1, "descending"_a = false);
  def_operation(
      m, "topk",
      [](const Arg& x, int64_t k, int axis, bool largest) {
        TopK found = topk(x, k, axis, largest);
        return std::pair(found.values, found.indices);
      },
      "k"_a, "axis"_a = -1, "largest"_a = true);
}

}  // namespace weft::python
