"""Values of a graph that are views of others, as torch makes them: without a plan."""

import operator

import torch

from .lower import order_of

aten = torch.ops.aten

# Operations that torch does on a tensor's sizes and strides alone.
_VIEWS = {
    aten.t.default, aten.permute.default, aten.transpose.int, aten.view.default,
    aten._unsafe_view.default, aten.unsqueeze.default, aten.squeeze.default, aten.squeeze.dim,
    aten.squeeze.dims,
    aten.detach.default, aten.alias.default, aten.slice.Tensor, aten.select.int,
    aten.expand.default,
}
_SPLITS = {aten.split.Tensor, aten.split_with_sizes.default, aten.unbind.int}  # views, in a list


def base_of(node):
    """Returns the value that a node is a view of, itself perhaps, and the views on the way."""
    views = []
    while node.op == "call_function" and _is_view(node):
        views.append((node.target, node.args[1:], node.kwargs))
        node = node.args[0]
    return node, views[::-1]


def _is_view(node):
    if node.target is operator.getitem:
        return node.args[0].target in _SPLITS
    if node.target is aten.as_strided.default:  # of memory that lies as in torch
        return order_of(node.args[0].meta["val"]) is not None
    return node.target in _VIEWS or node.target in _SPLITS


def seen_through(value, views):
    for target, rest, options in views:
        value = target(value, *rest, **options)
    return value
