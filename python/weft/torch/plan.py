"""An FX graph of ATen operations as one plan, which reads and writes torch's own memory."""

import collections
import contextlib
import weakref

import torch

from .. import _weft as w
from .bounds import bounds_of
from .lower import (
    MOST_AXES, Keys, from_memory, inverse, is_ordered, is_random, lower, order_of, to_memory,
)
from .rules import Unsupported, dtype_of, is_tensor
from .views import base_of, seen_through


def weak(method):
    """Returns a bound method as a function that does not keep its object alive.

    A step keeps its function, and the object its step: a cycle through C++.
    """
    reference = weakref.WeakMethod(method)
    return lambda *args, **kwargs: reference()(*args, **kwargs)


def type_in_memory(tensor, order):
    """Returns dtype and shape of a dense tensor as a row-major one."""
    if tensor.dim() > MOST_AXES:
        raise w.UsageError(f"[torch] an input has at most {MOST_AXES} axes. Got {tensor.dim()}")
    extents = [int(tensor.size(a)) for a in order] if order else list(tensor.shape)
    return dtype_of(tensor.dtype), [int(extent) for extent in extents]


def check_sized(model, what):
    """Refuses lazy modules, whose shapes come with their first call."""
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if torch.nn.parameter.is_lazy(tensor):
            raise w.UsageError(
                f"[{what}] {name} has no shape yet. Hint: call the model once with a batch")


def draw_step():
    """Returns the number that all random operations of a run depend on, by torch's generator."""
    return torch.empty((), dtype=torch.int64).random_()


_DLPACK_CODES = {"i": 0, "u": 1, "f": 2, "bf": 4, "bool": 6}


def _dlpack_type(dtype):
    """Returns DLPack's code and bits of a dtype."""
    return _DLPACK_CODES[dtype_of(dtype).rstrip("0123456789")], dtype.itemsize * 8


def _strides(example, order):
    """Returns the strides that a tensor has whose elements lie in that order of its axes."""
    strides, step = [0] * len(order), 1
    for a in reversed(order):
        strides[a] = step
        step *= max(int(example.size(a)), 1)
    return strides


class Caller:
    """Runs a step on tensors of torch: `places` are its arguments, with their order of axes, and
    `made` shape and dtype of its results, which it returns as a list. `inputs` are the placeholders
    of the arguments in `graph`, and `states` what the step reads and assigns in place."""

    def __init__(self, step, examples, places, made, graph, inputs, states=()):
        self.places = places
        strides = [_strides(examples[i], order) for i, order in places]
        layouts = {
            inputs[i]: (at, list(map(int, examples[i].shape)), strides[at])
            for at, (i, _) in enumerate(places)}
        self._call = w._Call(
            step,
            torch.Tensor.__dlpack_c_exchange_api__,
            [(i, each) for (i, _), each in zip(places, strides)],
            [(_dlpack_type(dtype), shape) for shape, dtype in made],
            bounds_of(graph, layouts),
            [state.variable for state in states if not state.is_assigned],
            [(*state.span(), state.name) for state in states],
        )

    def __call__(self, args, further):
        results = self._call(args, further)
        if results is not None:
            return results
        args = list(args)
        for i, order in self.places:
            if not args[i].is_contiguous() if is_ordered(order) else order_of(args[i]) != order:
                args[i] = args[i].permute(order).contiguous().permute(inverse(order))
        return self._call(args, further)


class Given:
    """An output that is an input, or a view of one, which torch makes."""

    def __init__(self, index, views):
        self.index, self.views = index, views

    def of(self, args):
        return seen_through(args[self.index], self.views)


class Made:
    """An output that the plan writes to a tensor of its own, or a view of such an output."""

    def __init__(self, index, order, views):
        self.index, self.views = index, views
        self.permutation = None if is_ordered(order) else inverse(order)

    def of(self, results):
        value = results[self.index]
        if self.permutation is not None:
            value = value.permute(self.permutation)
        return seen_through(value, self.views) if self.views else value


class Lowered:
    """An FX graph that becomes a step: its constants and random numbers are inputs behind others.

    The refusal of a rule leaves C++ as another exception, so `failed` keeps it.
    """

    def __init__(self, gm):
        self.gm = gm
        self.placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
        self.outputs = next(n for n in gm.graph.nodes if n.op == "output").args[0]
        self.constants = {
            n: _attribute(gm, n.target) for n in gm.graph.nodes if n.op == "get_attr"
        }
        for constant in self.constants.values():
            if not isinstance(constant, torch.Tensor):
                raise w.UsageError(
                    f"[torch] the model reads a {type(constant).__name__}, for which a plan has no "
                    "place")
        self.draws = any(is_random(n) for n in gm.graph.nodes)
        self.failed = None

    def further_types(self):
        """Returns the types of the inputs behind those of the batch."""
        types = [type_in_memory(c, None) for c in self.constants.values()]
        return types + ([("i64", [])] if self.draws else [])

    def take_further(self, env, rest):
        """Takes those inputs from the rest of a step's, and returns the keys of random numbers."""
        for node in self.constants:
            env[node] = next(rest)
        return Keys(next(rest) if self.draws else None)

    def new_step(self, options):
        return w.Step(weak(self._lower), options)

    def _lower(self, inputs):
        try:
            return self._results(inputs)
        except Unsupported as failed:
            self.failed = failed
            raise

    @contextlib.contextmanager
    def refusals(self, error_of=lambda failed: failed):
        """Raises what error_of() makes of a rule's refusal within."""
        try:
            yield
        except Exception:
            if self.failed is not None:
                raise error_of(self.failed) from None
            raise


class Plan(Lowered):
    """One FX graph of ATen operations, for concrete sizes, as one plan.

    Calling it takes the graph's inputs as a list, and returns its outputs as a list.
    """

    def __init__(self, gm, examples, options):
        super().__init__(gm)
        self.examples = examples
        self.orders = [
            (order_of(e) or list(range(e.dim()))) if isinstance(e, torch.Tensor) else None
            for e in examples
        ]
        self.types = [
            type_in_memory(e, order)
            for e, order in zip(examples, self.orders) if order is not None
        ] + self.further_types()
        self.step = self.new_step(options)
        with self.refusals():
            self.step.bind(self.types)
        self.fixed = [c.contiguous() for c in self.constants.values()]
        self.addresses = [c.data_ptr() for c in self.fixed]
        places = [(i, order) for i, order in enumerate(self.orders) if order is not None]
        self.call = Caller(
            self.step, examples, places, self.made, gm.graph, self.placeholders)

    def _results(self, inputs):
        rest = iter(inputs)
        env = {}
        for node, example, order in zip(self.placeholders, self.examples, self.orders):
            env[node] = example if order is None else from_memory(next(rest), order)
        lower(self.gm.graph, env, self.take_further(env, rest))
        return self._returned(env)

    def _returned(self, env):
        """Returns the values that the plan makes, and notes in self.results what each output is,
        and in self.made the shape and dtype of the tensor for each value."""
        places = {node: i for i, node in enumerate(self.placeholders)}
        nodes = [n for n in self.outputs if isinstance(n, torch.fx.Node)]
        bases = collections.Counter(base_of(n)[0] for n in set(nodes))
        self.results, self.made, values, known = [], [], [], {}
        for node in self.outputs:
            if not isinstance(node, torch.fx.Node) or not is_tensor(env[node]):
                self.results.append(env[node] if isinstance(node, torch.fx.Node) else node)
                continue
            base, views = base_of(node)
            # Sizes that the graph computes are numbers in the plan of concrete sizes.
            views = torch.fx.node.map_arg(views, env.__getitem__)
            if base in places:
                self.results.append(Given(places[base], views))
                continue
            if bases[base] == 1:  # a view alone takes fewer bytes than what it is a view of
                base, views = node, []
            example = base.meta["val"]
            order = order_of(example) or list(range(example.dim()))
            index = known.setdefault(base, len(values))
            if index == len(values):
                values.append(to_memory(env[base], order))
                self.made.append(([int(example.size(a)) for a in order], example.dtype))
            self.results.append(Made(index, order, views))
        return values

    def summary(self):
        """Returns memory and time of the plan (weft.PlanSummary)."""
        return self.step.plan(self.types)

    def __call__(self, args):
        further = list(self.addresses)
        if self.draws:
            drawn = draw_step()
            further.append(drawn.data_ptr())
        results = self.call(args, further)
        return [
            r.of(results) if isinstance(r, Made) else r.of(args) if isinstance(r, Given) else r
            for r in self.results
        ]


def _attribute(module, path):
    for name in path.split("."):
        module = getattr(module, name)
    return module

