"""Rules of pooling over windows and over adaptive cells, and their gradients."""

import numpy as np

from ..rules import (
    FLOATS, Unsupported, cast, every, full, gradient, math, product, rank, rule, torch, w,
)
from .movement import constant, inserted, is_empty, leaf, slice_of, zeros
from .resize import in_float

aten = torch.ops.aten


# ---- windows
class Windows:
    """The windows of a pool along each spatial axis of x[.., spatial..]."""

    def __init__(self, x, kernel, stride=(), padding=0, dilation=1, ceil_mode=False):
        self.spatial = 3 if rank(x) == 5 or len(list(kernel)) == 3 else 2
        self.kernel = every(kernel, self.spatial)
        self.stride = every(stride, self.spatial) if stride else self.kernel
        self.padding = every(padding, self.spatial)
        self.dilation = every(dilation, self.spatial)
        self.extents = list(x.shape[rank(x) - self.spatial:])
        self.counts = [self._count(i, ceil_mode) for i in range(self.spatial)]
        # How many elements behind the padding the last window reaches, in ceil_mode.
        self.beyond = [
            max((self.counts[i] - 1) * self.stride[i] + self._reach(i)
                - (self.extents[i] + 2 * self.padding[i]), 0)
            for i in range(self.spatial)
        ]

    def _reach(self, i):
        return self.dilation[i] * (self.kernel[i] - 1) + 1

    def _count(self, i, ceil_mode):
        room = self.extents[i] + 2 * self.padding[i] - self._reach(i)
        if not ceil_mode:
            return room // self.stride[i] + 1
        count = -(-room // self.stride[i]) + 1
        # A window must begin inside of the tensor or of the padding before it.
        return count - ((count - 1) * self.stride[i] >= self.extents[i] + self.padding[i])

    def starts(self, i):
        """Returns where each window begins; in the padding this is below 0."""
        return np.arange(self.counts[i]) * self.stride[i] - self.padding[i]

    def places(self, i):
        """Returns the elements of each window along an axis, [count, kernel]."""
        return self.starts(i)[:, None] + np.arange(self.kernel[i]) * self.dilation[i]


def cell_bounds(extent, count):
    """Returns where the cells of an adaptive pool begin and stop."""
    cell = np.arange(count)
    return cell * extent // count, -((-(cell + 1) * extent) // count)


class Cells:
    """The windows of an adaptive pool, whose sizes differ by one where they do not divide x."""

    def __init__(self, x, counts):
        self.spatial = len(counts)
        self.counts = list(counts)
        self.extents = list(x.shape[rank(x) - self.spatial:])

    @property
    def divides(self):
        return all(extent % count == 0 for extent, count in zip(self.extents, self.counts))

    def places(self, i):
        """Returns the elements of each cell; smaller cells repeat their last one."""
        first, stop = cell_bounds(self.extents[i], self.counts[i])
        most = int((stop - first).max())
        return np.minimum(first[:, None] + np.arange(most), stop[:, None] - 1)


def batched(x, spatial):
    """Returns x as [N, C, spatial..]."""
    extents = list(x.shape[rank(x) - spatial:])
    outer = list(x.shape[:rank(x) - spatial])
    return w.reshape(x, [1] * (2 - len(outer)) + outer + extents)


def gathered(x, where):
    """Returns the windows of x[.., spatial..] as [planes, counts.., elements of a window].

    Places outside of x read -inf, which never is the greatest.
    """
    spatial = where.spatial
    planes = product(x.shape[:rank(x) - spatial])
    y = w.reshape(x, [planes] + where.extents)
    for i in range(spatial):
        places, at = where.places(i), 1 + 2 * i
        low, high = max(-int(places.min()), 0), max(int(places.max()) - where.extents[i] + 1, 0)
        if low or high:
            margins = [inserted([0] * (rank(y) - 1), at, each) for each in (low, high)]
            y = w.pad(y, *margins, -math.inf)
        y = w.gather(y, constant(places + low, "i64"), at)
    counts, elements = [1 + 2 * i for i in range(spatial)], [2 + 2 * i for i in range(spatial)]
    y = w.permute(y, [0] + counts + elements)
    return w.reshape(y, [planes] + where.counts + [-1])


def greatest_place(x, where, shape):
    """Returns the position in its plane of the first greatest element of each window."""
    best = w.argmax(gathered(x, where), where.spatial + 1)
    steps, position = [], None
    for i in reversed(range(where.spatial)):
        size = where.places(i).shape[1]
        steps.insert(0, w.remainder(best, size))
        best = w.floor_divide(best, size)
    for i in range(where.spatial):
        places = where.places(i)
        count, size = places.shape
        line = [1] * (where.spatial + 1)
        line[1 + i] = count
        row = w.reshape(constant(np.arange(count) * size, "i64"), line)
        # A window of -inf alone finds the padding first; torch has its first element.
        first = np.where(places < 0, where.extents[i], places).min(axis=1)
        table = constant(np.maximum(places, first[:, None]).reshape(-1), "i64")
        along = w.gather(table, w.add(row, steps[i]), 0)
        position = along if position is None else w.add(w.mul(position, where.extents[i]), along)
    return w.reshape(position, shape)


def at_places(values, places, shape, spatial):
    """Returns zeros of `shape` with values added at positions in their planes."""
    planes, size = product(shape[:len(shape) - spatial]), product(shape[len(shape) - spatial:])
    count = product(values.shape)
    places = w.reshape(cast(places, "i64"), [planes, -1])
    places = w.add(places, w.mul(w.iota(list(places.shape), 0, "i64"), size))
    total = w.scatter_add(zeros([planes * size], values.dtype), w.reshape(places, [count]),
                          w.reshape(values, [count]))
    return w.reshape(total, shape)


# ---- max pooling
def check_float(x):
    if x.dtype not in FLOATS:
        raise Unsupported(f"pooling of {x.dtype}")


def max_pooled(x, at):
    """Pools by weft's operation, which knows no ceil_mode: the end is padded for it."""
    if any(step > 1 for step in at.dilation):
        return w.max(gathered(x, at), [at.spatial + 1])
    y = batched(x, at.spatial)
    if any(at.beyond):
        y = w.pad(y, [0] * rank(y), [0, 0] + at.beyond, -math.inf)
    return w.max_pool(y, at.kernel, at.stride, at.padding)


@rule(aten.max_pool2d_with_indices.default, aten.max_pool3d_with_indices.default)
def max_pool(call, x, kernel, stride=(), padding=0, dilation=1, ceil_mode=False):
    """The indices cost nothing where no one reads them: the gradient is computed from x."""
    check_float(x)
    shape = call.results[0][0]
    if is_empty(shape):
        return tuple(zeros(*each) for each in call.results)
    at = Windows(x, kernel, stride, padding, dilation, ceil_mode)
    return w.reshape(max_pooled(x, at), shape), greatest_place(x, at, shape)


@rule(
    aten.max_pool2d_with_indices_backward.default, aten.max_pool3d_with_indices_backward.default,
    unread=7)
def max_pool_backward(call, dy, x, kernel, stride, padding, dilation, ceil_mode, indices):
    if is_empty(dy.shape) or is_empty(x.shape):
        return full(call, 0)
    at = Windows(x, kernel, stride, padding, dilation, ceil_mode)
    if any(step > 1 for step in at.dilation):
        return at_places(dy, greatest_place(x, at, dy.shape), call.shape, at.spatial)
    return gradient(lambda x: w.reshape(max_pooled(x, at), list(dy.shape)), [x], dy)[0]


def max_of_cells(x, cells):
    if not cells.divides:
        return w.max(gathered(x, cells), [cells.spatial + 1])
    kernel = [extent // count for extent, count in zip(cells.extents, cells.counts)]
    return w.max_pool(batched(x, cells.spatial), kernel, kernel)


@rule(aten.adaptive_max_pool2d.default, aten.adaptive_max_pool3d.default)
def adaptive_max_pool(call, x, size):
    check_float(x)
    shape = call.results[0][0]
    if is_empty(shape):
        return tuple(zeros(*each) for each in call.results)
    cells = Cells(x, shape[-len(size):])
    return w.reshape(max_of_cells(x, cells), shape), greatest_place(x, cells, shape)


@rule(
    aten.adaptive_max_pool2d_backward.default, aten.adaptive_max_pool3d_backward.default, unread=2)
def adaptive_max_pool_backward(call, dy, x, indices):
    if is_empty(dy.shape):
        return full(call, 0)
    spatial = 2 if call.target is aten.adaptive_max_pool2d_backward.default else 3
    cells = Cells(x, dy.shape[-spatial:])
    if not cells.divides:
        return at_places(dy, greatest_place(x, cells, dy.shape), call.shape, spatial)
    return gradient(lambda x: w.reshape(max_of_cells(x, cells), list(dy.shape)), [x], dy)[0]


def unpool_rule(target, spatial):
    @rule(target)
    def max_unpool(call, x, indices, output_size, *_):
        if is_empty(call.shape) or is_empty(x.shape):
            return full(call, 0)
        planes = product(x.shape[:rank(x) - spatial])
        places = w.reshape(indices, [planes, -1])
        empty = zeros([planes, product(output_size)], x.dtype)
        values = w.reshape(x, list(places.shape))
        return w.reshape(w.put_along_axis(empty, places, values, 1), call.shape)


unpool_rule(aten.max_unpool2d.default, 2)
unpool_rule(aten.max_unpool3d.default, 3)


# ---- mean pooling
def divisors(at, count_include_pad):
    """Returns by how many elements torch divides each window, [counts..]."""
    total = np.ones([1] * at.spatial)
    for i in range(at.spatial):
        first, padding = at.starts(i), at.padding[i] if count_include_pad else 0
        stop = np.minimum(first + at.kernel[i], at.extents[i] + padding)
        along = stop - np.maximum(first, -padding)
        total = total * along.reshape([-1 if a == i else 1 for a in range(at.spatial)])
    return total


def mean_pooled(x, at, count_include_pad, divisor):
    y = batched(x, at.spatial)
    if divisor is None and not any(at.beyond):
        return w.avg_pool(y, at.kernel, at.stride, at.padding, bool(count_include_pad))
    # The end is padded for ceil_mode, and the mean over whole windows divided anew.
    low, high = [0, 0] + at.padding, [0, 0] + [a + b for a, b in zip(at.padding, at.beyond)]
    y = w.pad(y, low, high, 0.0) if any(high) else y
    y = w.avg_pool(y, at.kernel, at.stride, [0] * at.spatial, True)
    by = divisor if divisor is not None else divisors(at, count_include_pad)
    factor = constant(np.broadcast_to(product(at.kernel) / np.asarray(by, float), at.counts),
                      x.dtype)
    return w.mul(y, factor)


@rule(aten.avg_pool2d.default, aten.avg_pool3d.default)
def avg_pool(
    call, x, kernel, stride=(), padding=0, ceil_mode=False, count_include_pad=True,
    divisor_override=None,
):
    check_float(x)
    if is_empty(call.shape):
        return full(call, 0)
    at = Windows(x, kernel, stride, padding, 1, ceil_mode)

    def pooled(x):
        return w.reshape(mean_pooled(x, at, count_include_pad, divisor_override), call.shape)

    return in_float(x, pooled)


@rule(aten.avg_pool2d_backward.default, aten.avg_pool3d_backward.default)
def avg_pool_backward(
    call, dy, x, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override
):
    if is_empty(dy.shape):
        return full(call, 0)
    at = Windows(x, kernel, stride, padding, 1, ceil_mode)

    def pooled(x):
        return w.reshape(mean_pooled(x, at, count_include_pad, divisor_override), list(dy.shape))

    return gradient(pooled, [leaf(x.shape, x.dtype)], dy)[0]


def mean_of_cells(x, counts):
    """Returns the means of cells, one axis at a time."""
    first_axis = rank(x) - len(counts)
    for i, count in enumerate(counts):
        at, extent = first_axis + i, x.shape[first_axis + i]
        if extent == count:
            continue
        if extent % count == 0:
            shape = list(x.shape[:at]) + [count, extent // count] + list(x.shape[at + 1:])
            x = w.mean(w.reshape(x, shape), [at + 1])
            continue
        first, stop = cell_bounds(extent, count)
        x = w.concat(
            [w.mean(slice_of(x, at, int(a), int(b)), [at], True) for a, b in zip(first, stop)], at
        )
    return x


@rule(
    aten._adaptive_avg_pool2d.default, aten._adaptive_avg_pool3d.default,
    aten.adaptive_avg_pool2d.default, aten.adaptive_avg_pool3d.default,
)
def adaptive_avg_pool(call, x, size):
    check_float(x)
    if is_empty(call.shape):
        return full(call, 0)
    return in_float(x, lambda x: mean_of_cells(x, call.shape[-len(size):]))


@rule(aten._adaptive_avg_pool2d_backward.default, aten._adaptive_avg_pool3d_backward.default)
def adaptive_avg_pool_backward(call, dy, x):
    if is_empty(dy.shape):
        return full(call, 0)
    spatial = 2 if call.target is aten._adaptive_avg_pool2d_backward.default else 3
    plane = leaf(x.shape, x.dtype)
    return gradient(lambda x: mean_of_cells(x, dy.shape[-spatial:]), [plane], dy)[0]
