"""Lowers an FX graph of ATen operations, with static shapes, to values of weft."""

import contextlib
import operator
import os
import re

import torch

from .. import _weft as w
from .rules import DTYPES, Call, Unsupported, is_tensor, rule_of

_TORCH_FOLDER = os.path.join(os.path.dirname(torch.__file__), "")  # torchvision's is no part of it
_FOLDER = os.path.join(os.path.dirname(__file__), "")
_LINE = re.compile(r'File "([^"]+)", line (\d+)')


class Failed(Unsupported):
    """A node that the table cannot lower; `reason` is for the report."""

    def __init__(self, node, reason):
        super().__init__(f"{node.target}: {reason}")
        self.node, self.reason = node, reason


def modules_of(node):
    """Returns path and class of the modules around a node, the outermost first."""
    return list(
        (node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}).values())


MOST_AXES = 8  # of weft's tensors


def origin_of(node):
    """Returns file, line and module path of the user's code behind a node."""
    found = _LINE.findall(node.meta.get("stack_trace") or "")
    file, line = found[-1] if found else ("", 0)
    stack = modules_of(node)
    path = str(stack[-1][0]) if stack else ""
    # The model is "fn" where dynamo has no frame of a forward() of the user's.
    return file, int(line), re.sub(r"^L\['(self|fn)'\]\.?(_modules)?\.?", "", path)


def line_of(node):
    """Returns file and line of the user's code behind a node, as "net.py:12"; "" where there is
    none."""
    file, line, _ = origin_of(node)
    return f"{file.rsplit('/', 1)[-1]}:{line}" if file else ""


def place_of(frames):
    """Returns file and line of the innermost frame of the user's code, as " (net.py:12)"; "" where
    there is none."""
    own = [f for f in frames if not f.filename.startswith((_TORCH_FOLDER, _FOLDER, "<"))]
    return f" ({os.path.basename(own[-1].filename)}:{own[-1].lineno})" if own else ""


def order_of(tensor):
    """Returns the axes of a dense tensor from outermost to innermost in memory, else None."""
    if tensor.is_contiguous():
        return list(range(tensor.dim()))
    order = sorted(range(tensor.dim()), key=lambda a: (-tensor.stride(a), a))
    expected = 1
    for a in reversed(order):
        if tensor.size(a) != 1 and tensor.stride(a) != expected:
            return None
        expected *= tensor.size(a)
    return order


def is_ordered(order):
    return order == sorted(order)


def inverse(order):
    return [order.index(a) for a in range(len(order))]


def from_memory(x, order):
    """Returns the torch tensor whose elements lie in memory as the row-major value x."""
    return x if is_ordered(order) else w.permute(x, inverse(order))


def to_memory(x, order):
    """Returns the row-major value that lies in memory as torch's tensor x, in that order of axes."""
    return x if is_ordered(order) else w.permute(x, order)


@contextlib.contextmanager
def without_onednn():
    """Keeps torch from oneDNN's recurrent layers, which it takes without gradients, while it traces:
    they have no rules."""
    was = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False
    try:
        yield
    finally:
        torch.backends.mkldnn.enabled = was


def is_random(node):
    if node.op != "call_function" or torch.Tag.nondeterministic_seeded not in getattr(
        node.target, "tags", ()
    ):
        return False
    for i, argument in enumerate(node.target._schema.arguments):
        if argument.name == "dropout_p":  # attention without dropout draws nothing
            rate = node.args[i] if i < len(node.args) else node.kwargs.get(
                "dropout_p", argument.default_value)
            return rate != 0
    return True


def is_known(node):
    """Returns whether a node is a number: a size, once the sizes of a symbolic graph are known."""
    return type(node.meta.get("val")) in (int, float, bool)


def has_rule(node):
    return node.target is operator.getitem or rule_of(node.target) is not None


def why_unsupported(node):
    """Returns why no rule can lower a node, whatever its arguments; None: a rule may."""
    if is_known(node):
        return None
    if not has_rule(node):
        return "no rule"
    values = [node.meta.get("val")]
    values += [arg.meta.get("val") for arg in node.all_input_nodes]
    for value in values:
        for each in value if isinstance(value, (list, tuple)) else [value]:
            if not isinstance(each, torch.Tensor):
                continue
            if each.dtype not in DTYPES:
                return f"weft has no {each.dtype}".replace("torch.", "")
            if each.dim() > MOST_AXES:
                return f"more than {MOST_AXES} axes"
            if each.layout != torch.strided:
                return f"a tensor of layout {each.layout}".replace("torch.", "")
    return None


class Keys:
    """Gives each random operation of a graph a stream of its own; `step` is drawn for each run."""

    def __init__(self, step):
        self._step, self._streams = step, 0

    def __call__(self):
        if self._step is None:
            raise Unsupported("random numbers in a graph without a generator")
        self._streams += 1
        return self._step, 0, self._streams


def lower(graph, env, keys, special=None):
    """Lowers the operations of an FX graph. `env` has weft's values of placeholders and constants.

    `special` handles operations that are not values: it returns None for a node that it leaves to
    the table. Raises Failed for a node that the table cannot lower.
    """

    def value_of(x):
        if isinstance(x, torch.fx.Node):
            return env[x]
        if isinstance(x, (list, tuple)):
            return [value_of(each) for each in x]
        if isinstance(x, torch.SymInt):
            return int(x)
        return x

    try:
        for node in graph.nodes:
            if node.op != "call_function":
                continue
            if is_known(node):
                env[node] = node.meta["val"]
                continue
            if node.target is operator.getitem:
                env[node] = env[node.args[0]][node.args[1]]
                continue
            handled = special(node, env) if special is not None else None
            if handled is not None:
                env[node] = handled
                continue
            env[node] = _lowered(node, value_of, keys)
    finally:
        w._set_origin()
    return env


def _lowered(node, value_of, keys):
    reason = why_unsupported(node)
    if reason is not None:
        raise Failed(node, reason)
    w._set_origin(*origin_of(node))
    arguments = [value_of(arg) for arg in node.args]
    options = {name: value_of(arg) for name, arg in node.kwargs.items()}
    try:
        made = rule_of(node.target)(Call(node, keys), *arguments, **options)
    except Unsupported as error:
        raise Failed(node, str(error)) from None
    except (w.Error, TypeError, ValueError, IndexError, KeyError, AttributeError) as error:
        raise Failed(node, f"{type(error).__name__}: {error}") from error
    _check(node, made)
    return made


def _check(node, made):
    """Checks that a rule made what torch says that the node is, as a wrong type is a wrong rule."""
    expected = node.meta.get("val")
    pairs = [(made, expected)]
    if isinstance(expected, (list, tuple)) and isinstance(made, (list, tuple)):
        pairs = zip(made, expected)
    for value, torch_value in pairs:
        if not is_tensor(value) or not isinstance(torch_value, torch.Tensor):
            continue
        shape = tuple(int(extent) for extent in torch_value.shape)
        dtype = DTYPES.get(torch_value.dtype)
        if value.shape != shape or value.dtype != dtype:
            raise Failed(
                node, f"lowered to {value.dtype}{list(value.shape)}, not {dtype}{list(shape)}"
            )
