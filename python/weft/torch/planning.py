"""weft.plan(): what a torch model takes in memory and time, on any device, without running it.

The model is traced on fake tensors, so nothing of it is allocated or computed: it may be on torch's
"meta" device, and larger than this machine.
"""

import contextlib
import copy
import dataclasses
import html
import inspect
import json
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException, DynamicOutputShapeException, FakeTensor, FakeTensorMode,
)
from torch.fx import traceback as fx_traceback
from torch.func import functional_call, functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from .. import _html, _svg
from .. import _weft as w
from .._arrays import asarray
from .._compiled import _bytes
from .._process import LIBRARY_BYTES, resident_bytes
from .fallback import fallback_of
from .lower import Failed, Keys, lower, place_of, without_onednn
from .optimizers import Update
from .plan import Lowered, check_sized, type_in_memory
from .state import Stated, assigning
from .table import decompositions


_OPTIMIZERS = {
    "adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": torch.optim.SGD,
}


def _fake(mode, tensor):
    """Returns a tensor of the same type on the CPU that has no memory."""
    with mode:
        made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    return made.requires_grad_(tensor.requires_grad)


@contextlib.contextmanager
def _one_line():
    """Says in one line what torch refuses to trace: where the model needs elements of a tensor, as
    fake tensors have none, or where its types and shapes are wrong."""
    try:
        yield
    except w.Error:
        raise
    except (DataDependentOutputException, DynamicOutputShapeException, RuntimeError) as error:
        where = place_of(traceback.extract_tb(error.__traceback__))
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        if hasattr(error, "func"):
            reason = (f"{error.func}: the model depends on elements of a tensor, which a plan of "
                      "all steps does not know")
        raise w.UsageError(f"[torch] {reason}{where}") from error


@contextlib.contextmanager
def _kept(model):
    """Keeps what a model holds in Python: a trace runs its forward pass, which may count calls, or
    store what it computed, and then those are fake tensors."""

    def copied(value):
        if isinstance(value, torch.Tensor) and not value.is_meta and value.grad_fn is None:
            return value.detach().clone()
        return copy.copy(value) if isinstance(value, (list, dict, set)) else None

    own = set(map(id, [*model.parameters(), *model.buffers()]))
    held = []  # of each module: its attributes, and what may change in place
    for module in model.modules():
        attributes = dict(module.__dict__)
        held.append((module, attributes, [
            (value, before) for value in attributes.values()
            if id(value) not in own and (before := copied(value)) is not None]))
    try:
        yield
    finally:
        for module, attributes, values in held:
            module.__dict__.clear()
            module.__dict__.update(attributes)
            for value, before in values:
                if isinstance(value, torch.Tensor):  # whose version a trace leaves as it is
                    if not torch.equal(value, before):
                        value.detach().copy_(before)
                elif isinstance(value, list):
                    value[:] = before
                else:
                    value.clear()
                    value.update(before)


def _make_functional(node):
    """Makes an operation on memory of the graph's own one that returns a value: torch leaves those
    that read a constant, as labels that a loss closes over."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or not target._schema.is_mutable:
        return
    changed = node.args[0]
    if changed.op != "placeholder" and list(changed.users) == [node]:
        functional = getattr(torch.ops.aten, target._opname.removesuffix("_"), None)
        if functional is not None and target._overloadname in functional.overloads():
            node.target = getattr(functional, target._overloadname)


class _MetaOnCpu(TorchFunctionMode):
    """Takes meta tensors that a trace meets, as those a loss closes over, for fake ones on the CPU,
    since torch refuses to mix devices."""

    def __init__(self, mode):
        super().__init__()
        self._mode, self._known = mode, {}

    def __torch_function__(self, function, types, args=(), kwargs=None):
        args, kwargs = pytree.tree_map_only(torch.Tensor, self._on_cpu, (args, kwargs or {}))
        return function(*args, **kwargs)

    def _on_cpu(self, tensor):
        if isinstance(tensor, FakeTensor) or not tensor.is_meta:
            return tensor
        if id(tensor) not in self._known:  # one constant of the graph for each; both stay alive
            self._known[id(tensor)] = tensor, FakeTensor(self._mode, tensor, torch.device("cpu"))
        return self._known[id(tensor)][1]


class Traced:
    """A model's step as an FX graph: its placeholders are parameters, buffers, and the batch."""

    def __init__(self, model, args, kwargs, loss, trains=None):
        model = getattr(model, "_orig_mod", model)  # what torch.compile() wraps
        if not isinstance(model, torch.nn.Module):
            raise w.UsageError(f"[torch] a model is a torch.nn.Module. Got {type(model).__name__}")
        check_sized(model, "plan")
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)
        given = dict(model.named_parameters())
        self.names = {id(p): name for name, p in given.items()}
        self.parameters = {name: _fake(self.mode, p) for name, p in given.items()}
        self.buffers = {name: _fake(self.mode, b) for name, b in model.named_buffers()}
        if trains is None:
            trains = model.training and any(p.requires_grad for p in given.values())
        self.trains = trains
        self.stands_for_loss = False
        flat, spec = pytree.tree_flatten((args, kwargs))
        places = [i for i, each in enumerate(flat) if isinstance(each, torch.Tensor)]
        self.batch = [_fake(self.mode, flat[i]) for i in places]
        parameters, buffers = list(self.parameters), list(self.buffers)
        meta_on_cpu = _MetaOnCpu(self.mode)

        def step(*tensors):
            held = dict(zip(parameters + buffers, tensors))
            values = list(flat)
            for place, tensor in zip(places, tensors[len(held):]):
                values[place] = tensor
            args, kwargs = pytree.tree_unflatten(values, spec)
            # Tied parameters have one name in named_parameters(), and all of them get its value.
            with meta_on_cpu:
                output = functional_call(model, held, args, kwargs, tie_weights=True)
                if not self.trains:
                    return [o for o in pytree.tree_leaves(output) if isinstance(o, torch.Tensor)]
                value = self._loss_of(output, loss)
            trained = [t for t in tensors[: len(parameters)] if t.requires_grad]
            found = torch.autograd.grad(value, trained, allow_unused=True)
            return [value, *found]

        tensors = [*self.parameters.values(), *self.buffers.values(), *self.batch]
        # The metadata of nodes has the lines of the model.
        with (_kept(model), self.mode, fx_traceback.preserve_node_meta(), _one_line(),
              without_onednn()):
            gm = make_fx(step, tracing_mode="real", _allow_non_fake_inputs=True,
                         record_stack_traces=True)(*tensors)
            plain = [t.detach() for t in tensors]
            self.gm = make_fx(
                functionalize(torch.fx.Interpreter(gm).run),
                decomposition_table=decompositions(), tracing_mode="real",
                _allow_non_fake_inputs=True)(*plain)
        for node in self.gm.graph.nodes:
            _make_functional(node)
        self.gm.graph.eliminate_dead_code()

    def _loss_of(self, output, loss):
        if loss is not None:
            return loss(output)
        value = output if isinstance(output, torch.Tensor) else getattr(output, "loss", None)
        if isinstance(value, torch.Tensor) and value.dim() == 0:
            return value
        self.stands_for_loss = True
        outputs = [o for o in pytree.tree_leaves(output) if isinstance(o, torch.Tensor)]
        return sum(o.float().mean() for o in outputs if o.is_floating_point())


class Program(Lowered):
    """A traced step, with an optimizer's update behind it, as a step of weft without memory."""

    def __init__(self, traced, optimizer, tensors=None, accumulate=1, clip_norm=None):
        """`tensors` are the model's parameters and buffers by name; None: a plan needs none."""
        super().__init__(traced.gm)
        self.traced = traced
        self.is_planned_only = tensors is None
        self.clip_norm, self.totals = clip_norm, {}
        self.states = {}
        for kind, fakes in (("parameter", traced.parameters), ("buffer", traced.buffers)):
            for name, fake in fakes.items():
                if tensors is None:
                    self.states[name] = Stated(name, fake, kind, in_memory=False)
                else:
                    self.states[name] = Stated(name, tensors[name], kind)
                    self.states[name].before_run()
        self.update = None
        if traced.trains and optimizer is not None:
            trained = [p for p in traced.parameters.values() if p.requires_grad]
            with traced.mode:
                self.update = Update(_made(optimizer, traced), in_memory=False)
                self.update.make_state(
                    p for p, g in zip(trained, self.outputs[1:]) if g is not None)
        self.accumulate = accumulate if self.update is not None else 1
        self.result_count = sum(isinstance(n, torch.fx.Node) for n in self.outputs)
        self.types = [type_in_memory(t, None) for t in traced.batch]
        if self.update is not None:
            self.types.append(("f64", [len(self.update.optimizer.param_groups),
                                       len(self.update.names)]))
        self.types += self.further_types()

    def further_types(self):
        """A file has the constants of the graph as such."""
        return super().further_types() if self.is_planned_only else []

    def take_further(self, env, rest):
        if self.is_planned_only:
            return super().take_further(env, rest)
        for node, constant in self.constants.items():
            env[node] = asarray(constant)
        return Keys(None)

    def _results(self, inputs):
        rest = iter(inputs)
        states = list(self.states.values())
        stated = dict(zip(self.placeholders, states))
        env = {node: state.value() for node, state in stated.items()}
        for node in self.placeholders[len(states):]:
            env[node] = next(rest)
        settings = next(rest) if self.update is not None else None
        lower(self.gm.graph, env, self.take_further(env, rest), assigning(stated))
        values = [env[n] for n in self.outputs if isinstance(n, torch.fx.Node)]
        if self.update is None:
            return values
        trained = [s for s in states if s.tensor.requires_grad and s.category == "parameter"]
        pairs = [(s, env[g]) for s, g in zip(trained, self.outputs[1:])
                 if g is not None and id(s.tensor) in self.update.group_of]
        parameters, gradients = [s for s, _ in pairs], [g for _, g in pairs]
        if self.accumulate > 1:  # the last of its passes, which takes the most
            for i, total in enumerate(self._gradient_sums(parameters)):
                gradients[i] = w.mul(w.add(total.value(), gradients[i]), 1.0 / self.accumulate)
                total.assign(w.zeros_like(total.value()))
        if self.clip_norm is not None:
            gradients, _ = w.clip_grad_norm(gradients, float(self.clip_norm))
        self.update.apply(parameters, gradients, settings)
        self.update.finish()
        return values[:1]

    def _gradient_sums(self, parameters):
        for each in parameters:
            if each.name not in self.totals:
                self.totals[each.name] = w.Variable(
                    f"gradient.{each.name}", each.variable.dtype,
                    [int(extent) for extent in each.tensor.shape], "optimizer")
        return [self.totals[each.name] for each in parameters]

    def sums(self):
        """Returns the bytes of the state by purpose: name, category, bytes of each variable."""

        def bytes_of(states):
            return [s.tensor.numel() * s.tensor.element_size() for s in states]

        parameters = [s for n, s in self.states.items() if n in self.traced.parameters]
        buffers = [s for n, s in self.states.items() if n in self.traced.buffers]
        sums = [("parameters", "parameter", bytes_of(parameters))]
        if buffers:
            sums.append(("buffers", "buffer", bytes_of(buffers)))
        if self.update is not None:
            sums.append(("optimizer", "optimizer", bytes_of(self.update.all_states())))
        if self.accumulate > 1:
            summed = [s for s in parameters
                      if s.tensor.requires_grad and id(s.tensor) in self.update.group_of]
            sums.append(("gradients", "optimizer", bytes_of(summed)))
        return sums


def _made(optimizer, traced):
    """Returns an optimizer of the trace's parameters with the settings of one of torch's."""
    if isinstance(optimizer, torch.optim.Optimizer):
        known = inspect.signature(type(optimizer)).parameters
        groups = []
        for group in optimizer.param_groups:
            settings = {k: v for k, v in group.items() if k in known and k != "fused"}
            names = [traced.names[id(p)] for p in group["params"] if id(p) in traced.names]
            settings["params"] = [traced.parameters[name] for name in names]
            groups.append(settings)
        if not any(group["params"] for group in groups):
            raise w.UsageError(
                "[plan] the optimizer has no parameter of this model. Hint: a name, as "
                f"{', '.join(_OPTIMIZERS)}, stands for one of all parameters")
        return type(optimizer)(groups)
    parameters = [p for p in traced.parameters.values() if p.requires_grad]
    if optimizer not in _OPTIMIZERS:
        raise w.UsageError(
            f"[plan] optimizer is one of {', '.join(_OPTIMIZERS)}, None, or one of torch.optim. "
            f"Got {optimizer!r}")
    more = {"momentum": 0.9} if optimizer == "sgd" else {}
    return _OPTIMIZERS[optimizer](parameters, lr=1e-3, **more)


@dataclasses.dataclass(frozen=True)
class DevicePlan:
    """What a step takes on one device. Bytes, and seconds of one step."""

    name: str
    device: str
    fits: bool
    state: dict[str, int]
    arena_bytes: int
    constant_bytes: int
    staging_bytes: int
    runtime_bytes: int
    data_bytes: int
    memory_bytes: int
    process_bytes: int  # on this machine's CPU, what this process will have at its peak
    device_bytes: int
    flops: float
    bytes: float
    least_seconds: float
    seconds: float
    rematerialized: int
    remedies: list[tuple[str, float]]  # of (change, seconds), the quickest first
    refusal: str
    live_bytes: dict[str, list[float]]  # in the arena during each kernel, by category

    def _whole_state(self):
        """Returns the bytes that are there throughout a run, by what they are for."""
        return {**self.state, "constants": self.constant_bytes, "staging": self.staging_bytes}

    def memory_svg(self) -> str:
        """Returns a picture of the plan's memory over its kernels, as SVG text."""
        return _svg.memory_svg(f"memory of a step on {self.name}", self._whole_state(),
                               self.live_bytes, self.arena_bytes)

    def bars_svg(self) -> str:
        """Returns a picture of the plan's bytes by category, as SVG text."""
        bytes = _html.amounts(self._whole_state(), self.live_bytes, self.arena_bytes)
        return _svg.bars_svg(f"memory by category on {self.name}", {
            **bytes, "data": self.data_bytes, "the process": self.runtime_bytes})


class ModelPlan:
    """The plans of a model's step on devices; prints as a table."""

    def __init__(self, model: str, plans: Sequence[DevicePlan], note: str,
                 seconds: float) -> None:
        self.model, self.note, self.trace_seconds = model, note, seconds
        self.plans: dict[str, DevicePlan] = {plan.name: plan for plan in plans}

    def __getitem__(self, device: str) -> DevicePlan:
        return self.plans[device]

    def __iter__(self) -> Iterator[DevicePlan]:
        return iter(self.plans.values())

    def to_json(self) -> str:
        plans = [dataclasses.asdict(plan) for plan in self]
        for each in plans:
            del each["live_bytes"]  # a number for every kernel
        return json.dumps({"model": self.model, "note": self.note, "plans": plans}, indent=1)

    def _table(self):
        """Returns the rows of the table, in units that suit the largest of them."""
        largest = max((plan.memory_bytes for plan in self), default=0)
        scale, unit = (2**30, "GiB") if largest >= 2**30 else (2**20, "MiB")
        work = max((plan.flops for plan in self), default=0)
        size, flop = (1e12, "TFLOP") if work >= 1e12 else (1e9, "GFLOP")
        rows = [["device", "fits", unit, f"of {unit}", "state", "arena", "ms/step", flop]]
        for plan in self:
            amounts = [plan.memory_bytes, plan.device_bytes, sum(plan.state.values()),
                       plan.arena_bytes]
            rows.append([
                plan.name, "yes" if plan.fits else "no",
                *(f"{n / scale:.2f}" if n else "?" for n in amounts),
                f"{1e3 * plan.seconds:.3g}" if plan.seconds else "?", f"{plan.flops / size:.2f}"])
        return rows

    def _remarks(self):
        """Returns lines on the devices that the step does not fit."""
        lines = []
        for plan in self:
            if plan.fits:
                continue
            lines.append(f"{plan.name}: {plan.refusal or 'needs more memory than it has'}")
            for change, seconds in plan.remedies:
                lines.append(f"  fits with {change}, {1e3 * seconds:.1f} ms a step")
        return lines

    def __str__(self):
        rows = self._table()
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = [f"{self.model}: {self.note}"]
        for row in rows:
            cells = [row[0].ljust(widths[0])]
            cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
            lines.append("  ".join(cells))
        return "\n".join(lines + self._remarks())

    __repr__ = __str__

    def _repr_html_(self):
        """Returns the table, and pictures of the first device that the step fits."""
        parts = [f"<p>{html.escape(self.model)}: {html.escape(self.note)}</p>",
                 _html.table(self._table())]
        if remarks := self._remarks():
            parts.append(f"<pre>{html.escape(chr(10).join(remarks))}</pre>")
        shown = next((plan for plan in self if plan.fits and plan.live_bytes), None)
        if shown is not None:
            parts += [shown.bars_svg(), shown.memory_svg()]
        return "".join(parts)


def plan(model: torch.nn.Module, inputs: Any = (), *, on: str | Sequence[str] = "cpu",
         loss: Callable[[Any], torch.Tensor] | None = None,
         optimizer: str | torch.optim.Optimizer | None = "adamw", precision: str = "f32",
         memory: int | str = 0, recompute: str = "automatic", accumulate: int = 1,
         clip_norm: float | None = None) -> ModelPlan:
    """Plans a step of a torch model without allocating or running it.

        print(weft.plan(model, (x, y), on=["h100", "rtx4090"]))

    inputs: a tensor, a tuple of arguments, or a dict of keyword arguments; tensors of any device,
        "meta" too. on: a device of this machine or of the catalogue, or several.
    loss: a function of the model's output. Without one the output is the loss, or has it; of any
        other output the mean stands for it, which the plan says. A model in eval() is planned
        without a backward pass.
    optimizer: "adamw", "adam", "sgd", None, or an optimizer of torch, with its groups.
    accumulate, clip_norm: as of weft.torch.step(); the plan is of the pass that updates.
    """
    if accumulate < 1:
        raise w.UsageError(f"[plan] accumulate is at least 1. Got {accumulate}")
    begin = time.perf_counter()
    args, kwargs = (), {}
    if isinstance(inputs, dict):
        kwargs = inputs
    else:
        args = inputs if isinstance(inputs, tuple) else (inputs,)
    flat = pytree.tree_leaves((args, kwargs))
    with torch.inference_mode(False), torch.enable_grad():  # whatever the caller's mode is
        traced = Traced(model, args, kwargs, loss)
    program = Program(traced, optimizer, accumulate=accumulate, clip_norm=clip_norm)
    options = w.StepOptions(precision=precision, memory=_bytes(memory), recompute=recompute)
    step = program.new_step(options)
    note = "forward, backward and update" if traced.trains else "forward pass"
    if traced.stands_for_loss:
        note += " (the mean of the outputs stands for a loss)"
    plans = []
    for device in [on] if isinstance(on, str) else on:
        with program.refusals(lambda failed: refusal("plan", failed)):
            found = w._plan(step, program.types, device, options, program.sums())
        held = _held_bytes(model, flat) if found.get("runtime_bytes") else None
        plans.append(_device_plan(device, found, held))
    return ModelPlan(type(model).__name__, plans, note, time.perf_counter() - begin)


def refusal(what, failed):
    """Returns the error of a model that has an operation that weft lacks, with the user's line."""
    if not isinstance(failed, Failed):
        return w.UsageError(f"[{what}] {failed}")
    return w.UsageError(f"[{what}] torch's {fallback_of(failed.node, failed.reason)}")


def _held_bytes(model, batch):
    """Returns the bytes that this process has now beside the model, the batch and weft."""
    tensors = [*model.parameters(), *model.buffers(), *batch]
    own = {
        t.data_ptr(): t.numel() * t.element_size() for t in tensors
        if isinstance(t, torch.Tensor) and t.device.type == "cpu"
    }
    return max(resident_bytes() - LIBRARY_BYTES - sum(own.values()), 0)


def _device_plan(name, found, held):
    """`held` are the bytes of the process beside the plan; None on a device."""
    values = {
        field.name: found.get(field.name, 0)
        for field in dataclasses.fields(DevicePlan)
    }
    values.update(
        process_bytes=0 if held is None else found["memory_bytes"] + held,
        name=name, device=found.get("device") or name, refusal=found.get("refusal", ""),
        state=dict(found.get("state", [])), remedies=list(found["remedies"]),
        live_bytes=found.get("live_bytes", {}))
    return DevicePlan(**values)
