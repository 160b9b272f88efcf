// Elementwise operations, reductions, and what is composed of them.
#include "python/src/bind.h"

namespace weft::python {
namespace {
using Unary = Tensor (*)(Arg);
using Binary = Tensor (*)(Arg, Arg);

template <class Function>
struct Named {
  const char* name;
  Function function;
};
constexpr Named<Unary> unary[] = {
    {"neg", &neg},
    {"abs", &weft::abs},
    {"sign", &sign},
    {"exp", &weft::exp},
    {"exp2", &weft::exp2},
    {"expm1", &weft::expm1},
    {"log", &weft::log},
    {"log2", &weft::log2},
    {"log10", &weft::log10},
    {"log1p", &weft::log1p},
    {"sqrt", &weft::sqrt},
    {"rsqrt", &rsqrt},
    {"cbrt", &weft::cbrt},
    {"sin", &weft::sin},
    {"cos", &weft::cos},
    {"tan", &weft::tan},
    {"asin", &weft::asin},
    {"acos", &weft::acos},
    {"atan", &weft::atan},
    {"sinh", &weft::sinh},
    {"cosh", &weft::cosh},
    {"tanh", &weft::tanh},
    {"asinh", &weft::asinh},
    {"acosh", &weft::acosh},
    {"atanh", &weft::atanh},
    {"erf", &weft::erf},
    {"erfc", &weft::erfc},
    {"floor", &weft::floor},
    {"ceil", &weft::ceil},
    {"round", &weft::round},
    {"trunc", &weft::trunc},
    {"reciprocal", &reciprocal},
    {"square", &square},
    {"logical_not", &logical_not},
    {"bitwise_not", &bitwise_not},
    {"is_nan", &is_nan},
    {"is_finite", &is_finite},
    {"stop_gradient", &stop_gradient},
    {"zeros_like", &zeros_like},
    {"ones_like", &ones_like},
    {"relu", &relu},
    {"relu6", &relu6},
    {"selu", &selu},
    {"sigmoid", &sigmoid},
    {"log_sigmoid", &log_sigmoid},
    {"softplus", &softplus},
    {"silu", &silu},
    {"mish", &mish},
    {"hardswish", &hardswish},
    {"hardsigmoid", &hardsigmoid},
    {"softsign", &softsign},
    {"gelu", &gelu},
    {"gelu_tanh", &gelu_tanh},
};

constexpr Named<Binary> binary[] = {
    {"add", &add},
    {"sub", &sub},
    {"mul", &mul},
    {"div", &weft::div},
    {"pow", &weft::pow},
    {"maximum", &maximum},
    {"minimum", &minimum},
    {"remainder", &weft::remainder},
    {"floor_divide", &floor_divide},
    {"atan2", &weft::atan2},
    {"logaddexp", &logaddexp},
    {"equal", &equal},
    {"not_equal", &not_equal},
    {"less", &less},
    {"less_equal", &less_equal},
    {"greater", &greater},
    {"greater_equal", &greater_equal},
    {"logical_and", &logical_and},
    {"logical_or", &logical_or},
    {"logical_xor", &logical_xor},
    {"bitwise_and", &bitwise_and},
    {"bitwise_or", &bitwise_or},
    {"bitwise_xor", &bitwise_xor},
    {"shift_left", &shift_left},
    {"shift_right", &shift_right},
};

// One argument may be given by NumPy's or by PyTorch's name, not by both.
template <class T>
T either(const char* operation, const char* numpy, const T& a, const char* torch, const T& b,
         const T& none) {
  if (a != none && b != none)
    throw nb::type_error(
        fmt::format("{}() takes {} or {}, not both", operation, numpy, torch).c_str());
  return a != none ? a : b;
}

using Axes = std::optional<Dims>;
template <class Function>
void def_reduction(nb::module_& m, const char* name, Function function) {
  def_operation(
      m, name,
      [name, function](const Arg& x, const Axes& axis, bool keepdims, const Axes& dim,
                       bool keepdim) {
        const Axes axes = either<Axes>(name, "axis", axis, "dim", dim, {});
        // weft reduces all axes where none is named, NumPy none for axis=().
        if (axes && axes->empty()) return x.value;
        return function(x, ReduceOptions{.axes = axes.value_or(Dims()),
                                         .keepdim = either(name, "keepdims", keepdims, "keepdim",
                                                           keepdim, false)});
      },
      "axis"_a = nb::none(), "keepdims"_a = false, nb::kw_only(), "dim"_a = nb::none(),
      "keepdim"_a = false);
}

void bind_reductions(nb::module_& m) {
  using Reduction = Tensor (*)(Arg, ReduceOptions);
  def_reduction(m, "sum", Reduction(&sum));
  def_reduction(m, "mean", Reduction(&mean));
  def_reduction(m, "prod", Reduction(&prod));
  def_reduction(m, "max", Reduction(&weft::max));
  def_reduction(m, "min", Reduction(&weft::min));
  def_reduction(m, "any", Reduction(&any));
  def_reduction(m, "all", Reduction(&all));
  def_reduction(m, "logsumexp", Reduction(&logsumexp));
  const auto with_correction = [&](const char* name, auto function) {
    def_operation(
        m, name,
        [name, function](const Arg& x, const Axes& axis, bool keepdims, double correction,
                         const Axes& dim, bool keepdim) {
          return function(
              x,
              ReduceOptions{
                  .axes = either<Axes>(name, "axis", axis, "dim", dim, {}).value_or(Dims()),
                  .keepdim = either(name, "keepdims", keepdims, "keepdim", keepdim, false)},
              correction);
        },
        "axis"_a = nb::none(), "keepdims"_a = false, "correction"_a = 1, nb::kw_only(),
        "dim"_a = nb::none(), "keepdim"_a = false);
  };
  using Corrected = Tensor (*)(Arg, ReduceOptions, double);
  with_correction("variance", Corrected(&variance));
  with_correction("stddev", Corrected(&stddev));
  def_operation(
      m, "norm",
      [](const Arg& x, const Axes& axis, bool keepdims, double order) {
        return norm(x, ReduceOptions{.axes = axis.value_or(Dims()), .keepdim = keepdims}, order);
      },
      "axis"_a = nb::none(), "keepdims"_a = false, "order"_a = 2);
  def_operation(m, "argmax", &argmax, "axis"_a = nb::none(), "keepdims"_a = false);
  def_operation(m, "argmin", &argmin, "axis"_a = nb::none(), "keepdims"_a = false);
  def_operation(m, "cumsum", &cumsum, "axis"_a);
}
}  // namespace

void bind_elementwise(nb::module_& m) {
  for (const auto& [name, function] : unary) def_operation(m, name, function);
  for (const auto& [name, function] : binary) def_operation(m, name, function, "y"_a);
  def_operation(m, "cast", &cast, "dtype"_a);
  def_operation(m, "bitcast", &bitcast, "dtype"_a);
  def_operation(m, "clamp", &clamp, "low"_a, "high"_a);
  m.def("select", &weft::select, "condition"_a, "x"_a, "y"_a);
  m.def("where", &weft::select, "condition"_a, "x"_a, "y"_a);
  def_operation(m, "leaky_relu", &leaky_relu, "slope"_a = 0.01);
  def_operation(m, "elu", &elu, "alpha"_a = 1);
  def_operation(m, "celu", &celu, "alpha"_a = 1);
  def_operation(m, "hardtanh", &hardtanh, "low"_a = -1, "high"_a = 1);
  def_operation(m, "glu", &glu, "axis"_a = -1);
  bind_reductions(m);
}

}  // namespace weft::python
