"""Rules that move elements: views, slices, joins, strides and diagonals."""

import numpy as np

from ..._arrays import asarray
from ..rules import Unsupported, axis, cast, full, product, rank, rule, torch, w

aten = torch.ops.aten


# ---- helpers, which other families use too
def constant(elements, dtype):
    """Returns numbers that are known when the graph is lowered as a tensor."""
    array = np.asarray(elements)
    wide = np.float64 if array.dtype.kind == "f" else np.int64
    return cast(asarray(array.astype(wide)), dtype)


def zeros(shape, dtype):
    return w.full(list(shape), 0.0, dtype)


def leaf(shape, dtype):
    """Returns zeros to differentiate by: views of plain zeros fold, and depend on them no more."""
    return w.stop_gradient(zeros(shape, dtype))


def is_empty(shape):
    return 0 in shape


def slice_of(x, at, start, stop, step=1):
    """Slices, or returns x where the slice is all of it."""
    if (start, stop, step) == (0, x.shape[at], 1):
        return x
    return w.slice(x, at, start, max(start, stop), step)


def moved(x, source, target):
    """Moves one axis to another place (torch.movedim)."""
    order = [a for a in range(rank(x)) if a != source]
    order.insert(target, source)
    return w.permute(x, order) if order != sorted(order) else x


def swapped(x, a, b):
    if a == b:
        return x
    order = list(range(rank(x)))
    order[a], order[b] = order[b], order[a]
    return w.permute(x, order)


def inserted(shape, at, extent=1):
    shape = list(shape)
    return shape[:at] + [extent] + shape[at:]


def outer_axes(x, count):
    """Adds `count` axes of extent 1 at the end."""
    return w.reshape(x, list(x.shape) + [1] * count)


# ---- views
@rule(
    aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten._reshape_alias.default,
    aten.view_copy.default, aten._reshape_copy.default,
    aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.unsqueeze.default,
    aten.squeeze_copy.default, aten.squeeze_copy.dim, aten.squeeze_copy.dims,
    aten.unsqueeze_copy.default,
)
def view(call, x, *_):
    return w.reshape(x, call.shape)


@rule(aten.view.dtype, aten.view_copy.dtype)
def view_dtype(call, x, dtype):
    if x.dtype == call.dtype:
        return x
    if tuple(call.shape) != x.shape:
        raise Unsupported("a view as a type of another width")
    return w.bitcast(x, call.dtype)


@rule(aten.permute.default, aten.permute_copy.default)
def permute(call, x, dims):
    return w.permute(x, [axis(d, rank(x)) for d in dims])


@rule(aten.transpose.int, aten.transpose_copy.int)
def transpose(call, x, a, b):
    return swapped(x, axis(a, rank(x)), axis(b, rank(x)))


@rule(aten.t.default, aten.t_copy.default)
def t(call, x):
    return swapped(x, 0, 1) if rank(x) == 2 else x


@rule(aten.expand.default, aten.expand_copy.default)
def expand(call, x, size, implicit=False):
    return w.broadcast_to(x, call.shape)


@rule(aten.alias_copy.default)
def alias_copy(call, x):
    return x


# ---- slices
def bounds(extent, start, end):
    """Returns the bounds of a slice within [0, extent], by Python's rules."""
    start = 0 if start is None else start
    end = extent if end is None else end
    start = min(max(start + extent if start < 0 else start, 0), extent)
    end = min(max(end + extent if end < 0 else end, start), extent)
    return start, end


@rule(aten.slice.Tensor, aten.slice_copy.Tensor)
def slice_tensor(call, x, dim=0, start=None, end=None, step=1):
    at = axis(dim, rank(x))
    first, stop = bounds(x.shape[at], start, end)
    return slice_of(x, at, first, stop, step)


@rule(aten.select.int, aten.select_copy.int)
def select_int(call, x, dim, index):
    at = axis(dim, rank(x))
    index %= x.shape[at]
    return w.reshape(slice_of(x, at, index, index + 1), call.shape)


def pieces(x, sizes, at):
    first = 0
    parts = []
    for size in sizes:
        parts.append(slice_of(x, at, first, first + size))
        first += size
    return parts


@rule(
    aten.split_with_sizes.default, aten.split_with_sizes_copy.default,
    aten.unsafe_split_with_sizes.default,
)
def split_with_sizes(call, x, sizes, dim=0):
    return pieces(x, sizes, axis(dim, rank(x)))


@rule(aten.split.Tensor, aten.split_copy.Tensor, aten.unsafe_split.Tensor)
def split(call, x, size, dim=0):
    at = axis(dim, rank(x))
    return pieces(x, [shape[at] for shape, _ in call.results], at)


@rule(aten.unbind.int, aten.unbind_copy.int)
def unbind(call, x, dim=0):
    at = axis(dim, rank(x))
    shape = list(x.shape[:at] + x.shape[at + 1:])
    return [w.reshape(part, shape) for part in pieces(x, [1] * x.shape[at], at)]


def placed(shape, x, at, start, step=1):
    """Returns zeros of `shape` with x at start, start + step, ... along an axis."""
    count = x.shape[at]
    if count == 0:
        return zeros(shape, x.dtype)
    if step > 1 and count > 1:
        spread = w.reshape(x, inserted(x.shape, at + 1))
        low = [0] * rank(spread)
        high = list(low)
        high[at + 1] = step - 1
        spread = w.pad(spread, low, high, 0.0)
        extents = list(x.shape)
        extents[at] = count * step
        x = slice_of(w.reshape(spread, extents), at, 0, (count - 1) * step + 1)
    low = [0] * len(shape)
    high = list(low)
    low[at], high[at] = start, shape[at] - start - x.shape[at]
    return w.pad(x, low, high, 0.0) if low[at] or high[at] else x


def replaced(x, part, at, start, stop):
    """Returns x with [start, stop) along an axis replaced."""
    parts = [slice_of(x, at, 0, start), part, slice_of(x, at, stop, x.shape[at])]
    parts = [each for each in parts if each.shape[at]]
    return w.concat(parts, at) if len(parts) > 1 else parts[0] if parts else x


@rule(aten.slice_backward.default)
def slice_backward(call, dy, sizes, dim, start, end, step):
    at = axis(dim, len(sizes))
    return placed(list(sizes), dy, at, bounds(sizes[at], start, end)[0], step)


@rule(aten.select_backward.default)
def select_backward(call, dy, sizes, dim, index):
    at = axis(dim, len(sizes))
    return placed(list(sizes), w.reshape(dy, inserted(dy.shape, at)), at, index % sizes[at])


@rule(aten.slice_scatter.default)
def slice_scatter(call, x, src, dim=0, start=None, end=None, step=1):
    at = axis(dim, rank(x))
    first, stop = bounds(x.shape[at], start, end)
    target = list(x.shape)
    target[at] = len(range(first, stop, step))
    src = w.broadcast_to(cast(src, call.dtype), target)
    if step == 1:
        return replaced(x, src, at, first, stop)
    if is_empty(target):
        return x
    place = w.sub(w.iota(call.shape, at, "i64"), first)
    hit = w.logical_and(w.greater_equal(place, 0), w.less(place, stop - first))
    hit = w.logical_and(hit, w.equal(w.remainder(place, step), 0))
    return w.select(hit, placed(call.shape, src, at, first, step), x)


@rule(aten.select_scatter.default)
def select_scatter(call, x, src, dim, index):
    at = axis(dim, rank(x))
    index %= x.shape[at]
    target = list(x.shape)
    target[at] = 1
    src = w.broadcast_to(w.reshape(cast(src, call.dtype), inserted(src.shape, at)), target)
    return replaced(x, src, at, index, index + 1)


# ---- strides
def memory_order(call, x, position=0):
    """Returns x as its row of elements in memory, which strides count in, and where it begins.

    Views of a part of a storage are refused, as strides may reach what is not in the view.
    """
    value = call.node.args[position].meta["val"]
    order = sorted(range(value.dim()), key=lambda a: (-value.stride(a), a))
    expected = 1
    for a in reversed(order):
        if value.size(a) != 1 and value.stride(a) != expected:
            raise Unsupported("as_strided of a tensor that is not dense")
        expected *= value.size(a)
    return order, int(value.storage_offset())


def strided_positions(size, stride, offset):
    """Returns the position in memory of each element of a strided view, of shape `size`."""
    place = w.full(list(size), float(offset), "i64")
    for a, step in enumerate(stride):
        if step and size[a] > 1:
            place = w.add(place, w.mul(w.iota(list(size), a, "i64"), step))
    return place


def check_reach(size, stride, first, count):
    last = first + sum((n - 1) * step for n, step in zip(size, stride))
    if first < 0 or last >= count:
        raise Unsupported("as_strided beyond the elements of a view")


@rule(aten.as_strided.default, aten.as_strided_copy.default)
def as_strided(call, x, size, stride, storage_offset=None):
    order, offset = memory_order(call, x)
    first = (offset if storage_offset is None else storage_offset) - offset
    size = list(size)
    if is_empty(size):
        return full(call, 0)
    check_reach(size, stride, first, product(x.shape))
    flat = w.reshape(w.permute(x, order) if order else x, [product(x.shape)])
    # A view of each element once, in some order of axes, is a permutation.
    places = sorted(range(len(size)), key=lambda a: (-stride[a], a))
    expected = 1
    for a in reversed(places):
        if size[a] != 1 and stride[a] != expected:
            return w.gather(flat, strided_positions(size, stride, first), 0)
        expected *= size[a]
    dense = w.reshape(slice_of(flat, 0, first, first + expected), [size[a] for a in places])
    return w.permute(dense, [places.index(a) for a in range(len(size))]) if size else dense


@rule(aten.as_strided_scatter.default)
def as_strided_scatter(call, x, src, size, stride, storage_offset=None):
    order, offset = memory_order(call, x)
    first = (offset if storage_offset is None else storage_offset) - offset
    if is_empty(size):
        return x
    check_reach(size, stride, first, product(x.shape))
    in_memory = w.permute(x, order) if order else x
    flat = w.reshape(in_memory, [product(x.shape)])
    src = w.broadcast_to(cast(src, call.dtype), list(size))
    written = w.index_put(flat, strided_positions(size, stride, first), src)
    written = w.reshape(written, list(in_memory.shape))
    return w.permute(written, [order.index(a) for a in range(rank(x))]) if order else written


# ---- joins and repetitions
@rule(aten.cat.default)
def cat(call, parts, dim=0):
    # torch skips empty vectors, of whatever rank the others are.
    parts = [cast(part, call.dtype) for part in parts if part.shape != (0,)]
    if not parts:
        return full(call, 0)
    return w.concat(parts, axis(dim, len(call.shape))) if len(parts) > 1 else parts[0]


@rule(aten.stack.default)
def stack(call, parts, dim=0):
    return w.stack([cast(part, call.dtype) for part in parts], axis(dim, len(call.shape)))


@rule(aten.flip.default)
def flip(call, x, dims):
    dims = [axis(d, rank(x)) for d in dims]
    return w.flip(x, dims) if dims and rank(x) else x


@rule(aten.roll.default)
def roll(call, x, shifts, dims=()):
    if is_empty(x.shape):
        return x
    if not dims:
        y = w.reshape(x, [product(x.shape)])
        shifts, places = list(shifts)[:1], [0]
    else:
        y, places = x, [axis(d, rank(x)) for d in dims]
    for shift, at in zip(shifts, places):
        if rank(x) == 0:
            continue
        extent = y.shape[at]
        shift %= extent
        if shift:
            cut = extent - shift
            y = w.concat([slice_of(y, at, cut, extent), slice_of(y, at, 0, cut)], at)
    return w.reshape(y, call.shape)


@rule(aten.rot90.default)
def rot90(call, x, k=1, dims=(0, 1)):
    a, b = (axis(d, rank(x)) for d in dims)
    turns = k % 4
    if turns == 1:
        return swapped(w.flip(x, [b]), a, b)
    if turns == 3:
        return w.flip(swapped(x, a, b), [b])
    return w.flip(x, [a, b]) if turns == 2 else x


@rule(aten.repeat.default, aten.tile.default)
def repeat(call, x, counts):
    if is_empty(call.shape):
        return full(call, 0)
    missing = max(len(counts) - rank(x), 0)
    x = w.reshape(x, [1] * missing + list(x.shape)) if missing else x
    return w.tile(x, list(counts)) if counts else x


@rule(aten.repeat_interleave.self_int)
def repeat_interleave(call, x, repeats, dim=None, *, output_size=None):
    if dim is None:
        x, dim = w.reshape(x, [product(x.shape)]), 0
    return w.repeat(x, repeats, axis(dim, rank(x)))


# ---- triangles and diagonals
@rule(aten.tril.default)
def tril(call, x, diagonal=0):
    return w.tril(x, diagonal)


@rule(aten.triu.default)
def triu(call, x, diagonal=0):
    return w.triu(x, diagonal)


@rule(aten.diagonal.default, aten.diagonal_copy.default, aten.linalg_diagonal.default)
def diagonal(call, x, offset=0, dim1=0, dim2=1):
    if call.target is aten.linalg_diagonal.default and call.node.kwargs.get("dim1") is None:
        dim1, dim2 = -2, -1
    if is_empty(call.shape):
        return full(call, 0)
    a, b = axis(dim1, rank(x)), axis(dim2, rank(x))
    rest = [i for i in range(rank(x)) if i not in (a, b)]
    rows, columns = x.shape[a], x.shape[b]
    flat = w.reshape(w.permute(x, rest + [a, b]), [x.shape[i] for i in rest] + [rows * columns])
    first = offset if offset >= 0 else -offset * columns
    count = call.shape[-1]
    return slice_of(flat, len(rest), first, first + (count - 1) * (columns + 1) + 1, columns + 1)


def on_diagonal(values, shape, offset, a, b):
    """Places values[..., k] on a diagonal of axes a and b of zeros: returns them and where."""
    hit = w.equal(w.sub(w.iota(shape, b, "i64"), w.iota(shape, a, "i64")), offset)
    along, across = (a, b) if offset >= 0 else (b, a)
    missing = shape[along] - values.shape[-1]
    if missing:
        values = w.pad(values, [0] * rank(values), [0] * (rank(values) - 1) + [missing], 0.0)
    # The values lie along the axis that counts them, and repeat along the other.
    line = moved(values, rank(values) - 1, along if along < across else along - 1)
    return w.broadcast_to(w.reshape(line, inserted(line.shape, across)), shape), hit


@rule(aten.diag_embed.default)
def diag_embed(call, x, offset=0, dim1=-2, dim2=-1):
    return diagonal_of(call, x, offset, dim1, dim2)


@rule(aten.diagonal_backward.default)
def diagonal_backward(call, dy, sizes, offset, dim1, dim2):
    return diagonal_of(call, dy, offset, dim1, dim2)


def diagonal_of(call, values, offset, dim1, dim2):
    if is_empty(call.shape) or is_empty(values.shape):
        return full(call, 0)
    a, b = axis(dim1, len(call.shape)), axis(dim2, len(call.shape))
    placed_values, hit = on_diagonal(values, call.shape, offset, a, b)
    return w.select(hit, placed_values, zeros(call.shape, call.dtype))


@rule(aten.diagonal_scatter.default)
def diagonal_scatter(call, x, src, offset=0, dim1=0, dim2=1):
    if is_empty(call.shape) or is_empty(src.shape):
        return x
    a, b = axis(dim1, rank(x)), axis(dim2, rank(x))
    placed_values, hit = on_diagonal(cast(src, call.dtype), call.shape, offset, a, b)
    return w.select(hit, placed_values, x)
