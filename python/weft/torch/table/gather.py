"""Rules of reads and writes at indices that are values, and of sorts."""

from ..rules import (
    FLOATS, Unsupported, as_tensor, axis, cast, full, product, rank, rule, torch, w,
)
from .movement import is_empty, moved, slice_of, zeros

aten = torch.ops.aten


def wrapped(indices, extent):
    """Counts negative indices from the end, as torch does; weft reads zeros there."""
    indices = cast(indices, "i64")
    return w.select(w.less(indices, 0), w.add(indices, extent), indices)


def flat(x):
    return w.reshape(x, [product(x.shape)])


def is_mask(indices):
    return indices is not None and indices.dtype in ("bool", "u8")


# ---- indexing by tensors
class Indexed:
    """x[i, :, j]: the indexed axes of x joined as the first one, and positions along that."""

    def __init__(self, x, indices):
        indices = list(indices) + [None] * (rank(x) - len(indices))
        self.at = [a for a, each in enumerate(indices) if each is not None]
        self.rest = [a for a in range(rank(x)) if a not in self.at]
        self.extents = x.shape
        self.shape = list(torch.broadcast_shapes(*[indices[a].shape for a in self.at]))
        self.positions = None
        for a in self.at:
            index = w.broadcast_to(wrapped(indices[a], x.shape[a]), self.shape)
            if self.positions is None:
                self.positions = index
            else:
                self.positions = w.add(w.mul(self.positions, x.shape[a]), index)

    @property
    def rest_shape(self):
        return [self.extents[a] for a in self.rest]

    @property
    def place(self):
        """Returns where the indices' axes are in the result: first, or where neighbours were."""
        adjacent = self.at == list(range(self.at[0], self.at[0] + len(self.at)))
        return self.at[0] if adjacent else 0

    def rows(self, x):
        joined = product(self.extents[a] for a in self.at)
        return w.reshape(w.permute(x, self.at + self.rest), [joined] + self.rest_shape)

    def from_rows(self, rows):
        order = self.at + self.rest
        whole = w.reshape(rows, [self.extents[a] for a in order])
        return w.permute(whole, [order.index(a) for a in range(len(order))])

    def order(self):
        """Returns the axes of [indices.., rest..] in the order of torch's result."""
        count, before = len(self.shape), self.place
        kept = list(range(count, count + len(self.rest)))
        return kept[:before] + list(range(count)) + kept[before:]


@rule(aten.index.Tensor, aten._unsafe_index.Tensor)
def index(call, x, indices):
    if any(is_mask(each) for each in indices):
        raise Unsupported("a mask as an index gives a size that depends on the elements")
    if is_empty(call.shape):
        return full(call, 0)
    if all(each is None for each in indices):
        return x
    indexed = Indexed(x, indices)
    found = w.gather(indexed.rows(x), indexed.positions, 0)
    return w.permute(found, indexed.order()) if indexed.place else found


@rule(aten.index_put.default, aten._unsafe_index_put.default)
def index_put(call, x, indices, values, accumulate=False):
    if any(is_mask(each) for each in indices):
        return masked_put(x, indices, cast(values, call.dtype), accumulate)
    if is_empty(x.shape) or any(each is not None and is_empty(each.shape) for each in indices):
        return x
    indexed = Indexed(x, indices)
    order = indexed.order()
    target = indexed.shape + indexed.rest_shape
    values = w.broadcast_to(cast(values, call.dtype), [target[a] for a in order])
    values = w.permute(values, [order.index(a) for a in range(len(order))]) if order else values
    if accumulate:
        return indexed.from_rows(add_at(indexed.rows(x), indexed.positions, values))
    return indexed.from_rows(w.index_put(indexed.rows(x), indexed.positions, values))


def add_at(x, indices, updates):
    """Adds rows at indices along the first axis; bool takes any."""
    if x.dtype != "bool":
        return w.scatter_add(x, indices, updates)
    total = w.scatter_add(cast(x, "i32"), indices, cast(updates, "i32"))
    return w.greater(total, 0)


def masked_put(x, indices, values, accumulate):
    """Puts values under a mask, where each place gets the same value or row of values."""
    at, mask = next((a, each) for a, each in enumerate(indices) if each is not None)
    if sum(each is not None for each in indices) > 1 or at:
        raise Unsupported("index_put by a mask beside other indices")
    rest = list(x.shape[rank(mask):])
    if rank(values) > len(rest) and values.shape[0] != 1:
        raise Unsupported("index_put by a mask, of one value for each place")
    if rank(values) > len(rest):
        values = w.reshape(values, list(values.shape[1:]))
    mask = w.reshape(cast(mask, "bool"), list(mask.shape) + [1] * len(rest))
    values = w.broadcast_to(values, list(x.shape))
    return w.select(w.broadcast_to(mask, list(x.shape)),
                    w.add(x, values) if accumulate else values, x)


@rule(aten.index_select.default)
def index_select(call, x, dim, indices):
    if is_empty(call.shape):
        return full(call, 0)
    if rank(x) == 0:
        return x
    y = w.gather(x, flat(indices), axis(dim, rank(x)))
    return w.reshape(y, call.shape)


@rule(aten.take.default)
def take(call, x, indices):
    if is_empty(call.shape):
        return full(call, 0)
    return w.gather(flat(x), wrapped(indices, product(x.shape)), 0)


@rule(aten.put.default)
def put(call, x, indices, source, accumulate=False):
    if is_empty(x.shape) or is_empty(indices.shape):
        return x
    places = flat(wrapped(indices, product(x.shape)))
    source = flat(cast(source, call.dtype))
    put_at = add_at if accumulate else w.index_put
    return w.reshape(put_at(flat(x), places, source), call.shape)


# ---- whole slices at an index [M] along an axis
def by_rows(call, x, dim, function):
    """Applies a function of rows to an axis: it is moved to the front and back."""
    if rank(x) == 0:
        return w.reshape(function(w.reshape(x, [1])), [])
    at = axis(dim, rank(x))
    return moved(function(moved(x, at, 0)), 0, at)


def source_rows(source, x, dim, indices):
    source = w.reshape(source, [1]) if rank(source) == 0 else source
    at = axis(dim, max(rank(x), 1))
    shape = list(x.shape) or [1]
    shape[at] = product(indices.shape)
    return moved(w.reshape(source, shape), at, 0)


@rule(aten.index_add.default)
def index_add(call, x, dim, indices, source, *, alpha=1):
    if is_empty(x.shape) or is_empty(indices.shape):
        return x
    source = source_rows(cast(source, call.dtype), x, dim, indices)
    if alpha != 1:
        source = w.mul(source, float(alpha) if call.dtype in FLOATS else int(alpha))
    return by_rows(call, x, dim, lambda rows: add_at(rows, flat(indices), source))


@rule(aten.index_copy.default)
def index_copy(call, x, dim, indices, source):
    if is_empty(x.shape) or is_empty(indices.shape):
        return x
    source = source_rows(cast(source, call.dtype), x, dim, indices)
    return by_rows(call, x, dim, lambda rows: w.index_put(rows, flat(indices), source))


@rule(aten.index_fill.int_Scalar, aten.index_fill.int_Tensor)
def index_fill(call, x, dim, indices, value):
    if is_empty(x.shape) or is_empty(indices.shape):
        return x
    value = as_tensor(value, call.dtype)
    extent = x.shape[axis(dim, rank(x))] if rank(x) else 1

    def filled(rows):
        target = [product(indices.shape)] + list(rows.shape[1:])
        return w.index_put(rows, flat(wrapped(indices, extent)), w.broadcast_to(value, target))

    return by_rows(call, x, dim, filled)


# ---- sorts
def sortable(x):
    return cast(x, "u8") if x.dtype == "bool" else x


@rule(aten.sort.default)
def sort(call, x, dim=-1, descending=False):
    if is_empty(x.shape):
        return x, zeros(x.shape, "i64")
    if rank(x) == 0:
        return x, zeros([], "i64")
    at = axis(dim, rank(x))
    order = w.argsort(sortable(x), at, bool(descending))
    return w.take_along_axis(x, order, at), order


@rule(aten.sort.stable)
def sort_stable(call, x, *, stable, dim=-1, descending=False):
    return sort(call, x, dim, descending)


@rule(aten.argsort.default)
def argsort(call, x, dim=-1, descending=False):
    return sort(call, x, dim, descending)[1]


@rule(aten.argsort.stable)
def argsort_stable(call, x, *, stable, dim=-1, descending=False):
    return sort(call, x, dim, descending)[1]


@rule(aten.topk.default)
def topk(call, x, k, dim=-1, largest=True, sorted=True):
    if is_empty(call.results[0][0]):
        return tuple(zeros(*each) for each in call.results)
    if rank(x) == 0:
        return x, zeros([], "i64")
    at = axis(dim, rank(x))
    order = slice_of(w.argsort(sortable(x), at, bool(largest)), at, 0, k)
    return w.take_along_axis(x, order, at), order


# ---- counts
@rule(aten.repeat_interleave.Tensor)
def repeat_interleave(call, repeats, *, output_size=None):
    """Place j of the result is the first index whose repeats, summed up, are more than j."""
    if output_size is None:
        raise Unsupported("a size that depends on the elements")
    if is_empty(call.shape) or is_empty(repeats.shape):
        return full(call, 0)
    ends = w.cumsum(cast(repeats, "i64"), 0)
    shape = [call.shape[0], repeats.shape[0]]
    is_before = w.less_equal(w.unsqueeze(ends, 0), w.iota(shape, 0, "i64"))
    return cast(w.sum(cast(is_before, "i64"), [1]), call.dtype)


@rule(aten.one_hot.default)
def one_hot(call, indices, classes=-1):
    return w.one_hot(indices, call.shape[-1], call.dtype)
