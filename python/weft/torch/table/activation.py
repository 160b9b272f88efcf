"""Activations and their backward operations."""

from ..rules import gradient, number, rule, torch, w

aten = torch.ops.aten


@rule(aten.relu.default)
def relu(call, x):
    return w.relu(x)


for _name in ("hardsigmoid", "hardswish", "mish", "silu"):
    rule(getattr(aten, _name).default)(lambda call, x, of=getattr(w, _name): of(x))


def gelu_of(x, approximate="none"):
    return w.gelu_tanh(x) if approximate == "tanh" else w.gelu(x)


@rule(aten.gelu.default)
def gelu(call, x, *, approximate="none"):
    return gelu_of(x, approximate)


@rule(aten.gelu_backward.default)
def gelu_backward(call, dy, x, *, approximate="none"):
    return gradient(lambda v: gelu_of(v, approximate), [x], dy)[0]


def backward_of(function):
    return lambda call, dy, x: gradient(function, [x], dy)[0]


rule(aten.silu_backward.default)(backward_of(w.silu))
rule(aten.mish_backward.default)(backward_of(w.mish))


@rule(aten.sigmoid_backward.default)
def sigmoid_backward(call, dy, y):
    return w.mul(dy, w.mul(y, w.sub(1.0, y)))


@rule(aten.tanh_backward.default)
def tanh_backward(call, dy, y):
    return w.mul(dy, w.sub(1.0, w.square(y)))


@rule(aten.threshold_backward.default)
def threshold_backward(call, dy, x, threshold):
    """Passes the gradient where x is NaN, as torch does."""
    return w.select(w.less_equal(x, number(threshold, x.dtype)), w.zeros_like(dy), dy)


@rule(aten.hardtanh_backward.default)
def hardtanh_backward(call, dy, x, low, high):
    inside = w.logical_and(w.greater(x, float(low)), w.less(x, float(high)))
    return w.select(inside, dy, w.zeros_like(dy))


@rule(aten.hardshrink_backward.default, aten.softshrink_backward.default)
def shrink_backward(call, dy, x, threshold):
    return w.select(w.greater(w.abs(x), float(threshold)), dy, w.zeros_like(dy))


@rule(aten.log_sigmoid_forward.default)
def log_sigmoid(call, x):
    """The second result is torch's buffer for the backward operation, which is empty here."""
    return w.log_sigmoid(x), w.zeros(call.results[1][0], call.results[1][1])


@rule(aten.log_sigmoid_backward.default)
def log_sigmoid_backward(call, dy, x, buffer):
    return gradient(w.log_sigmoid, [x], dy)[0]


@rule(aten.softplus.default)
def softplus(call, x, beta=1, threshold=20):
    scaled_x = w.mul(x, float(beta))
    curve = w.div(w.softplus(scaled_x), float(beta))
    return w.select(w.greater(scaled_x, float(threshold)), x, curve)


@rule(aten.softplus_backward.default)
def softplus_backward(call, dy, x, beta, threshold):
    scaled_x = w.mul(x, float(beta))
    is_linear = w.greater(scaled_x, float(threshold))
    return w.select(is_linear, dy, w.mul(dy, w.sigmoid(scaled_x)))


@rule(aten.leaky_relu.default)
def leaky_relu(call, x, slope=0.01):
    return w.select(w.greater(x, 0.0), x, w.mul(x, float(slope)))


@rule(aten.leaky_relu_backward.default)
def leaky_relu_backward(call, dy, x, slope, self_is_result):
    """The result of leaky_relu may stand for x: it has the same sign."""
    return w.select(w.greater(x, 0.0), dy, w.mul(dy, float(slope)))


@rule(aten._prelu_kernel.default)
def prelu(call, x, slope):
    return w.select(w.greater(x, 0.0), x, w.mul(x, slope))


@rule(aten._prelu_kernel_backward.default)
def prelu_backward(call, dy, x, slope):
    is_positive = w.greater(x, 0.0)
    dslope = w.select(is_positive, w.zeros_like(x), w.mul(dy, x))
    return w.select(is_positive, dy, w.mul(dy, slope)), dslope


@rule(aten.elu.default)
def elu(call, x, alpha=1.0, scale=1.0, input_scale=1.0):
    below = w.mul(w.expm1(w.mul(x, float(input_scale))), float(alpha * scale))
    return w.select(w.greater(x, 0.0), w.mul(x, float(scale)), below)


@rule(aten.elu_backward.default)
def elu_backward(call, dy, alpha, scale, input_scale, is_result, x):
    """Takes the result of elu, or its argument, as x."""
    if is_result:
        slope = w.mul(w.add(x, float(alpha * scale)), float(input_scale))
    else:
        slope = w.mul(w.exp(w.mul(x, float(input_scale))), float(alpha * scale * input_scale))
    return w.mul(dy, w.select(w.greater(x, 0.0), float(scale), slope))
