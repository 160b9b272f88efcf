"""Rules of products: matrices, convolutions, distances and weight norm."""

import numpy as np

from ..rules import (
    Unsupported, axis, cast, every, full, gradient, math, number, rank, rule, torch, w,
)
from .movement import constant, inserted, is_empty, slice_of, zeros

aten = torch.ops.aten


# ---- matrices
def check_factors(a, b):
    """Refuses what torch's traces promote, and its kernels refuse."""
    if a.dtype != b.dtype:
        raise Unsupported(f"factors of different types: {a.dtype} and {b.dtype}")


def matmul(call, a, b):
    """Multiplies in the type of the result; integers come back wider, and wrap as in torch."""
    check_factors(a, b)
    return cast(w.matmul(cast(a, call.dtype), cast(b, call.dtype)), call.dtype)


@rule(
    aten.mm.default, aten.bmm.default, aten.matmul.default, aten.mv.default, aten.dot.default,
    aten.vdot.default,
)
def product_of(call, a, b):
    return matmul(call, a, b)


@rule(aten.mm.dtype, aten.bmm.dtype)
def product_in(call, a, b, dtype):
    return matmul(call, a, b)


@rule(aten._int_mm.default)
def int_mm(call, a, b):
    return w.matmul(cast(a, call.dtype), cast(b, call.dtype))  # sums of i8 would be i8


@rule(aten.linear.default)
def linear(call, x, weight, bias=None):
    check_factors(x, weight)
    return w.linear(x, weight, bias)


def scaled(x, factor, dtype):
    return x if factor == 1 else w.mul(x, number(factor, dtype))


def added(call, base, total, beta, alpha):
    """Returns beta base + alpha total; a beta of 0 ignores base, even where it is NaN."""
    total = scaled(total, alpha, call.dtype)
    if beta == 0:
        return w.broadcast_to(total, call.shape)
    return w.add(total, scaled(cast(base, call.dtype), beta, call.dtype))


@rule(aten.addmm.default, aten.baddbmm.default, aten.addmv.default)
def addmm(call, base, a, b, *, beta=1, alpha=1):
    return added(call, base, matmul(call, a, b), beta, alpha)


@rule(aten.addbmm.default)
def addbmm(call, base, a, b, *, beta=1, alpha=1):
    total = cast(w.sum(matmul(call, a, b), [0]), call.dtype)
    return added(call, base, total, beta, alpha)


@rule(aten.addr.default)
def addr(call, base, a, b, *, beta=1, alpha=1):
    outer = w.mul(w.reshape(cast(a, call.dtype), [a.shape[0], 1]), cast(b, call.dtype))
    if call.dtype == "bool":
        raise Unsupported("addr of bool")
    return added(call, base, outer, beta, alpha)


@rule(aten._addmm_activation.default)
def addmm_activation(call, base, a, b, *, beta=1, alpha=1, use_gelu=False):
    y = added(call, base, matmul(call, a, b), beta, alpha)
    return w.gelu(y) if use_gelu else w.relu(y)


@rule(aten._trilinear.default)
def trilinear(call, a, b, c, expand1, expand2, expand3, sumdim, unroll_dim=1):
    """Multiplies three tensors, each with axes of extent 1 inserted, and sums over `sumdim`."""
    total = rank(a) + len(expand1)

    def letters(expand):
        return "".join(chr(97 + i) for i in range(total) if i not in expand)

    result = "".join(chr(97 + i) for i in range(total) if i not in sumdim)
    # einsum has no axes that only one operand has by broadcasting and that are summed elsewhere.
    sources = ",".join(letters(expand) for expand in (expand1, expand2, expand3))
    return w.reshape(w.einsum(f"{sources}->{result}", [a, b, c]), call.shape)


@rule(aten.linalg_cross.default)
def linalg_cross(call, a, b, *, dim=-1):
    a, b = (w.broadcast_to(cast(x, call.dtype), call.shape) for x in (a, b))
    at = axis(dim, rank(a))

    def rolled(x, first):
        return w.concat([slice_of(x, at, first, 3), slice_of(x, at, 0, first)], at)

    if is_empty(call.shape):
        return full(call, 0)
    left = w.mul(rolled(a, 1), rolled(b, 2))
    return w.sub(left, w.mul(rolled(a, 2), rolled(b, 1)))


# ---- rows by groups, as mixtures of experts have them
def counts_of(ends):
    """Returns how many rows each group has, of the places [E] where groups end."""
    first = zeros([1], ends.dtype)
    return w.sub(ends, w.concat([first, slice_of(ends, 0, 0, ends.shape[0] - 1)], 0))


@rule("transformers.grouped_mm_fallback.default")
def grouped_product(call, x, weight, ends):
    if is_empty(x.shape) or is_empty(call.shape):
        return full(call, 0)
    return w.grouped_matmul(x, weight, counts_of(ends))


@rule("transformers.grouped_mm_fallback_backward.default")
def grouped_product_backward(call, x, weight, ends, dy):
    if is_empty(x.shape) or is_empty(dy.shape):
        return tuple(zeros(*each) for each in call.results)
    counts = counts_of(ends)
    return tuple(gradient(lambda a, b: w.grouped_matmul(a, b, counts), (x, weight), dy))


@rule(aten._grouped_mm.default)
def grouped_mm(call, a, b, ends=None, bias=None, out_dtype=None):
    """Multiplies rows of a[M, K] by b[E, K, N], columns of b[K, N] by a[E, M, K], or sums over
    the groups of a[M, K] and b[K, N], which gives [E, M, N]."""
    if bias is not None:
        raise Unsupported("a grouped product with bias")
    if ends is None:
        return matmul(call, a, b)
    if is_empty(a.shape) or is_empty(call.shape):
        return full(call, 0)
    counts = counts_of(ends)
    if rank(b) == 3:
        return cast(w.grouped_matmul(a, b, counts), call.dtype)
    if rank(a) == 3:
        columns = w.grouped_matmul(w.transpose(b), w.transpose(a), counts)
        return cast(w.transpose(columns), call.dtype)
    rows, weight = w.transpose(a), zeros(call.shape, a.dtype)
    return cast(
        gradient(lambda each: w.grouped_matmul(rows, each, counts), (weight,), b)[0], call.dtype)


# ---- convolutions
def convolve(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    spatial = rank(x) - 2
    stride, padding = every(stride, spatial), every(padding, spatial)
    dilation = every(dilation, spatial)
    if not transposed:
        return w.conv(x, weight, bias, stride, padding, dilation, groups)
    added_end = every(output_padding, spatial)
    if all(extra < step for extra, step in zip(added_end, stride)):
        return w.conv_transpose(x, weight, bias, stride, padding, dilation, added_end, groups)
    return transposed_further(x, weight, bias, stride, padding, dilation, added_end, groups)


def transposed_further(x, weight, bias, stride, padding, dilation, added_end, groups):
    """weft adds less than a stride at the end; torch may add more, by which padding is undone."""
    spatial = rank(x) - 2
    y = w.conv_transpose(x, weight, None, stride, [0] * spatial, dilation, [0] * spatial, groups)
    for i in range(spatial):
        at = i + 2
        stop = y.shape[at] - padding[i] + added_end[i]
        missing = max(stop - y.shape[at], 0)
        y = w.pad(y, [0] * rank(y), inserted([0] * (rank(y) - 1), at, missing), 0.0)
        y = slice_of(y, at, padding[i], stop)
    return y if bias is None else w.add(y, w.reshape(bias, [-1] + [1] * spatial))


@rule(aten.convolution.default)
def convolution(call, x, weight, bias, *geometry):
    if is_empty(call.shape):
        return full(call, 0)
    if is_empty(x.shape) or is_empty(weight.shape):
        value = zeros(call.shape, call.dtype)
        return value if bias is None else w.add(value, w.reshape(bias, [-1] + [1] * (rank(x) - 2)))
    return cast(convolve(x, weight, bias, *geometry), call.dtype)


@rule(aten.convolution_backward.default)
def convolution_backward(call, dy, x, weight, bias_sizes, *rest):
    *geometry, mask = rest
    found = [None, None, None]
    wanted = [i for i in range(2) if mask[i]]
    if is_empty(dy.shape) or is_empty(x.shape) or is_empty(weight.shape):
        for i in wanted:
            found[i] = zeros(*call.results[i])
    elif wanted:
        given = w.stop_gradient(x), w.stop_gradient(weight)  # which may be one value
        y = convolve(*given, None, *geometry)
        for i, each in zip(wanted, w._gradients(y, [given[i] for i in wanted], dy)):
            found[i] = each
    if mask[2]:
        found[2] = w.sum(dy, [0] + list(range(2, rank(dy))))
    return tuple(found)


# ---- weight norm
def all_but(dim, x):
    return [a for a in range(rank(x)) if a != axis(dim, rank(x))]


@rule(aten._weight_norm_interface.default)
def weight_norm(call, v, g, dim=0):
    norms = w.sqrt(w.sum(w.square(v), all_but(dim, v), True))
    return w.mul(v, w.div(g, norms)), norms


@rule(aten._weight_norm_interface_backward.default)
def weight_norm_backward(call, dy, v, g, norms, dim):
    along = w.sum(w.mul(dy, v), all_but(dim, v), True)
    radial = w.mul(v, w.div(along, w.square(norms)))
    return w.mul(w.div(g, norms), w.sub(dy, radial)), w.div(along, norms)


# ---- distances
def distance(difference, p, dim):
    """Returns the norm of order p along an axis."""
    return w.norm(difference, [dim], False, float(p))


def distance_slopes(difference, norms, dy, p):
    """Returns the gradient of the differences, as torch has it: 0 where the distance is 0."""
    if p == 0:
        return w.zeros_like(difference)
    direction = w.sign(difference)
    if p == 1:
        return w.mul(dy, direction)
    size = w.abs(difference)
    if p == math.inf:
        return w.mul(dy, w.mul(direction, w.cast(w.equal(size, norms), difference.dtype)))
    is_zero = w.equal(norms, 0.0)
    safe = w.select(is_zero, w.ones_like(norms), norms)
    if p == 2:
        return w.mul(difference, w.select(is_zero, w.zeros_like(norms), w.div(dy, safe)))
    share = w.mul(direction, w.pow(size, float(p - 1)))
    if p < 1:
        share = w.select(w.equal(difference, 0.0), w.zeros_like(share), share)
    factor = w.div(dy, w.pow(safe, float(p - 1)))
    return w.mul(share, w.select(is_zero, w.zeros_like(norms), factor))


def differences(a, b):
    """Returns a[.., P, 1, M] - b[.., 1, R, M]."""
    return w.sub(w.reshape(a, inserted(a.shape, rank(a) - 1)),
                 w.reshape(b, inserted(b.shape, rank(b) - 2)))


@rule(aten._cdist_forward.default)
def cdist(call, a, b, p, compute_mode):
    if is_empty(call.shape) or a.shape[-1] == 0:
        return full(call, 0)
    difference = differences(a, b)
    return distance(difference, p, rank(difference) - 1)


@rule(aten._cdist_backward.default)
def cdist_backward(call, dy, a, b, p, norms):
    if is_empty(call.shape) or is_empty(dy.shape):
        return full(call, 0)
    slopes = distance_slopes(
        differences(a, b), w.reshape(norms, list(norms.shape) + [1]),
        w.reshape(dy, list(dy.shape) + [1]), p,
    )
    return w.reshape(w.sum(slopes, [rank(slopes) - 2]), call.shape)


@rule(aten._euclidean_dist.default)
def euclidean_dist(call, a, b):
    if is_empty(call.shape):
        return full(call, 0)
    difference = differences(a, b)
    return distance(difference, 2, rank(difference) - 1)


def pairs(count):
    """Returns the pairs of rows i < j, in torch's order."""
    first, second = np.triu_indices(count, 1)
    return constant(first, "i64"), constant(second, "i64")


@rule(aten._pdist_forward.default)
def pdist(call, x, p=2):
    if is_empty(call.shape) or x.shape[1] == 0:
        return full(call, 0)
    first, second = pairs(x.shape[0])
    return distance(w.sub(w.gather(x, first, 0), w.gather(x, second, 0)), p, 1)


@rule(aten._pdist_backward.default)
def pdist_backward(call, dy, x, p, norms):
    if is_empty(dy.shape) or is_empty(x.shape):
        return full(call, 0)
    first, second = pairs(x.shape[0])
    difference = w.sub(w.gather(x, first, 0), w.gather(x, second, 0))
    column = [dy.shape[0], 1]
    slopes = distance_slopes(difference, w.reshape(norms, column), w.reshape(dy, column), p)
    total = w.scatter_add(w.zeros_like(x), first, slopes)
    return w.scatter_add(total, second, w.neg(slopes))
