"""Rules of gathers and scatters by one index for each element, and by masks and segments."""

from ..rules import (
    FLOATS, Unsupported, as_tensor, axis, cast, full, gradient, is_tensor, math, product, rank,
    rule, torch, w,
)
from .gather import add_at, flat
from .movement import constant, is_empty, moved, slice_of, zeros

aten = torch.ops.aten

# Reductions at indices compare each index with each place of an axis. Beyond this number of
# comparisons torch, which walks over the indices, is faster.
MOST_COMPARISONS = 2**28


# ---- one index for each element
def fitted(x, indices, dim):
    """Cuts x to the extents of the indices except along an axis: torch lets indices be fewer."""
    for a in range(rank(x)):
        if a != dim:
            x = slice_of(x, a, 0, indices.shape[a])
    return x


def lifted(*tensors):
    """Gives scalars an axis, which torch's dim 0 means."""
    return [w.reshape(x, [1]) if is_tensor(x) and rank(x) == 0 else x for x in tensors]


@rule(aten.gather.default)
def gather(call, x, dim, indices, *, sparse_grad=False):
    if is_empty(call.shape):
        return full(call, 0)
    x, indices = lifted(x, indices)
    at = axis(dim, rank(x))
    return w.reshape(w.take_along_axis(fitted(x, indices, at), indices, at), call.shape)


def positions(x, dim, indices):
    """Returns the position in the flattened x of each index along an axis."""
    place = None
    for a, extent in enumerate(x.shape):
        along = cast(indices, "i64") if a == dim else w.iota(list(indices.shape), a, "i64")
        place = along if place is None else w.add(w.mul(place, extent), along)
    return place


def scattered(call, x, dim, indices, source, function):
    """Applies function(flat x, positions, flat updates) to the elements that the indices name."""
    if is_empty(x.shape) or is_empty(indices.shape):
        return x
    x, indices = lifted(x, indices)
    at = axis(dim, rank(x))
    if is_tensor(source) and rank(source) == rank(indices):
        source = fitted(source, indices, None)
    source = w.broadcast_to(as_tensor(source, call.dtype), list(indices.shape))
    place = flat(positions(x, at, indices))
    return w.reshape(function(flat(x), place, flat(source)), call.shape)


@rule(aten.scatter.src, aten.scatter.value)
def scatter(call, x, dim, indices, source):
    source = lifted(source)[0] if rank_of(source) else source
    return scattered(call, x, dim, indices, source, w.index_put)


def rank_of(x):
    return rank(x) if is_tensor(x) else 0


@rule(aten.scatter_add.default)
def scatter_add(call, x, dim, indices, source):
    return scattered(call, x, dim, indices, lifted(source)[0], add_at)


@rule(aten.scatter.reduce, aten.scatter.value_reduce)
def scatter_by_name(call, x, dim, indices, source, *, reduce):
    if reduce == "add":
        return scattered(call, x, dim, indices, lifted(source)[0], add_at)
    source = as_tensor(source, call.dtype)
    return reduce_at(call, x, dim, indices, source, "prod", True)


def extreme_of(dtype, largest):
    """Returns the least number of a type, or the greatest."""
    if dtype in FLOATS:
        return -math.inf if largest else math.inf
    bits = int(dtype[1:])
    low, high = (0, 2**bits - 1) if dtype[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return low if largest else high


def reduction(name, dtype):
    if name in ("sum", "mean"):
        return w.sum, w.add, 0
    if name == "prod":
        return w.prod, w.mul, 1
    if name == "amax":
        return w.max, w.maximum, extreme_of(dtype, True)
    return w.min, w.minimum, extreme_of(dtype, False)


def reduce_at(call, x, dim, indices, source, name, include_self):
    """Reduces the elements of source that name each place of x along an axis.

    Each place is compared with each index along the axis, [.., places, indices], which the
    reduction reads without that it is stored.
    """
    if is_empty(x.shape) or is_empty(indices.shape):
        return x
    if x.dtype == "bool":  # sums and products are any and all
        name = {"sum": "amax", "prod": "amin"}.get(name, name)
        x, source = cast(x, "u8"), cast(source, "u8")
    source = w.broadcast_to(source, list(indices.shape)) if rank(source) == 0 else source
    x, indices, source = lifted(x, indices, source)
    at = axis(dim, rank(x))
    source = fitted(source, indices, None)
    part = fitted(x, indices, at)  # the elements whose other axes the indices have
    old, rows, updates = (moved(each, at, rank(x) - 1) for each in (part, indices, source))
    shape = list(rows.shape[:-1]) + [old.shape[-1], rows.shape[-1]]
    if product(shape) > MOST_COMPARISONS:
        raise Unsupported("scatter_reduce of so many indices")
    new = combined(old, rows, updates, shape, name, include_self)
    part = moved(cast(new, x.dtype), rank(x) - 1, at)
    return cast(w.reshape(written_back(x, part), call.shape), call.dtype)


def combined(old, rows, updates, shape, name, include_self):
    reduce, join, identity = reduction(name, old.dtype)
    hit = w.equal(w.unsqueeze(cast(rows, "i64"), -2), w.iota(shape, len(shape) - 2, "i64"))
    identity = w.full(shape, float(identity), old.dtype) if abs(identity) < 2**53 else (
        w.broadcast_to(constant(identity, old.dtype), shape))
    chosen = w.select(hit, w.broadcast_to(w.unsqueeze(updates, -2), shape), identity)
    new = cast(reduce(chosen, [len(shape) - 1]), old.dtype)
    count = w.sum(cast(hit, "i64"), [len(shape) - 1])
    if include_self:
        new = join(new, old)
    if name == "mean":
        terms = cast(w.maximum(w.add(count, int(include_self)), 1), old.dtype)
        new = (w.div if old.dtype in FLOATS else w.floor_divide)(new, terms)
    return new if include_self else w.select(w.greater(count, 0), new, old)


def written_back(x, part):
    """Returns x with its first elements along all axes replaced by `part`."""
    for a in range(rank(x) - 1, -1, -1):
        if part.shape[a] == x.shape[a]:
            continue
        # Axes before this one are still cut, and those after it are whole.
        rest = x
        for b in range(a):
            rest = slice_of(rest, b, 0, part.shape[b])
        part = w.concat([part, slice_of(rest, a, part.shape[a], x.shape[a])], a)
    return part


@rule(aten.scatter_reduce.two)
def scatter_reduce(call, x, dim, indices, source, reduce, *, include_self=True):
    source = cast(source, call.dtype)
    if reduce == "sum" and include_self:
        return scattered(call, x, dim, indices, lifted(source)[0], add_at)
    return reduce_at(call, x, dim, indices, source, reduce, include_self)


@rule(aten.index_reduce.default)
def index_reduce(call, x, dim, indices, source, reduce, *, include_self=True):
    if is_empty(x.shape) or is_empty(indices.shape):
        return x
    x_lifted, source = lifted(x, cast(source, call.dtype))
    at = axis(dim, rank(x_lifted))
    shape = [1] * rank(x_lifted)
    shape[at] = product(indices.shape)
    places = w.broadcast_to(w.reshape(indices, shape), list(source.shape))
    name = {"mean": "mean", "prod": "prod", "amax": "amax", "amin": "amin"}[reduce]
    return reduce_at(call, x, dim, places, source, name, include_self)


# ---- masks
@rule(aten.masked_scatter.default)
def masked_scatter(call, x, mask, source):
    """The n-th place under the mask takes the n-th element of source."""
    if is_empty(call.shape) or is_empty(source.shape):
        return x
    shape = call.shape
    x, mask = w.broadcast_to(x, shape), w.broadcast_to(mask, shape)
    nth = w.sub(w.cumsum(cast(flat(mask), "i64"), 0), 1)
    found = w.reshape(w.gather(flat(cast(source, call.dtype)), nth, 0), shape)
    return w.select(mask, found, x)


@rule(aten.masked_scatter_backward.default)
def masked_scatter_backward(call, dy, mask, sizes):
    if is_empty(call.shape) or is_empty(dy.shape):
        return full(call, 0)
    mask = flat(w.broadcast_to(mask, list(dy.shape)))
    nth = w.sub(w.cumsum(cast(mask, "i64"), 0), 1)
    taken = w.scatter_add(zeros([product(call.shape)], call.dtype), w.select(mask, nth, -1),
                          flat(dy))
    return w.reshape(taken, call.shape)


# ---- segments of neighbours
def segment_bounds(data, lengths, offsets, at):
    """Returns where each segment begins and stops, [outer, segments]."""
    outer = product(data.shape[:at])
    if offsets is not None:
        edges = w.reshape(cast(offsets, "i64"), [outer, -1])
        count = edges.shape[1] - 1
        return slice_of(edges, 1, 0, count), slice_of(edges, 1, 1, count + 1)
    lengths = w.reshape(cast(lengths, "i64"), [outer, -1])
    stop = w.cumsum(lengths, 1)
    return w.sub(stop, lengths), stop


def segment_hits(data, start, stop, at):
    """Returns which elements along an axis each segment has, [outer, segments, elements, 1]."""
    shape = [*start.shape, data.shape[at], 1]
    if product(shape) * product(data.shape[at + 1:]) > MOST_COMPARISONS:
        raise Unsupported("segment_reduce of so many segments")
    place = w.iota(shape, 2, "i64")
    column = [*start.shape, 1, 1]
    return w.logical_and(w.greater_equal(place, w.reshape(start, column)),
                         w.less(place, w.reshape(stop, column)))


SEGMENT_REDUCTIONS = {"sum": "sum", "mean": "sum", "max": "amax", "min": "amin", "prod": "prod"}


@rule(aten.segment_reduce.default)
def segment_reduce(
    call, data, reduce, *, lengths=None, indices=None, offsets=None, axis=0, unsafe=False,
    initial=None,
):
    if lengths is None and offsets is None:
        raise Unsupported("segment_reduce by indices")
    if is_empty(call.shape) or is_empty(data.shape):
        raise Unsupported("segment_reduce without elements")
    start, stop = segment_bounds(data, lengths, offsets, axis)
    hit = segment_hits(data, start, stop, axis)
    outer, segments, count, _ = hit.shape
    inner = product(data.shape[axis + 1:])
    function, join, identity = reduction(SEGMENT_REDUCTIONS[reduce], data.dtype)
    shape = [outer, segments, count, inner]
    values = w.broadcast_to(w.reshape(data, [outer, 1, count, inner]), shape)
    y = function(w.select(w.broadcast_to(hit, shape), values, float(identity)), [2])
    if initial is not None:
        y = join(y, float(initial))
    if reduce == "mean":
        length = w.unsqueeze(w.sub(stop, start), 2)
        otherwise = math.nan if initial is None else float(initial)
        divided = w.div(y, cast(w.maximum(length, 1), data.dtype))
        y = w.select(w.greater(length, 0), divided, otherwise)
    return w.reshape(y, call.shape)


@rule(aten._segment_reduce_backward.default)
def segment_reduce_backward(
    call, dy, y, data, reduce, *, lengths=None, offsets=None, axis=0, initial=None
):
    start, stop = segment_bounds(data, lengths, offsets, axis)
    hit = segment_hits(data, start, stop, axis)
    outer, segments, count, _ = hit.shape
    inner = product(data.shape[axis + 1:])
    line, shape = [outer, segments, 1, inner], [outer, segments, count, inner]
    dy = w.reshape(dy, line)
    if reduce in ("max", "min"):
        # Equal extremes share the gradient.
        values = w.reshape(data, [outer, 1, count, inner])
        best = w.equal(values, w.reshape(y, line))
        hit = w.logical_and(w.broadcast_to(hit, shape), w.logical_or(best, w.is_nan(values)))
        dy = w.div(dy, w.maximum(w.sum(cast(hit, dy.dtype), [2], True), 1.0))
    elif reduce == "mean":
        length = w.reshape(w.maximum(w.sub(stop, start), 1), [outer, segments, 1, 1])
        dy = w.div(dy, cast(length, dy.dtype))
    elif reduce == "prod":
        factor = 1.0 if initial is None else float(initial)
        terms = w.select(w.broadcast_to(hit, shape),
                         w.broadcast_to(w.reshape(data, [outer, 1, count, inner]), shape), 1.0)
        dy = gradient(lambda x: w.mul(w.prod(x, [2], True), factor), [terms], dy)[0]
    shares = w.select(w.broadcast_to(hit, shape), w.broadcast_to(dy, shape), 0.0)
    return w.reshape(w.sum(shares, [1]), call.shape)
