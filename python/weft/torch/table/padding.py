"""Rules of padding: by a constant, by reflection and by repetition."""

import numpy as np

from ..rules import full, gradient, rank, rule, torch, w
from .movement import constant, is_empty, leaf, slice_of

aten = torch.ops.aten


def amounts(x, padding):
    """Returns torch's padding, pairs from the last axis on, as amounts before and after each."""
    low, high = [0] * rank(x), [0] * rank(x)
    for i in range(len(padding) // 2):
        low[-1 - i], high[-1 - i] = padding[2 * i], padding[2 * i + 1]
    return low, high


def cropped(x, low, high):
    """Cuts off where padding is negative, and returns the amounts that remain."""
    for a in range(rank(x)):
        if low[a] < 0 or high[a] < 0:
            x = slice_of(x, a, max(-low[a], 0), x.shape[a] + min(high[a], 0))
    return x, [max(n, 0) for n in low], [max(n, 0) for n in high]


@rule(aten.constant_pad_nd.default)
def constant_pad_nd(call, x, padding, value=0):
    if is_empty(call.shape):
        return full(call, 0)
    if is_empty(x.shape):
        return full(call, value)
    x, low, high = cropped(x, *amounts(x, padding))
    return w.pad(x, low, high, float(value)) if any(low) or any(high) else x


def reflected(x, padding):
    low, high = amounts(x, padding)
    added = [max(n, 0) for n in low], [max(n, 0) for n in high]
    y = w.reflect_pad(x, *added) if any(added[0] + added[1]) else x
    # Elements are cut off after those of the other end were reflected.
    return cropped(y, [min(n, 0) for n in low], [min(n, 0) for n in high])[0]


def replicated(x, padding):
    low, high = amounts(x, padding)
    for a in range(rank(x)):
        if low[a] == 0 and high[a] == 0:
            continue
        extent = x.shape[a]
        if min(low[a], high[a]) < 0:  # the last element repeats even where it is cut off
            places = np.clip(np.arange(-low[a], extent + high[a]), 0, extent - 1)
            x = w.gather(x, constant(places, "i64"), a)
            continue
        parts = [
            w.repeat(slice_of(x, a, 0, 1), low[a], a), x,
            w.repeat(slice_of(x, a, extent - 1, extent), high[a], a),
        ]
        x = w.concat([part for part in parts if part.shape[a]], a)
    return x


def padding_rules(name, function):
    for spatial in (1, 2, 3):

        @rule(getattr(aten, f"{name}{spatial}d").default)
        def forward(call, x, padding):
            return full(call, 0) if is_empty(call.shape) else function(x, padding)

        @rule(getattr(aten, f"{name}{spatial}d_backward").default)
        def backward(call, dy, x, padding):
            if is_empty(dy.shape):
                return full(call, 0)
            return gradient(lambda x: function(x, padding), [leaf(x.shape, x.dtype)], dy)[0]


padding_rules("reflection_pad", reflected)
padding_rules("replication_pad", replicated)
