"""torch's tensors as variables of weft: parameters, buffers, the optimizer's state, in place."""

import torch

from .. import _weft as w
from .lower import Failed, from_memory, order_of, to_memory
from .rules import dtype_of

ALIGNMENT = 64  # bytes, to which kernels store


class Stated:
    """A tensor of torch that plans read and assign where it is.

    One whose memory is not dense, or not aligned, is staged: copied to aligned memory before each
    run, and back after it.
    """

    def __init__(self, name, tensor, category, in_memory=True):
        """A state that is not in memory is only planned; its tensor is a fake one."""
        self.name, self.tensor, self.category = name, tensor, category
        order = order_of(tensor)
        self.is_staged = in_memory and (order is None or tensor.data_ptr() % ALIGNMENT != 0)
        self.memory = tensor.detach()
        if self.is_staged:
            self.memory = torch.empty(tensor.shape, dtype=tensor.dtype)
            order = None
        self.order = order or list(range(tensor.dim()))
        self.pointer = tensor.data_ptr() if in_memory else None
        self.variable = w.Variable(
            name, dtype_of(tensor.dtype), [int(tensor.size(a)) for a in self.order], category)
        if in_memory and tensor.numel() > 0:
            self.variable._adopt(self.memory.data_ptr(), self.memory)
        self.is_assigned = False

    def value(self):
        return from_memory(self.variable.value(), self.order)

    def assign(self, value):
        self.is_assigned = True
        self.variable.assign(to_memory(value, self.order))

    def span(self):
        """Returns the addresses of the tensor's first element, and of the byte behind its last."""
        last = sum((n - 1) * step for n, step in zip(self.tensor.shape, self.tensor.stride()))
        bytes = (last + 1) * self.tensor.element_size() if self.tensor.numel() > 0 else 0
        return self.pointer, self.pointer + bytes

    def before_run(self):
        if self.is_staged:
            self.memory.copy_(self.tensor.detach())
            self.variable._note_write()

    def after_run(self):
        """Copies a staged tensor back, after a run that assigned it."""
        self.tensor.detach().copy_(self.memory)


def check_apart(states):
    """Refuses tensors that share memory, since a plan takes each for a variable of its own."""
    spans = sorted((*s.span(), s.name) for s in states if s.tensor.numel() > 0)
    for (_, end, name), (begin, _, other) in zip(spans, spans[1:]):
        if begin < end:
            raise w.UsageError(f"[step] {name} and {other} share memory in part")


def assigning(states):
    """Returns the `special` of lower() that assigns what a graph copies to its state, which
    `states` has by placeholder."""

    def assign(node, env):
        if node.target is not torch.ops.aten.copy_.default:
            return None
        to, value = node.args[0], env[node.args[1]]
        if to.op != "placeholder":  # memory that the graph itself made
            shape = [int(extent) for extent in node.meta["val"].shape]
            return w.broadcast_to(w.cast(value, dtype_of(node.meta["val"].dtype)), shape)
        if to not in states:
            raise Failed(node, "the model writes to its input, which a plan leaves as it is")
        states[to].assign(value)
        return value

    return assign
