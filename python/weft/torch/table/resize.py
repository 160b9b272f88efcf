"""Rules of resizing and of sampling at a grid, and their gradients."""

import functools
import itertools

import numpy as np

from ..rules import FLOATS, Unsupported, cast, full, product, rank, rule, torch, w
from .movement import constant, inserted, is_empty

aten = torch.ops.aten


# ---- resizing one axis at a time: each element of the result is a weighted sum of taps
@functools.cache
def taps_of(mode, extent, count, align_corners, factor):
    """Returns the places and weights of the taps of each element, [taps, count], as torch has them.

    `factor` is the user's scale factor: torch computes places by it, not by the sizes.
    """
    scale = 1 / factor if factor else extent / count
    if mode in ("nearest", "nearest-exact"):
        # torch rounds the scale, and its products, to float32.
        step = np.float32(1.0 / factor) if factor else np.float32(extent) / np.float32(count)
        shift = np.float32(0.5 if mode == "nearest-exact" else 0)
        place = np.floor((np.arange(count, dtype=np.float32) + shift) * step).astype(np.int64)
        return np.minimum(place, extent - 1)[None], None
    if align_corners:
        scale = (extent - 1) / (count - 1) if count > 1 else 0.0
    if mode.endswith("_aa"):
        return antialiased(mode, extent, count, scale)
    place = np.arange(count) * scale if align_corners else (np.arange(count) + 0.5) * scale - 0.5
    if mode == "linear":
        place = np.maximum(place, 0.0)
        low = np.minimum(np.floor(place).astype(np.int64), extent - 1)
        share = np.minimum(place - low, 1.0)
        return np.stack([low, np.minimum(low + 1, extent - 1)]), np.stack([1 - share, share])
    low = np.floor(place)
    offsets = np.arange(-1, 3)[:, None]
    weights = cubic(place - low - offsets, -0.75)
    return np.clip(low.astype(np.int64) + offsets, 0, extent - 1), weights


def cubic(x, a):
    """Returns the cubic convolution kernel (Keys 1981) of distances x."""
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def antialiased(mode, extent, count, scale):
    """Returns taps as far as the filter reaches, which widens where the result is smaller."""
    reach = (2 if mode == "cubic_aa" else 1) * max(scale, 1.0)
    centre = scale * (np.arange(count) + 0.5)
    first = np.maximum((centre - reach + 0.5).astype(np.int64), 0)
    stop = np.minimum((centre + reach + 0.5).astype(np.int64), extent)
    taps = np.arange(int((stop - first).max()))[:, None]
    distance = (taps + first - centre + 0.5) / max(scale, 1.0)
    if mode == "cubic_aa":
        weights = cubic(distance, -0.5)
    else:
        weights = np.maximum(1 - np.abs(distance), 0)
    weights = np.where(taps < stop - first, weights, 0.0)
    return np.minimum(first + taps, extent - 1), weights / weights.sum(axis=0)


def resized(x, at, count, mode, align_corners, factor):
    """Resizes one axis by its taps."""
    extent = x.shape[at]
    if extent == count and not factor:
        return x
    if mode == "nearest" and count % extent == 0 and (not factor or factor * extent == count):
        return w.repeat(x, count // extent, at)
    places, weights = taps_of(mode, extent, count, align_corners, factor)
    if weights is None:
        return w.gather(x, constant(places[0], "i64"), at)
    shape = inserted([1] * (rank(x) - 1), at, count)
    total = None
    for place, weight in zip(places, weights):
        part = w.mul(w.gather(x, constant(place, "i64"), at),
                     w.reshape(constant(weight, x.dtype), shape))
        total = part if total is None else w.add(total, part)
    return total


def resized_backward(dy, at, extent, mode, align_corners, factor):
    """Multiplies by the transposed matrix of weights, so that nothing is scattered."""
    count = dy.shape[at]
    if extent == count and not factor:
        return dy
    if mode == "nearest" and count % extent == 0 and (not factor or factor * extent == count):
        shape = list(dy.shape[:at]) + [extent, count // extent] + list(dy.shape[at + 1:])
        return w.sum(w.reshape(dy, shape), [at + 1])
    places, weights = taps_of(mode, extent, count, align_corners, factor)
    matrix = np.zeros([extent, count])
    for i, place in enumerate(places):
        np.add.at(matrix, (place, np.arange(count)), 1.0 if weights is None else weights[i])
    outer, inner = product(dy.shape[:at]), product(dy.shape[at + 1:])
    matrix = constant(matrix, dy.dtype)
    if inner == 1:
        dx = w.matmul(w.reshape(dy, [outer, count]), w.transpose(matrix))
    else:
        dx = w.matmul(matrix, w.reshape(dy, [outer, count, inner]))
    return w.reshape(dx, list(dy.shape[:at]) + [extent] + list(dy.shape[at + 1:]))


def in_float(x, function):
    """Applies a function in float32 to half types, as torch does to what it sums."""
    return cast(function(cast(x, "f32")), x.dtype) if x.dtype in ("f16", "bf16") else function(x)


def resize_rules(name, spatial, mode, has_corners):
    def factors(call, given):
        if call.target._overloadname == "vec":
            return list(given[0]) if given and given[0] is not None else [None] * spatial
        return list(given) + [None] * (spatial - len(given))

    def unpacked(given):
        return (given[0], given[1:]) if has_corners else (False, given)

    def forward(call, x, size, *given):
        if is_empty(call.shape):
            return full(call, 0)
        if x.dtype not in FLOATS and mode != "nearest" and mode != "nearest-exact":
            raise Unsupported(f"resizing of {x.dtype}")
        corners, given = unpacked(given)
        scales = factors(call, given)

        def resize(y):
            for i in range(spatial):
                y = resized(y, 2 + i, call.shape[2 + i], mode, bool(corners), scales[i])
            return y

        return resize(x) if x.dtype not in FLOATS else in_float(x, resize)

    def backward(call, dy, output_size, input_size, *given):
        if is_empty(call.shape) or is_empty(dy.shape):
            return full(call, 0)
        corners, given = unpacked(given)
        scales = factors(call, given)

        def resize(y):
            for i in reversed(range(spatial)):
                y = resized_backward(y, 2 + i, call.shape[2 + i], mode, bool(corners), scales[i])
            return y

        return in_float(dy, resize)

    packet = getattr(aten, name)
    rule(packet.default)(forward)
    if "vec" in packet.overloads():
        rule(packet.vec)(forward)
    rule(getattr(aten, name + "_backward").default)(backward)


for _count in (1, 2, 3):
    resize_rules(f"upsample_nearest{_count}d", _count, "nearest", False)
    resize_rules(f"_upsample_nearest_exact{_count}d", _count, "nearest-exact", False)
resize_rules("upsample_linear1d", 1, "linear", True)
resize_rules("upsample_bilinear2d", 2, "linear", True)
resize_rules("upsample_trilinear3d", 3, "linear", True)
resize_rules("upsample_bicubic2d", 2, "cubic", True)
resize_rules("_upsample_bilinear2d_aa", 2, "linear_aa", True)
resize_rules("_upsample_bicubic2d_aa", 2, "cubic_aa", True)


# ---- sampling at a grid of coordinates
BILINEAR, NEAREST, BICUBIC = range(3)
ZEROS, BORDER, REFLECTION = range(3)


def clipped(x, extent):
    """Clips to [0, extent - 1]; unlike that of minimum(), the gradient is 0 at both ends."""
    last = float(extent - 1)
    x = w.select(w.less_equal(x, 0.0), 0.0, x)
    return w.select(w.greater_equal(x, last), last, x)


def mirrored(x, extent, align_corners):
    """Reflects at the centres of the first and last elements, or at their outer edges."""
    low, span = (0.0, float(extent - 1)) if align_corners else (-0.5, float(extent))
    if span == 0:
        return w.mul(x, 0.0)
    x = w.sub(x, low)
    x = w.select(w.less(x, 0.0), w.neg(x), x)
    turns = w.floor(w.div(x, span))
    rest = w.sub(x, w.mul(turns, span))
    is_even = w.equal(w.remainder(turns, 2.0), 0.0)
    return w.add(w.select(is_even, rest, w.sub(span, rest)), low)


def within(x, extent, padding, align_corners):
    if padding == REFLECTION:
        x = mirrored(x, extent, align_corners)
    return x if padding == ZEROS else clipped(x, extent)


def cubic_weights(share):
    """Returns the weights of four neighbours, where `share` is the distance from the second."""
    a = -0.75

    def far(x):
        return w.mul(w.sub(w.mul(w.add(w.mul(w.sub(x, 5.0), x), 8.0), x), 4.0), a)

    def near(x):
        return w.add(w.mul(w.mul(w.sub(w.mul(x, a + 2), a + 3), x), x), 1.0)

    rest = w.sub(1.0, share)
    return [far(w.add(share, 1.0)), near(share), near(rest), far(w.add(rest, 1.0))]


def taps_at(place, extent, mode, padding, align_corners):
    """Returns pairs of place and weight of the elements to sum along an axis."""
    if mode == NEAREST:
        return [(w.round(within(place, extent, padding, align_corners)), None)]
    if mode == BILINEAR:
        place = within(place, extent, padding, align_corners)
    low = w.floor(place)
    share = w.sub(place, low)
    if mode == BILINEAR:
        return [(low, w.sub(1.0, share)), (w.add(low, 1.0), share)]
    return [
        (within(w.add(low, float(i - 1)), extent, padding, align_corners), weight)
        for i, weight in enumerate(cubic_weights(share))
    ]


def sampled(x, grid, mode, padding, align_corners):
    """Samples x[N, C, spatial..] at grid[N, out.., axes], whose last coordinate is the first axis.

    The result is [N, C, out..].
    """
    n, channels, *extents = x.shape
    spatial, out = len(extents), list(grid.shape[1:-1])
    rows = w.permute(w.reshape(x, [n, channels, product(extents)]), [0, 2, 1])
    rows = w.reshape(rows, [n * product(extents), channels])
    taps = []
    for i, extent in enumerate(extents):
        at = spatial - 1 - i
        place = w.reshape(w.slice(grid, spatial + 1, at, at + 1), [n, product(out)])
        if align_corners:
            place = w.mul(w.add(place, 1.0), (extent - 1) / 2)
        else:
            place = w.div(w.sub(w.mul(w.add(place, 1.0), float(extent)), 1.0), 2.0)
        taps.append(taps_at(place, extent, mode, padding, align_corners))
    total = None
    for corner in itertools.product(*taps):
        index, inside, weight = w.iota([n, product(out)], 0, "i64"), None, None
        for (place, share), extent in zip(corner, extents):
            fits = w.logical_and(w.greater_equal(place, 0.0), w.less(place, float(extent)))
            index = w.add(w.mul(index, extent), w.cast(place, "i64"))
            inside = fits if inside is None else w.logical_and(inside, fits)
            if share is not None:
                weight = share if weight is None else w.mul(weight, share)
        part = w.gather(rows, w.select(inside, index, -1), 0)  # [N, out, C]; zeros outside
        if weight is not None:
            part = w.mul(part, w.unsqueeze(weight, -1))
        total = part if total is None else w.add(total, part)
    return w.reshape(w.permute(total, [0, 2, 1]), [n, channels] + out)


@rule(aten.grid_sampler_2d.default, aten.grid_sampler_3d.default)
def grid_sampler(call, x, grid, mode, padding, align_corners):
    if is_empty(call.shape):
        return full(call, 0)
    return sampled(x, grid, mode, padding, align_corners)


@rule(aten.grid_sampler_2d_backward.default, aten.grid_sampler_3d_backward.default)
def grid_sampler_backward(call, dy, x, grid, mode, padding, align_corners, mask):
    if is_empty(dy.shape):
        return tuple(None if each is None else w.full(each[0], 0.0, each[1])
                     for each in call.results)
    x, grid = w.stop_gradient(x), w.stop_gradient(grid)  # which may be one value
    dx, dgrid = w._gradients(sampled(x, grid, mode, padding, align_corners), [x, grid], dy)
    return dx if mask[0] else None, dgrid if mask[1] else None
