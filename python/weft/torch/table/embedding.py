"""Rules of embeddings and bags of embeddings, and their gradients."""

from ..rules import Unsupported, cast, full, math, product, rule, torch, w
from .gather import flat
from .movement import is_empty, slice_of, zeros
from .scatter import MOST_COMPARISONS

aten = torch.ops.aten


@rule(aten.embedding.default)
def embedding(call, weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    if is_empty(call.shape):
        return full(call, 0)
    return w.gather(weight, indices, 0)


def counts_of(indices, rows, dtype):
    """Returns how often each row is named."""
    return w.scatter_add(zeros([rows], dtype), indices, w.full(list(indices.shape), 1.0, dtype))


@rule(aten.embedding_dense_backward.default)
def embedding_dense_backward(call, dy, indices, rows, padding_idx, scale_grad_by_freq):
    if is_empty(dy.shape):
        return full(call, 0)
    indices = cast(indices, "i64")
    if scale_grad_by_freq:
        count = w.gather(counts_of(indices, rows, dy.dtype), indices, 0)
        dy = w.div(dy, w.unsqueeze(count, -1))
    if padding_idx >= 0:
        indices = w.select(w.equal(indices, padding_idx), -1, indices)
    return w.scatter_add(full(call, 0), indices, dy)


@rule(aten.embedding_renorm.default)
def embedding_renorm(call, weight, indices, max_norm, norm_type):
    """Scales the named rows whose norm is greater than max_norm down to it."""
    norms = w.norm(weight, [1], True, float(norm_type))
    is_named = w.greater(counts_of(flat(indices), weight.shape[0], "f32"), 0.5)
    too_long = w.logical_and(w.unsqueeze(is_named, 1), w.greater(norms, float(max_norm)))
    factor = w.div(float(max_norm), w.add(norms, 1e-7))
    return w.select(too_long, w.mul(weight, factor), weight)


SUM, MEAN, MAX = range(3)


def bag_numbers(offsets, count, bags):
    """Returns the bag of each of `count` indices: how many bags begin at or before it, less 1."""
    place = w.iota([count, bags], 0, "i64")
    begun = w.greater_equal(place, w.reshape(cast(offsets, "i64"), [1, bags]))
    return w.sub(w.sum(cast(begun, "i64"), [1]), 1)


@rule(aten._embedding_bag.default, aten._embedding_bag_forward_only.default)
def embedding_bag(
    call, weight, indices, offsets, scale_grad_by_freq=False, mode=0, sparse=False,
    per_sample_weights=None, include_last_offset=False, padding_idx=-1,
):
    count, bags = product(indices.shape), call.results[0][0][0]
    width, dtype = weight.shape[1], weight.dtype
    if not count or not bags:
        return tuple(zeros(*each) for each in call.results)
    bag = bag_numbers(slice_of(offsets, 0, 0, bags), count, bags)
    rows = w.gather(weight, indices, 0)
    if per_sample_weights is not None:
        rows = w.mul(rows, w.reshape(cast(per_sample_weights, dtype), [count, 1]))
    if padding_idx >= 0:
        bag = w.select(w.equal(cast(indices, "i64"), padding_idx), -1, bag)
    size = w.scatter_add(zeros([bags], "i64"), bag, w.full([count], 1.0, "i64"))
    chosen = zeros([bags, width], "i64")
    if mode == MAX:
        y, chosen = greatest_of_bags(rows, indices, bag, size, bags)
    else:
        y = w.scatter_add(zeros([bags, width], dtype), bag, rows)
    if mode == MEAN:
        y = w.div(y, w.reshape(w.maximum(cast(size, dtype), 1.0), [bags, 1]))
    made = []
    for (shape, kind), value in zip(call.results, (y, bag, size, chosen)):
        fits = list(value.shape) == shape
        made.append(cast(value, kind) if fits else zeros(shape, kind))
    return tuple(made)


def greatest_of_bags(rows, indices, bag, size, bags):
    """Returns the greatest elements of each bag, and the rows of the weight that have them."""
    count, width = rows.shape
    if bags * count * width > MOST_COMPARISONS:
        raise Unsupported("embedding_bag of the maximum of so many rows")
    shape = [bags, count, width]
    hit = w.equal(w.iota(shape, 0, "i64"), w.reshape(bag, [1, count, 1]))
    seen = w.select(hit, w.broadcast_to(rows, shape), w.full(shape, -math.inf, rows.dtype))
    filled = w.greater(w.reshape(size, [bags, 1]), 0)
    y = w.select(filled, w.max(seen, [1]), zeros([bags, width], rows.dtype))
    places = w.gather(cast(indices, "i64"), w.argmax(seen, 1), 0)
    return y, w.select(filled, places, w.zeros_like(places))


@rule(aten._embedding_bag_dense_backward.default)
def embedding_bag_dense_backward(
    call, dy, indices, bag, size, chosen, rows, scale_grad_by_freq, mode, per_sample_weights,
    padding_idx=-1,
):
    width, dtype, count = dy.shape[1], dy.dtype, product(indices.shape)
    if not count or is_empty(dy.shape):
        return full(call, 0)
    indices = cast(indices, "i64")
    if mode == MAX:
        # Bags without elements chose nothing.
        filled = w.greater(w.reshape(size, [size.shape[0], 1]), 0)
        place = w.select(filled, w.mul(cast(chosen, "i64"), width), -rows * width)
        place = w.add(place, w.iota(list(chosen.shape), 1, "i64"))
        total = w.scatter_add(zeros([rows * width], dtype), flat(place), flat(dy))
        return w.reshape(total, call.shape)
    if mode == MEAN:
        share = w.maximum(cast(size, dtype), 1.0)
        dy = w.div(dy, w.reshape(share, [size.shape[0], 1]))
    updates = w.gather(dy, bag, 0)
    if per_sample_weights is not None:
        updates = w.mul(updates, w.reshape(per_sample_weights, [count, 1]))
    if scale_grad_by_freq:
        often = w.gather(counts_of(indices, rows, dtype), indices, 0)
        updates = w.div(updates, w.reshape(often, [count, 1]))
    if padding_idx >= 0:
        indices = w.select(w.equal(indices, padding_idx), -1, indices)
    return w.scatter_add(full(call, 0), indices, updates)


@rule(aten._embedding_bag_backward.default)
def embedding_bag_backward(
    call, dy, indices, offsets, bag, size, chosen, rows, scale_grad_by_freq, mode, sparse,
    per_sample_weights, padding_idx=-1,
):
    if sparse:
        raise Unsupported("a sparse gradient")
    count = product(indices.shape)
    if count and list(bag.shape) != [count]:  # torch leaves it out where it is cheap to find
        bag = bag_numbers(offsets, count, offsets.shape[0])
    return embedding_bag_dense_backward(
        call, dy, indices, bag, size, chosen, rows, scale_grad_by_freq, mode, per_sample_weights,
        padding_idx,
    )


@rule(aten._embedding_bag_per_sample_weights_backward.default)
def embedding_bag_weights_backward(
    call, dy, weight, indices, offsets, bag, mode, padding_idx=-1
):
    if is_empty(call.shape):
        return full(call, 0)
    count = product(indices.shape)
    if list(bag.shape) != [count]:
        bag = bag_numbers(offsets, count, offsets.shape[0])
    share = w.sum(w.mul(w.gather(dy, bag, 0), w.gather(weight, indices, 0)), [1])
    if padding_idx >= 0:
        share = w.select(w.equal(cast(indices, "i64"), padding_idx), w.zeros_like(share), share)
    return share
