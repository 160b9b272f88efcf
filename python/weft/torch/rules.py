"""How a rule of the table (weft/torch/table) says what an ATen operation is in weft.

A rule is a function of a Call, which knows the node's results, and of the operation's arguments
with weft's tensors in place of torch's. It returns a tensor, or a tuple where torch does. What it
cannot say it refuses by Unsupported, and torch computes that node between two plans.

    @rule(aten.hypot.default)
    def hypot(call, x, y):
        return w.sqrt(w.add(w.square(x), w.square(y)))
"""

import math

import numpy
import torch

from .. import _weft as w
from .._arrays import asarray

RULES = {}  # by operation, or by the name of one that exists once its library is imported
UNREAD = {}  # operations to the place of an argument that their rule does not read

FLOATS = ("f16", "bf16", "f32", "f64")
# What weft stores, or computes with; torch's complex and quantized types are not among these.
DTYPES = {
    torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16",
    torch.int64: "i64", torch.int32: "i32", torch.int16: "i16", torch.int8: "i8",
    torch.uint8: "u8", torch.uint16: "u16", torch.uint32: "u32", torch.bool: "bool",
}


class Unsupported(w.UsageError):
    """A node that weft cannot compute, and why, for a report."""


def rule(*targets, unread=None):
    """Registers a function as the rule of these operations, or names ("library.name.overload").

    `unread` is the place of an argument that the rule does not read, so that a forward pass need
    not compute it for the backward pass.
    """

    def register(function):
        for target in targets:
            assert target not in RULES, f"two rules for {target}"
            RULES[target] = function
            if unread is not None:
                UNREAD[target] = unread
        return function

    return register


def rule_of(target):
    """Returns the rule of an operation, None where the table has none."""
    found = RULES.get(target)
    return RULES.get(str(target)) if found is None else found


def dtype_of(dtype):
    if dtype not in DTYPES:
        raise Unsupported(f"weft has no {dtype}")
    return DTYPES[dtype]


class Call:
    """The node that a rule lowers: the operation, and the types of its arguments and results."""

    def __init__(self, node, draw=None):
        self.node = node
        self.target = node.target
        self.value = node.meta.get("val")
        self._draw = draw

    @property
    def shape(self):
        return [int(extent) for extent in self.value.shape]

    @property
    def dtype(self):
        return dtype_of(self.value.dtype)

    @property
    def results(self):
        """Of an operation with several results: shape and dtype of each."""
        return [
            None if each is None else ([int(d) for d in each.shape], dtype_of(each.dtype))
            for each in self.value
        ]

    def argument_types(self):
        """What torch.result_type() takes: the example value of each argument."""
        return [
            arg.meta["val"] if isinstance(arg, torch.fx.Node) else arg for arg in self.node.args
        ]

    def random_key(self):
        """Returns step, seed and stream of a random operation of its own (weft.RandomKey)."""
        return self._draw()


def is_tensor(x):
    return isinstance(x, w.Tensor)


def cast(x, dtype):
    """Casts a tensor; numbers stay weak."""
    return w.cast(x, dtype) if is_tensor(x) and x.dtype != dtype else x


def number(x, dtype):
    """Returns a number as one of that dtype, and a tensor as it is."""
    if is_tensor(x):
        return x
    if dtype in FLOATS:
        return float(x)
    return wide_integer(x) if is_wide(x, dtype) else int(x)


def is_wide(x, dtype):
    """Returns whether a number is an integer that f64, as which weft keeps numbers, rounds."""
    return type(x) is int and dtype == "i64" and abs(x) > 2**53


def wide_integer(x):
    """Returns an integer as an element of a constant, as one of one element becomes a number."""
    return w.reshape(w.slice(asarray(numpy.array([x, 0], numpy.int64)), 0, 0, 1), [])


def as_tensor(x, dtype):
    if is_wide(x, dtype):
        return wide_integer(x)
    return cast(x, dtype) if is_tensor(x) else w.full([], float(x), dtype)


def full(call, value):
    if is_wide(value, call.dtype):
        return w.broadcast_to(wide_integer(value), call.shape)
    return w.full(call.shape, float(value), call.dtype)


def rank(x):
    return len(x.shape)


def axis(dim, rank):
    """Returns a dimension of torch, which may be negative, as an axis."""
    return dim % rank if rank else 0


def axes(dims, rank):
    """Returns dimensions of torch as axes: none, or an empty list, are all of them."""
    if rank == 0:
        return []
    if dims is None or (isinstance(dims, (list, tuple)) and not dims):
        return list(range(rank))
    return [axis(d, rank) for d in ([dims] if isinstance(dims, int) else dims)]


def every(value, count):
    """Returns a list of `count` numbers, as torch takes one number for all axes."""
    values = [value] if isinstance(value, int) else list(value)
    return values * count if len(values) == 1 else values


def reduced(x, reduction):
    """Applies a loss's reduction by torch's number: 0 none, 1 mean, 2 sum."""
    return x if reduction == 0 else (w.mean if reduction == 1 else w.sum)(x)


def gradient(function, inputs, dy):
    """Returns the gradients of inputs by weft's own rules, where dy is that of function(*inputs)."""
    # One value in two places would get the sum of both gradients, in each place.
    inputs = [w.stop_gradient(x) if is_tensor(x) else x for x in inputs]
    return w._gradients(function(*inputs), list(inputs), dy)


def product(extents):
    return math.prod(extents)
