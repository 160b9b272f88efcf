"""Rules of histograms with given edges; histc is in reduce.py."""

from ..rules import FLOATS, Unsupported, product, rule, torch, w
from .gather import flat
from .movement import slice_of, zeros

aten = torch.ops.aten


def edges_of(column, bins, bounds):
    """Returns the edges of equal bins from bounds, or from the least element to the greatest."""
    dtype = column.dtype
    if bounds is not None:
        low, high = (w.full([], float(each), dtype) for each in bounds)
    elif product(column.shape):
        low, high = w.min(column), w.max(column)
    else:
        low, high = w.full([], 0.0, dtype), w.full([], 1.0, dtype)
    # Bins of no extent are widened by a half on each side.
    margin = w.select(w.equal(low, high), w.full([], 0.5, dtype), w.full([], 0.0, dtype))
    low, high = w.sub(low, margin), w.add(high, margin)
    step = w.div(w.sub(high, low), float(bins))
    place = w.iota([bins + 1], 0, dtype)
    upward = w.add(low, w.mul(place, step))
    downward = w.sub(high, w.mul(w.sub(float(bins), place), step))
    return w.select(w.less(place, float((bins + 1) // 2)), upward, downward)


def bin_of(column, edges):
    """Returns the bin of each element, -1 outside of all; the last bin has both of its edges.

    It is torch's binary search (std::upper_bound), all elements at once: the same steps, so that
    edges that are not sorted give the same bins.
    """
    bins, shape = edges.shape[0] - 1, list(column.shape)
    first, rest = w.full(shape, 0.0, "i64"), w.full(shape, float(bins + 1), "i64")
    for _ in range((bins + 1).bit_length()):
        half = w.floor_divide(rest, 2)
        middle = w.add(first, half)
        before = w.less(column, w.gather(edges, middle, 0))
        is_done = w.equal(rest, 0)
        stays = w.logical_or(before, is_done)
        first = w.select(stays, first, w.add(middle, 1))
        rest = w.select(stays, half, w.sub(w.sub(rest, half), 1))
    inside = w.logical_and(w.greater_equal(column, slice_of(edges, 0, 0, 1)),
                           w.less_equal(column, slice_of(edges, 0, bins, bins + 1)))
    return w.select(inside, w.minimum(w.sub(first, 1), bins - 1), -1)


def counted(call, columns, edges, weight, density, shape):
    """Returns how many elements each bin has, or their weights, or densities."""
    dtype = columns[0].dtype
    if dtype not in FLOATS:
        raise Unsupported(f"a histogram of {dtype}")
    count = product(columns[0].shape)
    place = None
    for column, edge in zip(columns, edges):
        along = bin_of(column, edge)
        bins = edge.shape[0] - 1
        if place is None:
            place = along
        else:
            inside = w.logical_and(w.greater_equal(place, 0), w.greater_equal(along, 0))
            place = w.select(inside, w.add(w.mul(place, bins), along), -1)
    share = w.full([count], 1.0, dtype) if weight is None else flat(weight)
    total = w.scatter_add(zeros([product(shape)], dtype), place, share)
    total = w.reshape(total, shape)
    if density:
        total = w.div(total, w.sum(total))
        for i, edge in enumerate(edges):
            bins = edge.shape[0] - 1
            width = w.sub(slice_of(edge, 0, 1, bins + 1), slice_of(edge, 0, 0, bins))
            total = w.div(total, w.reshape(width, [bins if a == i else 1
                                                   for a in range(len(shape))]))
    return total


@rule(aten.histogram.bin_ct)
def histogram(call, x, bins=100, *, range=None, weight=None, density=False):
    edges = edges_of(flat(x), bins, range)
    return counted(call, [flat(x)], [edges], weight, density, [bins]), edges


@rule(aten.histogram.bins_tensor)
def histogram_between(call, x, edges, *, weight=None, density=False):
    return counted(call, [flat(x)], [edges], weight, density, [edges.shape[0] - 1]), edges


def columns_of(x):
    """Returns the coordinates of points x[.., axes], each as a vector."""
    points = w.reshape(x, [product(x.shape[:-1]), x.shape[-1]])
    return [flat(slice_of(points, 1, i, i + 1)) for i in range(x.shape[-1])]


@rule(aten._histogramdd_bin_edges.default)
def histogramdd_bin_edges(call, x, bins, *, range=None, weight=None, density=False):
    bounds = [None] * len(bins) if range is None else list(zip(range[::2], range[1::2]))
    return [edges_of(*each) for each in zip(columns_of(x), bins, bounds)]


@rule(aten._histogramdd_from_bin_cts.default)
def histogramdd(call, x, bins, *, range=None, weight=None, density=False):
    edges = histogramdd_bin_edges(call, x, bins, range=range)
    return counted(call, columns_of(x), edges, weight, density, list(bins))


@rule(aten._histogramdd_from_bin_tensors.default)
def histogramdd_between(call, x, edges, *, weight=None, density=False):
    shape = [each.shape[0] - 1 for each in edges]
    return counted(call, columns_of(x), list(edges), weight, density, shape)
