"""torch.compile(model, backend="weft"): forward and backward pass as plans.

This file and step.py alone use what torch keeps private (torch._dynamo, torch._functorch).
"""

import contextlib
import copy
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import ShortenTraceback
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from .. import _weft as w
from .._compiled import _bytes
from .fallback import Mixed, fallback_of, planned
from .lower import line_of, modules_of, without_onednn
from .report import Fallback, GraphReport, report
from .rules import UNREAD
from .table import decompositions

MOST_SIZES = 32  # plans of a graph with symbolic sizes; torch computes further sizes


class Options:
    """What `options=` of torch.compile may say."""

    def __init__(self, *, memory=0, precision="f32", recompute="automatic", fallback="torch",
                 device="auto", sizes=MOST_SIZES):
        if fallback not in ("torch", "error"):
            raise w.UsageError(f"[torch] fallback is 'torch' or 'error'. Got {fallback!r}")
        self.strict = fallback == "error"
        self.sizes = sizes
        self.step = w.StepOptions(
            memory=_bytes(memory), precision=precision, recompute=recompute, device=device,
            lend_arguments=True)

    @classmethod
    def of(cls, given):
        try:
            return cls(**(given or {}))
        except TypeError as error:
            known = "memory, precision, recompute, fallback, device, sizes"
            raise w.UsageError(f"[torch] options are {known}. Got {', '.join(given)}") from error


class Graph:
    """A graph as AOTAutograd calls it: with a list of arguments, which it may empty."""

    def __init__(self, gm, examples, kind, options):
        self.gm, self.options = gm, options
        operations = [n for n in gm.graph.nodes if n.op == "call_function"]
        self.report = GraphReport(_name_of(gm), kind, len(operations), len(operations))
        report().graphs.append(self.report)
        self.is_symbolic = any(isinstance(each, torch.SymInt) for each in examples)
        self.plans = {}  # of a graph with symbolic sizes, by size
        self.plan = None
        if any(_is_nested(each) for each in examples):
            self.plan = self._left_to_torch(gm, "a nested tensor, whose rows differ in length")
        elif not self.is_symbolic:
            self.plan = self._planned(gm, examples)
        self._boxed_call = True

    def _planned(self, gm, examples):
        begin = time.perf_counter()
        try:
            plan, refused = planned(gm, examples, self.options.step, self.options.strict)
        except w.InternalError as error:
            if self.options.strict:
                raise
            return self._left_to_torch(gm, error)  # a defect of weft costs its user the plan alone
        self.report.seconds += time.perf_counter() - begin
        for part in plan.plans if isinstance(plan, Mixed) else [plan]:
            summary = part.summary()
            self.report.plans += 1
            self.report.arena_bytes = max(self.report.arena_bytes, summary.arena_bytes)
            self.report.argument_bytes = max(self.report.argument_bytes, summary.argument_bytes)
        if not self.report.fallbacks:
            self.report.fallbacks = [fallback_of(*each) for each in refused]
            self.report.in_plans -= len(refused)
            if refused:
                number = "one operation" if len(refused) == 1 else f"{len(refused)} operations"
                warnings.warn(
                    f"[weft] {self.report.name}: torch computes {number} between plans, as "
                    f"{self.report.fallbacks[0]}. weft.torch.report() has all of them",
                    stacklevel=3)
        return plan

    def _left_to_torch(self, gm, reason):
        if self.options.strict:
            raise w.UsageError(f"[torch] {self.report.name} runs in torch: {reason}")
        warnings.warn(f"[weft] {self.report.name} runs in torch: {reason}", stacklevel=3)
        self.report.in_plans = 0
        self.report.fallbacks = [Fallback("the whole graph", str(reason), self.report.name, "")]
        return lambda args: gm(*args)

    def __call__(self, args):
        plan = self.plan if self.plan is not None else self._plan_for(args)
        outputs = plan(args)
        args.clear()
        return outputs

    def _plan_for(self, args):
        """Plans the graph for the sizes of these arguments, without dynamo."""
        sizes = tuple(arg for arg in args if isinstance(arg, int))
        plan = self.plans.get(sizes)
        if plan is None and len(self.plans) < self.options.sizes:
            plan = self.plans[sizes] = self._planned(*_with_sizes(self.gm, args))
            self.report.sizes += 1
        return plan or self._beyond_limit(sizes)

    def _beyond_limit(self, sizes):
        """A plan for each of ever more sizes would cost more than it saves."""
        message = (
            f"{self.report.name} came in more than {self.options.sizes} sizes, of which "
            f"{list(sizes)} and later ones run in torch")
        if self.options.strict:
            raise w.UsageError(f"[torch] {message}")
        if self.report.in_torch == 0:
            warnings.warn(
                f"[weft] {message}. Hint: pad batches by weft.torch.buckets(), or set "
                'options={"sizes": ...}', stacklevel=3)
        self.report.in_torch += 1
        return lambda args: self.gm(*args)


def _is_nested(example):
    values = example.shape if isinstance(example, torch.Tensor) else [example]
    return any(isinstance(v, torch.SymInt) and v.node.is_nested_int() for v in values)


def _with_sizes(gm, args):
    """Returns a copy of a symbolic graph for the sizes of these arguments, and its inputs."""
    mode = FakeTensorMode()
    gm = copy.deepcopy(gm)
    examples = [
        mode.from_tensor(arg, static_shapes=True) if isinstance(arg, torch.Tensor) else arg
        for arg in args
    ]
    FakeTensorProp(gm, mode).propagate_dont_convert_inputs(*examples)
    return gm, examples


def _name_of(gm):
    """Returns the line a graph begins at, or the class of its module where no line of the user's
    stands behind it, as of an nn.Sequential."""
    for node in gm.graph.nodes:
        if line := line_of(node):
            return line
    stacks = (modules_of(node) for node in gm.graph.nodes)
    return next((kind.__name__ for [(_, kind), *_] in filter(None, stacks)), "graph")


def prepare_dynamo():
    """Lets dynamo trace what would cut a graph otherwise: recurrent layers, and the loggers with
    which losses of transformers warn."""
    torch._dynamo.config.allow_rnn = True
    logging = sys.modules.get("transformers.utils.logging")
    if logging is not None:
        torch._dynamo.config.ignore_logging_functions.add(logging.warning_once)


@contextlib.contextmanager
def for_dynamo():
    """Traces as weft's rules want it, and raises weft's errors as dynamo lets them through; others
    it wraps in its own, which `except weft.UsageError` misses."""
    try:
        with without_onednn():
            yield
    except w.Error as error:
        kind = type(error)
        refused = type(kind.__name__, (kind, ShortenTraceback), {"__module__": kind.__module__})
        made = refused.__new__(refused, *error.args)
        made.args, made.first_useful_frame = error.args, None
        made.__dict__.update(error.__dict__)
        raise made from error.__cause__


def backend(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], *, mode: str | None = None,
            options: Mapping[str, Any] | None = None) -> Callable[..., Any]:
    """The backend "weft" of torch.compile."""

    def compiler(kind):
        return lambda gm, examples: Graph(gm, examples, kind, settings)

    with for_dynamo():
        settings = Options.of(options)
        _check_devices(example_inputs)
        return aot_autograd(
            fw_compiler=compiler("forward"),
            bw_compiler=compiler("backward"),
            inference_compiler=compiler("inference"),
            decompositions=decompositions(),
            partition_fn=_partition,
        )(gm, example_inputs)


def _partition(joint, inputs, **options):
    """Cuts the joint graph in two, and leaves out what the rules of the backward pass do not read:
    a max pool's indices, of which the forward pass would make a tensor of integers."""
    for node in joint.graph.nodes:
        place = UNREAD.get(node.target)
        if place is not None and len(node.args) > place:
            node.update_arg(place, None)
    joint.graph.eliminate_dead_code()
    joint.recompile()
    return min_cut_rematerialization_partition(joint, inputs, **options)


def _check_devices(tensors):
    for tensor in tensors:
        if isinstance(tensor, torch.Tensor) and tensor.device.type != "cpu":
            raise w.UsageError(
                f"[torch] weft's plans run on torch's CPU tensors. Got one on {tensor.device}. "
                "Hint: weft.plan() takes models without memory")


__all__ = ["Graph", "Options", "backend"]
