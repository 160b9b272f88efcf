"""Rules of softmax and of the norms, with the statistics that their gradients read."""

from ..rules import axis, cast, full, product, rank, rule, torch, w
from .movement import is_empty, zeros

aten = torch.ops.aten


def wide(dtype):
    """Returns the type in which torch computes norms: float32 for the half types."""
    return "f32" if dtype in ("f16", "bf16") else dtype


# ---- softmax
def along(function, x, dim):
    """Applies a function along an axis; a scalar has one for torch."""
    if rank(x) == 0:
        return w.reshape(function(w.reshape(x, [1]), 0), [])
    return function(x, axis(dim, rank(x)))


@rule(aten._softmax.default)
def softmax(call, x, dim, half_to_float):
    if is_empty(call.shape):
        return full(call, 0)
    return along(w.softmax, cast(x, call.dtype), dim)


@rule(aten._log_softmax.default)
def log_softmax(call, x, dim, half_to_float):
    if is_empty(call.shape):
        return full(call, 0)
    return along(w.log_softmax, cast(x, call.dtype), dim)


@rule(aten._safe_softmax.default)
def safe_softmax(call, x, dim, dtype=None):
    """A row of -inf alone gives zeros, where softmax gives NaN."""
    if is_empty(call.shape):
        return full(call, 0)

    def function(x, at):
        hidden = w.equal(w.max(x, [at], True), float("-inf"))
        y = w.softmax(x, at)
        return w.select(hidden, w.zeros_like(y), y)

    return along(function, cast(x, call.dtype), dim)


def softmax_gradient(function):
    def lower(call, dy, y, dim, input_dtype):
        if is_empty(call.shape):
            return full(call, 0)
        rows = [axis(dim, rank(y))] if rank(y) else []
        dtype = wide(y.dtype)
        return cast(function(cast(dy, dtype), cast(y, dtype), rows), call.dtype)

    return lower


@rule(aten._softmax_backward_data.default)
@softmax_gradient
def softmax_backward(dy, y, rows):
    share = w.mul(dy, y)
    return w.sub(share, w.mul(y, w.sum(share, rows, True)))


@rule(aten._log_softmax_backward_data.default)
@softmax_gradient
def log_softmax_backward(dy, y, rows):
    return w.sub(dy, w.mul(w.exp(y), w.sum(dy, rows, True)))


# ---- layer norm and RMS norm
def trailing(x, shape):
    return list(range(rank(x) - len(shape), rank(x)))


def statistics(call, x, dims, eps):
    """Returns mean and 1 / deviation of each set, with dims kept."""
    x = cast(x, wide(x.dtype))
    return w.mean(x, dims, True), w.rsqrt(w.add(w.variance(x, dims, True, 0), float(eps)))


def result(call, i, value):
    """Returns a value in the shape and type of one of the results."""
    shape, dtype = call.results[i]
    return cast(w.reshape(value, shape), dtype)


def empty_results(call):
    """Of sets without elements: zeros, and NaN has no part in them."""
    return tuple(None if each is None else zeros(*each) for each in call.results)


def normal_gradient(dy, x_hat, rstd, dims):
    """Returns the gradient of x where x_hat = (x - mean) rstd, and dy is that of x_hat."""
    centred = w.sub(dy, w.mean(dy, dims, True))
    return w.mul(rstd, w.sub(centred, w.mul(x_hat, w.mean(w.mul(dy, x_hat), dims, True))))


@rule(aten.native_layer_norm.default)
def layer_norm(call, x, shape, weight, bias, eps):
    if is_empty(call.results[0][0]) or not shape:
        return empty_results(call)
    count = product(shape)
    flat = [None if each is None else w.reshape(each, [count]) for each in (weight, bias)]
    rows = w.reshape(x, list(x.shape[:rank(x) - len(shape)]) + [count])
    y = w.layer_norm(rows, *flat, float(eps))
    mean, rstd = statistics(call, x, trailing(x, shape), eps)
    return result(call, 0, y), result(call, 1, mean), result(call, 2, rstd)


@rule(aten.native_layer_norm_backward.default)
def layer_norm_backward(call, dy, x, shape, mean, rstd, weight, bias, mask):
    if is_empty(dy.shape):
        return empty_results(call)
    dtype = wide(x.dtype)
    dims, outer = trailing(x, shape), list(range(rank(x) - len(shape)))
    dy, x, mean, rstd = (cast(each, dtype) for each in (dy, x, mean, rstd))
    x_hat = w.mul(w.sub(x, mean), rstd)
    scaled = dy if weight is None else w.mul(dy, cast(weight, dtype))
    made = [None, None, None]
    if mask[0]:
        made[0] = result(call, 0, normal_gradient(scaled, x_hat, rstd, dims))
    if mask[1]:
        made[1] = result(call, 1, w.sum(w.mul(dy, x_hat), outer))
    if mask[2]:
        made[2] = result(call, 2, w.sum(dy, outer))
    return tuple(made)


def least_step(dtype):
    """Returns the eps of rms_norm where none is given."""
    return {"f64": 2.0**-52, "f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}[dtype]


def rms_statistics(x, dims, eps):
    x = cast(x, wide(x.dtype))
    return w.rsqrt(w.add(w.mean(w.square(x), dims, True), float(eps)))


def rms_scaled(x, shape, weight, eps):
    """Returns x / rms(x) weight, and 1 / rms(x)."""
    eps = least_step(wide(x.dtype)) if eps is None else eps
    count = product(shape)
    rows = w.reshape(x, list(x.shape[:rank(x) - len(shape)]) + [count])
    scale = None if weight is None else w.reshape(weight, [count])
    y = w.reshape(w.rms_norm(rows, scale, float(eps)), list(x.shape))
    return y, rms_statistics(x, trailing(x, shape), eps)


@rule(aten.rms_norm.default)
def rms_norm(call, x, shape, weight=None, eps=None):
    if is_empty(call.shape):
        return full(call, 0)
    return cast(rms_scaled(x, shape, weight, eps)[0], call.dtype)


@rule(aten._fused_rms_norm.default)
def fused_rms_norm(call, x, shape, weight, eps):
    if is_empty(call.results[0][0]):
        return empty_results(call)
    y, rstd = rms_scaled(x, shape, weight, eps)
    return result(call, 0, y), result(call, 1, rstd)


@rule(aten._fused_rms_norm_backward.default)
def fused_rms_norm_backward(call, dy, x, shape, rstd, weight, mask):
    if is_empty(dy.shape):
        return empty_results(call)
    dtype = wide(x.dtype)
    dims, outer = trailing(x, shape), list(range(rank(x) - len(shape)))
    dy, x, rstd = (cast(each, dtype) for each in (dy, x, rstd))
    x_hat = w.mul(x, rstd)
    scaled = dy if weight is None else w.mul(dy, cast(weight, dtype))
    made = [None, None]
    if mask[0]:
        share = w.mul(x_hat, w.mean(w.mul(scaled, x_hat), dims, True))
        made[0] = result(call, 0, w.mul(rstd, w.sub(scaled, share)))
    if mask[1]:
        made[1] = result(call, 1, w.sum(w.mul(dy, x_hat), outer))
    return tuple(made)


# ---- group norm
@rule(aten.native_group_norm.default)
def group_norm(call, x, weight, bias, n, channels, pixels, groups, eps):
    if is_empty(call.results[0][0]):
        return empty_results(call)
    sets = w.reshape(x, [n, groups, channels // groups * pixels])
    mean, rstd = statistics(call, sets, [2], eps)
    y = w.group_norm(w.reshape(x, [n, channels, pixels]), groups, weight, bias, float(eps))
    return result(call, 0, y), result(call, 1, mean), result(call, 2, rstd)


@rule(aten.native_group_norm_backward.default)
def group_norm_backward(call, dy, x, mean, rstd, weight, n, channels, pixels, groups, mask):
    if is_empty(dy.shape):
        return empty_results(call)
    dtype, each = wide(x.dtype), channels // groups
    dy, x = (w.reshape(cast(v, dtype), [n, groups, each, pixels]) for v in (dy, x))
    mean, rstd = (w.reshape(cast(v, dtype), [n, groups, 1, 1]) for v in (mean, rstd))
    x_hat = w.mul(w.sub(x, mean), rstd)
    scaled = dy
    if weight is not None:
        scaled = w.mul(dy, w.reshape(cast(weight, dtype), [1, groups, each, 1]))
    made = [None, None, None]
    if mask[0]:
        made[0] = result(call, 0, normal_gradient(scaled, x_hat, rstd, [2, 3]))
    if mask[1]:
        made[1] = result(call, 1, w.sum(w.mul(dy, x_hat), [0, 3]))
    if mask[2]:
        made[2] = result(call, 2, w.sum(dy, [0, 3]))
    return tuple(made)


# ---- batch norm
def per_channel(vector, x, dtype):
    return w.reshape(cast(vector, dtype), [1, -1] + [1] * (rank(x) - 2))


def trained(x, weight, bias, eps):
    """Returns y, mean, 1 / deviation and variance of a batch."""
    y, mean, variance = w.batch_norm_train(x, weight, bias, float(eps))
    return y, mean, w.rsqrt(w.add(variance, float(eps))), variance


def running(old, new, momentum):
    """Returns (1 - momentum) old + momentum new, in the type of the new."""
    return w.add(w.mul(cast(old, new.dtype), 1.0 - momentum), w.mul(new, float(momentum)))


def updated(call, x, running_mean, running_var, mean, variance, momentum):
    """Returns the running statistics, which accumulate the variance of n - 1."""
    count = product(x.shape) // x.shape[1]
    unbiased = w.mul(variance, count / max(count - 1, 1))
    last = len(call.results) - 1
    return (result(call, last - 1, running(running_mean, mean, momentum)),
            result(call, last, running(running_var, unbiased, momentum)))


def evaluated(call, x, weight, bias, running_mean, running_var, eps):
    """Normalizes by the running statistics; returns y, and the other results as torch has them.

    torch returns the statistics of a batch here, which no gradient reads, without elements.
    """
    y = w.batch_norm_eval(x, running_mean, running_var, weight, bias, float(eps))
    return [cast(y, call.results[0][1])] + [zeros(*each) for each in call.results[1:]]


@rule(aten._native_batch_norm_legit_functional.default)
def batch_norm_functional(
    call, x, weight, bias, running_mean, running_var, training, momentum, eps
):
    if is_empty(x.shape) or not training:
        made = empty_results(call)
        if not is_empty(x.shape):
            made = evaluated(call, x, weight, bias, running_mean, running_var, eps)
        return *made[:3], result(call, 3, running_mean), result(call, 4, running_var)
    y, mean, rstd, variance = trained(x, weight, bias, eps)
    return (result(call, 0, y), result(call, 1, mean), result(call, 2, rstd),
            *updated(call, x, running_mean, running_var, mean, variance, momentum))


@rule(aten._batch_norm_with_update_functional.default)
def batch_norm_with_update(call, x, weight, bias, running_mean, running_var, momentum, eps):
    if is_empty(x.shape):
        made = empty_results(call)[:4]
        return *made, result(call, 4, running_mean), result(call, 5, running_var)
    y, mean, rstd, variance = trained(x, weight, bias, eps)
    return (result(call, 0, y), result(call, 1, mean), result(call, 2, rstd),
            zeros(*call.results[3]),
            *updated(call, x, running_mean, running_var, mean, variance, momentum))


@rule(aten._batch_norm_no_update.default)
def batch_norm_no_update(call, x, weight, bias, running_mean, running_var, momentum, eps):
    if is_empty(x.shape):
        return empty_results(call)
    if running_mean is not None:
        return tuple(evaluated(call, x, weight, bias, running_mean, running_var, eps))
    y, mean, rstd, _ = trained(x, weight, bias, eps)
    return (result(call, 0, y), result(call, 1, mean), result(call, 2, rstd),
            zeros(*call.results[3]))


@rule(aten._native_batch_norm_legit.no_stats)
def batch_norm_no_stats(call, x, weight, bias, training, momentum, eps):
    if is_empty(x.shape):
        return empty_results(call)
    y, mean, rstd, _ = trained(x, weight, bias, eps)
    return result(call, 0, y), result(call, 1, mean), result(call, 2, rstd)


@rule(aten._native_batch_norm_legit_no_training.default)
def batch_norm_no_training(call, x, weight, bias, running_mean, running_var, momentum, eps):
    if is_empty(x.shape):
        return empty_results(call)
    return tuple(evaluated(call, x, weight, bias, running_mean, running_var, eps))


@rule(aten.native_batch_norm_backward.default)
def native_batch_norm_backward(
    call, dy, x, weight, running_mean, running_var, mean, rstd, train, eps, mask
):
    if is_empty(dy.shape):
        return empty_results(call)
    dtype = wide(x.dtype)
    if not train:
        mean = running_mean
        rstd = w.rsqrt(w.add(cast(running_var, dtype), float(eps)))
    dims = [0] + list(range(2, rank(x)))
    dy, x, mean, rstd = (
        cast(dy, dtype), cast(x, dtype), per_channel(mean, x, dtype), per_channel(rstd, x, dtype)
    )
    x_hat = w.mul(w.sub(x, mean), rstd)
    scaled = dy if weight is None else w.mul(dy, per_channel(weight, x, dtype))
    made = [None, None, None]
    if mask[0]:
        dx = normal_gradient(scaled, x_hat, rstd, dims) if train else w.mul(scaled, rstd)
        made[0] = result(call, 0, dx)
    if mask[1]:
        made[1] = result(call, 1, w.sum(w.mul(dy, x_hat), dims))
    if mask[2]:
        made[2] = result(call, 2, w.sum(dy, dims))
    return tuple(made)


@rule(aten.batch_norm_backward.default)
def batch_norm_backward(
    call, dy, x, weight, running_mean, running_var, mean, rstd, update, eps, mask, reserve
):
    return native_batch_norm_backward(
        call, dy, x, weight, running_mean, running_var, mean, rstd, update, eps, mask
    )
