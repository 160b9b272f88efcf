// Defines the activations. An activation is a composite with a gradient rule where that gives a
// cheaper or safer derivative than its expression; the others are plain expressions.
#include <cmath>
#include <numbers>

#include "weft/ops/apply.h"
#include "weft/ops/wide.h"

namespace weft {
namespace {
constexpr double sqrt_half = 1 / std::numbers::sqrt2;
constexpr double inv_sqrt_two_pi = std::numbers::inv_sqrtpi * sqrt_half;
const double gelu_scale = std::sqrt(2 / std::numbers::pi);
constexpr double gelu_cubic = 0.044715;

void check_float(const Tensor& x, std::string_view op) {
  WEFT_CHECK(is_float(x.dtype()),
             "[{}] needs a floating point tensor. Got {}. Hint: cast it first.", op,
             name(x.dtype()));
}

Tensor activation(const OpDef& def, const Arg& x) {
  CallSite here(x.where, def.name);
  Tensor value = to_value(x, {});
  check_float(value, def.name);
  return make_node(def, {value});
}

// Wide holds the one input of a gradient rule and the gradient of the result, in float32 at least.
struct Wide {
  Tensor x, dy;
  Wide(const Tensor& y, const Tensor& gradient)
      : x(widen(y->inputs[0])), dy(widen(gradient)), dtype_(y.dtype()) {}
  Gradients result(const Tensor& dx) const { return {narrow_to(dx, dtype_)}; }

 private:
  DType dtype_;
};

// ---- closed forms, in the dtype of x
// Gradient rules call sigmoid(), as the derivative of this is inf / inf far below 0.
Tensor sigmoid_of(const Tensor& x) { return 1.0 / (1.0 + exp(-x)); }
// normal_cdf is Phi(x) of the standard normal distribution, normal_density its density.
Tensor normal_cdf(const Tensor& x) { return 0.5 * (1.0 + erf(x * sqrt_half)); }
Tensor normal_density(const Tensor& x) { return inv_sqrt_two_pi * exp(-0.5 * square(x)); }
Tensor gelu_inner(const Tensor& x) { return tanh(gelu_scale * (x + gelu_cubic * (x * square(x)))); }

double sigmoid_oracle(double x) { return 1 / (1 + std::exp(-x)); }

const OpDef& relu_def = define({
    .name = "relu",
    .doc = "max(x, 0); its derivative at 0 is 0",
    .infer = same_type,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      return {select(y > 0, dy, 0.0)};
    },
    .decompose = [](const Node& node) { return maximum(node.inputs[0], 0); },
    .oracle = [](double x, double, double) { return x > 0 || std::isnan(x) ? x : 0; },
    .test = {.integers = true},
});

const OpDef& sigmoid_def = define({
    .name = "sigmoid",
    .doc = "1 / (1 + exp(-x))",
    .infer = same_type,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      Wide wide(y, dy);
      Tensor s = widen(y);
      return wide.result(wide.dy * s * (1.0 - s));
    },
    .decompose =
        [](const Node& node) {
          return narrow_to(sigmoid_of(widen(node.inputs[0])), node.type.dtype);
        },
    .oracle = [](double x, double, double) { return sigmoid_oracle(x); },
    .test = {.low = -20, .high = 20},
});

const OpDef& softplus_def = define({
    .name = "softplus",
    .doc = "log(1 + exp(x)), without overflow",
    .infer = same_type,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      Wide wide(y, dy);
      return wide.result(wide.dy * sigmoid(wide.x));
    },
    .decompose =
        [](const Node& node) {
          Tensor x = widen(node.inputs[0]);
          return narrow_to(maximum(x, 0) + log1p(exp(-abs(x))), node.type.dtype);
        },
    .oracle = [](double x, double,
                 double) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); },
    .test = {.low = -20, .high = 20},
});

const OpDef& silu_def = define({
    .name = "silu",
    .doc = "x * sigmoid(x)",
    .infer = same_type,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      Wide wide(y, dy);
      Tensor s = sigmoid(wide.x);
      return wide.result(wide.dy * (s * (1.0 + wide.x * (1.0 - s))));
    },
    .decompose =
        [](const Node& node) {
          Tensor x = widen(node.inputs[0]);
          return narrow_to(x * sigmoid_of(x), node.type.dtype);
        },
    .oracle = [](double x, double, double) { return x * sigmoid_oracle(x); },
    .test = {.low = -20, .high = 20},
});

const OpDef& gelu_def = define({
    .name = "gelu",
    .doc = "x * Phi(x), Phi the normal distribution (Hendrycks and Gimpel 2016)",
    .infer = same_type,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      Wide wide(y, dy);
      return wide.result(wide.dy * (normal_cdf(wide.x) + wide.x * normal_density(wide.x)));
    },
    .decompose =
        [](const Node& node) {
          Tensor x = widen(node.inputs[0]);
          return narrow_to(x * normal_cdf(x), node.type.dtype);
        },
    .oracle = [](double x, double, double) { return x * 0.5 * (1 + std::erf(x / std::sqrt(2.0))); },
    .test = {.low = -4, .high = 4},
});

// Computes dy times gelu_tanh'(x); as a composite it can be the epilogue of a matrix product.
const OpDef& gelu_tanh_gradient_def = define({
    .name = "gelu_tanh_gradient",
    .arity = 2,
    .doc = "of x and dy: dy times the derivative of gelu_tanh at x",
    .infer = same_type,
    .decompose =
        [](const Node& node) {
          const Tensor x = widen(node.inputs[0]), dy = widen(node.inputs[1]);
          const Tensor t = gelu_inner(x);
          const Tensor inner_slope = gelu_scale * (1.0 + (3 * gelu_cubic) * square(x));
          const Tensor slope = 0.5 * (1.0 + t) + 0.5 * x * ((1.0 - square(t)) * inner_slope);
          return narrow_to(dy * slope, node.type.dtype);
        },
    .oracle =
        [](double x, double dy, double) {
          const double t = std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
          const double inner_slope = std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
          return dy * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner_slope);
        },
    .test = {.low = -4, .high = 4},
});

const OpDef& gelu_tanh_def = define({
    .name = "gelu_tanh",
    .doc = "0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))",
    .infer = same_type,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      return {make_node(gelu_tanh_gradient_def, {y->inputs[0], dy})};
    },
    .decompose =
        [](const Node& node) {
          Tensor x = widen(node.inputs[0]);
          return narrow_to(0.5 * x * (1.0 + gelu_inner(x)), node.type.dtype);
        },
    .oracle =
        [](double x, double, double) {
          return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
        },
    .test = {.low = -4, .high = 4},
});

// Returns clamp(x), whose derivative is 0 at the bounds.
Tensor within(const Tensor& x, double low, double high) {
  const auto bound = [&](double value) { return full(x.shape(), value, x.dtype()); };
  return make_node(op("clamp"), {x, bound(low), bound(high)}, {{"open", int64_t{1}}});
}
// Returns min(x, 0), through which the whole gradient passes at 0. It keeps exp finite on the side
// that is not taken, so that its gradient is not NaN.
Tensor not_positive(const Tensor& x) { return select(x > 0, 0.0, x); }

// Evaluates an expression of one value in float32 at least.
template <class F>
Tensor expression(const Arg& x, std::string_view op, F&& body) {
  CallSite here(x.where, op);
  Tensor value = to_value(x, {});
  check_float(value, op);
  return in_wide(value, body);
}
}  // namespace

Tensor relu(Arg x) {
  CallSite here(x.where);
  Tensor value = to_value(x, {});
  WEFT_CHECK(value.dtype() != DType::boolean, "[relu] needs numbers. Got bool.");
  return make_node(relu_def, {value});
}
Tensor sigmoid(Arg x) { return activation(sigmoid_def, x); }
Tensor softplus(Arg x) { return activation(softplus_def, x); }
Tensor silu(Arg x) { return activation(silu_def, x); }
Tensor gelu(Arg x) { return activation(gelu_def, x); }
Tensor gelu_tanh(Arg x) { return activation(gelu_tanh_def, x); }

Tensor relu6(Arg x) {
  return expression(x, "relu6", [](const Tensor& v) { return within(v, 0, 6); });
}
Tensor leaky_relu(Arg x, double slope) {
  return expression(x, "leaky_relu", [&](const Tensor& v) { return select(v > 0, v, slope * v); });
}
Tensor elu(Arg x, double alpha) {
  return expression(
      x, "elu", [&](const Tensor& v) { return select(v > 0, v, alpha * expm1(not_positive(v))); });
}
Tensor selu(Arg x) {  // Klambauer et al. 2017
  constexpr double alpha = 1.6732632423543772848170429916717,
                   scale = 1.0507009873554804934193349852946;
  return expression(x, "selu", [&](const Tensor& v) { return scale * elu(v, alpha); });
}
Tensor celu(Arg x, double alpha) {  // Barron 2017
  CallSite here(x.where);
  WEFT_CHECK(alpha != 0, "[celu] alpha must not be 0.");
  return expression(x, "celu", [&](const Tensor& v) {
    return select(v > 0, v, alpha * expm1(not_positive(v) / alpha));
  });
}
Tensor log_sigmoid(Arg x) {
  return expression(x, "log_sigmoid", [](const Tensor& v) { return -softplus(-v); });
}
Tensor mish(Arg x) {  // Misra 2019
  return expression(x, "mish", [](const Tensor& v) { return v * tanh(softplus(v)); });
}
Tensor hardsigmoid(Arg x) {
  return expression(x, "hardsigmoid",
                    [](const Tensor& v) { return within(v + 3, 0, 6) * (1.0 / 6); });
}
Tensor hardswish(Arg x) {
  return expression(x, "hardswish",
                    [](const Tensor& v) { return v * (within(v + 3, 0, 6) * (1.0 / 6)); });
}
Tensor hardtanh(Arg x, double low, double high) {
  return expression(x, "hardtanh", [&](const Tensor& v) { return within(v, low, high); });
}
Tensor softsign(Arg x) {
  return expression(x, "softsign", [](const Tensor& v) { return v / (1.0 + abs(v)); });
}
Tensor glu(Arg x, int axis) {  // Dauphin et al. 2016
  CallSite here(x.where);
  Tensor value = to_value(x, {});
  check_float(value, "glu");
  int at = normalize_axis(axis, value.rank(), "glu");
  int64_t extent = value.dim(at);
  WEFT_CHECK(extent % 2 == 0, "[glu] halves axis {}, whose extent must be even. Got {}.", at,
             extent);
  Tensor gate = slice(value, at, extent / 2, extent);
  return narrow_to(widen(slice(value, at, 0, extent / 2)) * sigmoid(widen(gate)), value.dtype());
}
}  // namespace weft
