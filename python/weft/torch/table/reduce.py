"""Reductions, norms, extremes and their indices, scans, order statistics and counts."""

from ..rules import (
    FLOATS, Unsupported, as_tensor, axes, axis, cast, dtype_of, full, math, product, rank, rule,
    torch, w,
)

aten = torch.ops.aten


def reduced_axes(dim, x):
    """Returns the axes to reduce. torch lets a scalar be reduced along axis 0, or -1."""
    return axes(dim, rank(x)) if rank(x) else []


# ---- sums, products and means

def reduction(function):
    """Returns the rule of a reduction that torch computes in the type of its result."""

    def lower(call, x, dim=None, keepdim=False, **options):
        return cast(function(cast(x, call.dtype), reduced_axes(dim, x), keepdim), call.dtype)

    return lower


rule(aten.sum.default, aten.sum.dim_IntList)(reduction(w.sum))
rule(aten.mean.default, aten.mean.dim)(reduction(w.mean))
rule(aten.prod.default, aten.prod.dim_int)(reduction(w.prod))
rule(aten.logsumexp.default)(reduction(w.logsumexp))


def truth(function):
    """Returns the rule of any() or all(), which are uint8 where their argument is."""

    def lower(call, x, dim=None, keepdim=False):
        over = [] if dim == [] else reduced_axes(dim, x)  # here no axes are none, and not all
        return cast(function(cast(x, "bool"), over, keepdim), call.dtype)

    return lower


rule(aten.any.default, aten.any.dim, aten.any.dims)(truth(w.any))
rule(aten.all.default, aten.all.dim, aten.all.dims)(truth(w.all))


def variance(x, dim, correction, keepdim):
    over = reduced_axes(dim, x)
    correction = 1 if correction is None else float(correction)
    count = product(x.shape[i] for i in over)
    if count > correction:
        return w.variance(x, over, keepdim, correction)
    # torch divides by 0 where there are too few elements: NaN, or infinity.
    centred = w.sub(x, w.mean(x, over, True))
    return w.mul(w.sum(w.square(centred), over, keepdim), math.inf)


@rule(aten.var.correction)
def var(call, x, dim=None, correction=1, keepdim=False):
    return variance(x, dim, correction, keepdim)


@rule(aten.std.correction)
def std(call, x, dim=None, correction=1, keepdim=False):
    return w.sqrt(variance(x, dim, correction, keepdim))


@rule(aten.var_mean.correction)
def var_mean(call, x, dim=None, correction=1, keepdim=False):
    return variance(x, dim, correction, keepdim), w.mean(x, reduced_axes(dim, x), keepdim)


@rule(aten.linalg_vector_norm.default)
def vector_norm(call, x, order=2, dim=None, keepdim=False, **options):
    x, over = cast(x, call.dtype), reduced_axes(dim, x)
    if order >= 0 or order == -math.inf:
        return w.norm(x, over, keepdim, float(order))
    total = w.sum(w.pow(w.abs(x), float(order)), over, keepdim)
    return w.pow(total, 1 / order)


# ---- extremes

def extreme(function, of_bool):
    def lower(call, x, dim=None, keepdim=False):
        chosen = of_bool if x.dtype == "bool" else function
        return chosen(x, reduced_axes(dim, x), keepdim)

    return lower


rule(aten.amax.default, aten.max.default)(extreme(w.max, w.any))
rule(aten.amin.default, aten.min.default)(extreme(w.min, w.all))


def index_of_extreme(find, x, dim, keepdim):
    """Returns the index of the first extreme, or of the first NaN, as torch does."""
    if dim is not None and not rank(x):
        return w.zeros([], "i64")
    if x.dtype == "bool":
        x = cast(x, "u8")
    return find(x, None if dim is None else axis(dim, rank(x)), keepdim)


@rule(aten.argmax.default)
def argmax(call, x, dim=None, keepdim=False):
    return index_of_extreme(w.argmax, x, dim, keepdim)


@rule(aten.argmin.default)
def argmin(call, x, dim=None, keepdim=False):
    return index_of_extreme(w.argmin, x, dim, keepdim)


@rule(aten.max.dim)
def max_with_index(call, x, dim, keepdim=False):
    value = extreme(w.max, w.any)(call, x, dim, keepdim)
    return value, index_of_extreme(w.argmax, x, dim, keepdim)


@rule(aten.min.dim)
def min_with_index(call, x, dim, keepdim=False):
    value = extreme(w.min, w.all)(call, x, dim, keepdim)
    return value, index_of_extreme(w.argmin, x, dim, keepdim)


# ---- scans

def scan(parts, at, combine):
    """Returns the inclusive scans of `parts` along an axis by combine(earlier, later).

    The function takes and returns as many tensors as there are parts, and is associative: the
    reach doubles with each pass (Hillis and Steele 1986).
    """
    extent, reach = parts[0].shape[at], 1
    while reach < extent:
        earlier = [w.slice(each, at, 0, extent - reach) for each in parts]
        later = [w.slice(each, at, reach, extent) for each in parts]
        begin = [w.slice(each, at, 0, reach) for each in parts]
        combined = combine(earlier, later)
        parts = [w.concat([a, b], at) for a, b in zip(begin, combined)]
        reach *= 2
    return parts


@rule(aten.cumsum.default)
def cumsum(call, x, dim, **options):
    x = cast(x, call.dtype)
    return cast(w.cumsum(x, axis(dim, rank(x))), call.dtype) if rank(x) else x


@rule(aten.cumprod.default)
def cumprod(call, x, dim, **options):
    x = cast(x, call.dtype)
    if not rank(x):
        return x
    return scan([x], axis(dim, rank(x)), lambda a, b: [w.mul(a[0], b[0])])[0]


@rule(aten.logcumsumexp.default)
def logcumsumexp(call, x, dim):
    if not rank(x):
        return x
    return scan([x], axis(dim, rank(x)), lambda a, b: [w.logaddexp(a[0], b[0])])[0]


def cumulative_extreme(x, dim, at_least):
    """Returns running extremes with their indices: the last of equal ones, and NaN for good."""
    if not rank(x):
        return x, w.zeros([], "i64")

    def later_where_extreme(earlier, later):
        takes = at_least(later[0], earlier[0])
        if x.dtype in FLOATS:
            takes = w.logical_or(takes, w.is_nan(later[0]))
        return [w.select(takes, b, a) for a, b in zip(earlier, later)]

    at = axis(dim, rank(x))
    return tuple(scan([x, w.iota(x.shape, at, "i64")], at, later_where_extreme))


@rule(aten.cummax.default)
def cummax(call, x, dim):
    return cumulative_extreme(x, dim, w.greater_equal)


@rule(aten.cummin.default)
def cummin(call, x, dim):
    return cumulative_extreme(x, dim, w.less_equal)


# ---- order statistics

def at_rank(x, at, place, keepdim):
    """Returns the element of a rank among those along an axis, and its index."""
    index = w.slice(w.argsort(x, at), at, place, place + 1)
    value = w.take_along_axis(x, index, at)
    return (value, index) if keepdim else (w.squeeze(value, at), w.squeeze(index, at))


def median_along(x, at, keepdim):
    """Returns the lower median, or the first NaN, with its index."""
    value, index = at_rank(x, at, (x.shape[at] - 1) // 2, keepdim)
    if x.dtype not in FLOATS:
        return value, index
    is_nan = cast(w.is_nan(x), "u8")
    has_nan = w.greater(w.max(is_nan, [at], keepdim), 0)
    first_nan = w.argmax(is_nan, at, keepdim)
    return w.select(has_nan, math.nan, value), w.select(has_nan, first_nan, index)


def nanmedian_along(x, at, keepdim):
    """Returns the lower median of the numbers, which a sort puts before the NaNs."""
    if x.dtype not in FLOATS:
        return median_along(x, at, keepdim)
    order = w.argsort(x, at)
    count = w.sum(cast(w.logical_not(w.is_nan(x)), "i64"), [at], True)
    place = w.floor_divide(w.maximum(w.sub(count, 1), 0), 2)
    index = w.take_along_axis(order, place, at)
    value = w.take_along_axis(x, index, at)
    return (value, index) if keepdim else (w.squeeze(value, at), w.squeeze(index, at))


def order_rules(along, packet):
    @rule(packet.dim)
    def of_axis(call, x, dim, keepdim=False):
        if not rank(x):
            return x, w.zeros([], "i64")
        return along(x, axis(dim, rank(x)), keepdim)

    @rule(packet.default)
    def of_all(call, x):
        if not product(x.shape):
            if x.dtype not in FLOATS:
                raise Unsupported("a median of no integers")
            return full(call, math.nan)
        return along(w.reshape(x, [-1]), 0, False)[0]


order_rules(median_along, aten.median)
order_rules(nanmedian_along, aten.nanmedian)


@rule(aten.kthvalue.default)
def kth_value(call, x, k, dim=-1, keepdim=False):
    if not rank(x):
        return x, w.zeros([], "i64")
    return at_rank(x, axis(dim, rank(x)), k - 1, keepdim)


@rule(aten.mode.default)
def mode(call, x, dim=-1, keepdim=False):
    """Returns the least of the most frequent values, and the last index of it."""
    if not rank(x):
        return x, w.zeros([], "i64")
    at = axis(dim, rank(x))
    same = w.equal(w.unsqueeze(x, at), w.unsqueeze(x, at + 1))
    count = w.sum(cast(same, "i64"), [at])
    is_frequent = w.equal(count, w.max(count, [at], True))
    order = w.argsort(x, at)
    first = w.argmax(cast(w.take_along_axis(is_frequent, order, at), "u8"), at, True)
    value = w.take_along_axis(x, w.take_along_axis(order, first, at), at)
    places = w.select(w.equal(x, value), w.iota(x.shape, at, "i64"), -1)
    # A line of NaNs alone has no most frequent value: NaN does not equal itself.
    index = w.maximum(w.max(places, [at], keepdim), 0)
    return value if keepdim else w.squeeze(value, at), index


# ---- counts

def count_before(boundaries, x, right):
    """Returns how many sorted boundaries [.., n] come before each x [.., m]; NaN is behind all."""
    edge, value = w.unsqueeze(boundaries, rank(boundaries) - 1), w.unsqueeze(x, -1)
    is_behind = w.greater(edge, value) if right else w.greater_equal(edge, value)
    if x.dtype in FLOATS:
        is_behind = w.logical_and(is_behind, w.logical_not(w.is_nan(value)))
    return w.sum(cast(w.logical_not(is_behind), "i64"), [-1])


def comparable(call, a, b):
    """Casts both to the type in which torch compares them."""
    first, second = call.argument_types()[:2]
    dtype = dtype_of(torch.result_type(first, second))
    return as_tensor(a, dtype), as_tensor(b, dtype)


@rule(aten.bucketize.Tensor, aten.bucketize.Scalar)
def bucketize(call, x, boundaries, *, out_int32=False, right=False):
    x, boundaries = comparable(call, x, boundaries)
    flat = w.reshape(x, [-1])
    return cast(w.reshape(count_before(boundaries, flat, right), call.shape), call.dtype)


@rule(aten.searchsorted.Tensor, aten.searchsorted.Scalar)
def searchsorted(call, edges, x, *, out_int32=False, right=False, side=None, sorter=None):
    right = right or side == "right"
    edges, x = comparable(call, edges, x)
    if sorter is not None:
        edges = w.take_along_axis(edges, sorter, -1)
    if rank(edges) == 1:
        x = w.reshape(x, [-1])
    return cast(w.reshape(count_before(edges, x, right), call.shape), call.dtype)


@rule(aten.histc.default)
def histogram(call, x, bins=100, low=0, high=0):
    """Counts the elements in equal bins from low to high; the last bin includes high."""
    x = w.reshape(cast(x, "f64"), [-1])
    if low == high:
        low, high = w.min(x), w.max(x)
        margin = cast(w.equal(low, high), "f64")
        low, high = w.sub(low, margin), w.add(high, margin)
    else:
        low, high = as_tensor(low, "f64"), as_tensor(high, "f64")
    place = w.floor(w.div(w.mul(w.sub(x, low), float(bins)), w.sub(high, low)))
    place = w.minimum(place, float(bins - 1))
    inside = w.logical_and(w.greater_equal(x, low), w.less_equal(x, high))
    bin_of = w.select(inside, cast(place, "i64"), -1)
    hit = w.equal(w.unsqueeze(bin_of, 0), w.iota([bins, 1], 0, "i64"))
    return cast(w.sum(cast(hit, "i64"), [1]), call.dtype)
