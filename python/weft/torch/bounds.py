"""What elements of a batch may be: ids, labels and other places along an axis.

A plan reads zeros at places that do not exist, where torch raises. Those that come straight from an
argument, or by views of it, are looked at before each run.
"""

import torch

from .lower import line_of
from .views import base_of, seen_through

aten = torch.ops.aten
_NONE = -(1 << 63)  # where no element is allowed beside those of the range


def _shape(node):
    return [int(extent) for extent in node.meta["val"].shape]


def _embedding(weight, indices, *_, **__):
    return [(indices, 0, _shape(weight)[0], _NONE)]


def _nll_loss(x, labels, weight, reduction, ignore_index):
    shape = _shape(x)
    return [(labels, 0, shape[0] if len(shape) == 1 else shape[1], ignore_index)]


def _along(x, dim, indices, *_, **__):
    shape = _shape(x) or [1]
    return [(indices, 0, shape[dim], _NONE)]


def _index(x, indices):
    extents = zip(indices, _shape(x))
    return [(each, -extent, extent, _NONE) for each, extent in extents if each is not None]


_PLACES = {  # by operation: its places as (node, begin, end, another element that is allowed)
    aten.embedding.default: _embedding,
    aten._embedding_bag.default: _embedding,
    aten._embedding_bag_forward_only.default: _embedding,
    aten.nll_loss_forward.default: _nll_loss,
    aten.nll_loss2d_forward.default: _nll_loss,
    aten.gather.default: _along,
    aten.index_select.default: _along,
    aten.index.Tensor: _index,
}


def bounds_of(graph, layouts):
    """Returns the bounds of w._Call. `layouts` has, by placeholder, its place among the arguments
    of the call, its shape, and the strides that the call reads it with."""
    found = []
    for node in graph.nodes:
        places = _PLACES.get(node.target)
        for indices, begin, end, beside in places(*node.args, **node.kwargs) if places else []:
            base, views = base_of(indices)
            if base not in layouts or indices.meta["val"].dtype not in (torch.int64, torch.int32):
                continue
            place, shape, strides = layouts[base]
            views = torch.fx.node.map_arg(views, lambda n: n.meta["val"])
            whole = torch.empty_strided(shape, strides, device="meta")
            seen = seen_through(whole, views)
            where = line_of(node)
            found.append((
                place, indices.meta["val"].dtype.itemsize, seen.storage_offset(), list(seen.shape), list(seen.stride()), begin, end,
                beside, f"{node.target} ({where})" if where else str(node.target)))
    return found
