"""Batches padded to few sizes, so that few plans are made."""

import bisect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.nn import functional as F
from torch.utils import _pytree as pytree

from .. import _weft as w


def buckets(sizes: Iterable[int], *, axis: int = 1,
            pad: float | Mapping[str, float] = 0) -> Callable[[Any], Any]:
    """Returns a function that pads the tensors of a batch along an axis to the next of some sizes.

        bucketed = weft.torch.buckets([64, 128, 256], pad={"labels": -100})
        loader = DataLoader(..., collate_fn=lambda rows: bucketed(collate(rows)))

    The batch is a tensor, or tuples, lists and dicts of tensors; those without that axis, and other
    values, stay as they are. All padded tensors have one extent along it. `pad` is the value of new
    elements, for all tensors or by key of a dict (0 where a key is not in it): what the model
    and the loss leave out, such as a mask of 0 and labels of -100.
    """
    sizes = sorted(sizes)
    if not sizes or sizes[0] < 1:
        raise w.UsageError(f"[buckets] sizes are at least 1. Got {sizes}")
    if axis < 0:
        raise w.UsageError(f"[buckets] axis counts from the first, 0. Got {axis}")
    values = pad if isinstance(pad, dict) else {}
    default = 0 if isinstance(pad, dict) else pad

    def of(batch):
        leaves, form = pytree.tree_flatten_with_path(batch)
        long = [leaf for _, leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.dim() > axis]
        extents = {leaf.shape[axis] for leaf in long}
        if not extents:
            return batch
        if len(extents) > 1:
            raise w.UsageError(
                f"[buckets] tensors of a batch have one extent along axis {axis}. "
                f"Got {sorted(extents)}")
        extent = extents.pop()
        at = bisect.bisect_left(sizes, extent)
        if at == len(sizes):
            raise w.UsageError(
                f"[buckets] the largest size is {sizes[-1]}. Got {extent} along axis {axis}")

        def padded(path, leaf):
            if not isinstance(leaf, torch.Tensor) or leaf.dim() <= axis:
                return leaf
            key = getattr(path[-1], "key", None) if path else None
            after = [0, 0] * (leaf.dim() - 1 - axis) + [0, sizes[at] - extent]
            return F.pad(leaf, after, value=values.get(key, default))

        return pytree.tree_unflatten([padded(path, leaf) for path, leaf in leaves], form)

    return of
