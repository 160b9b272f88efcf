"""weft.torch.step(): forward pass, backward pass and update of a torch model as one plan.

AOTAutograd's joint graph has torch's own derivatives, so that detach(), no_grad() and custom
functions mean what they mean in eager mode. Parameters, buffers and the optimizer's state stay in
torch's memory, where the plan assigns them.
"""

import collections
import dis
import inspect
import re
import threading
import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypedDict, Unpack

import torch
from torch._dynamo import exc as dynamo
from torch._dynamo.backends.common import aot_autograd
from torch.nn.modules.module import _global_forward_hooks, _global_forward_pre_hooks
from torch.utils import _pytree as pytree

from .. import _weft as w
from .._compiled import _bytes
from .backend import for_dynamo, prepare_dynamo
from .lower import place_of
from .optimizers import Update, check as check_optimizer, has_hooks
from .plan import check_sized, weak
from .state import Stated
from .step_plan import StepPlan, is_tangent
from .table import decompositions


MOST_PLANS = 64  # of a step: one for each type of batch
MOST_SAME = 4  # plans for batches of the same shapes, behind which a warning says why
_FIXED = ("model", "loss", "optimizer", "clip_norm", "accumulate", "options")


class StepOptions(TypedDict, total=False):
    """Options of step()."""

    clip_norm: float | None
    accumulate: int
    memory: int | str
    precision: str
    recompute: str
    offload: Sequence[str]
    offload_folder: str
    device: str


class Step:
    """A training step of a torch model; call it with a batch, it returns the loss."""

    def __init__(self, model, loss, optimizer, *, clip_norm=None, accumulate=1, memory=0,
                 precision="f32", recompute="automatic", offload=(), offload_folder=".",
                 device="auto"):
        _check_model(model)
        if isinstance(loss, torch.optim.Optimizer) or not (loss is None or callable(loss)):
            raise w.UsageError(
                "[step] a loss is a function of the model's output, or None. Got "
                f"{type(loss).__name__}. Hint: the order is model, loss, optimizer")
        if accumulate < 1:
            raise w.UsageError(f"[step] accumulate is at least 1. Got {accumulate}")
        if not set(offload) <= {"gradients", "activations"}:
            raise w.UsageError(
                "[step] offload names 'gradients' and 'activations'; parameters and the "
                f"optimizer's state are in torch's memory. Got {list(offload)}")
        self.accumulate, self.micro_step = accumulate, 0
        self.model, self.loss, self.optimizer = model, loss, optimizer
        self.clip_norm = clip_norm
        self.options = w.StepOptions(
            memory=_bytes(memory), precision=precision, recompute=recompute,
            offload=list(offload), offload_folder=offload_folder, device=device,
            lend_arguments=True, keep_weights=False)  # anyone may write to torch's memory
        self.targets = _count_targets(loss)
        check_optimizer(optimizer)
        self.update = None  # made by the first call, as eager steps may come before it
        self.plans = []
        self.sums = {}  # of gradients over the micro-steps of an update, by id of the parameter
        self.summed = set()  # parameters that had a gradient since the latest update, by id
        self._assigned = set()  # entries of the watch that forward passes assign
        self._lock = threading.RLock()

    def __setattr__(self, name, value):
        if name in _FIXED and name in self.__dict__:
            raise w.UsageError(
                f"[step] {name} is fixed, as plans are made for it. Hint: make the step anew with "
                "weft.torch.step(), between two updates")
        super().__setattr__(name, value)

    def _forget(self):
        """Drops all plans, to plan anew with what the model and the optimizer are now."""
        _check_model(self.model)
        fresh = self.update.fresh if self.update is not None else ()
        self.update = Update(self.optimizer, fresh=fresh, summed=self.summed)
        self.states = {}  # by id: parameters and buffers as Stated
        self.sums = {at: held for at, held in self.sums.items() if at in self.update.group_of}
        self.summed &= self.sums.keys()
        self.plans = []
        self.known = []  # dynamo's guards, and the plan that they guard
        self._ran = None  # the plan of the latest call
        self._planned, self._plans_of = 0, collections.Counter()  # all plans, and by shapes
        self.names = {id(t): name for name, t in self._tensors()}
        prepare_dynamo()  # transformers may be imported since weft.torch was
        backend = aot_autograd(
            fw_compiler=weak(self._compile),
            bw_compiler=lambda gm, examples: _refuse_backward,
            inference_compiler=_refuse_inference,
            partition_fn=weak(self._partition),
            decompositions=decompositions(),
        )
        loss_of = _with_own_code(self._loss_of)
        self._code = loss_of.__code__
        self._function = torch.compile(
            loss_of, backend=for_dynamo()(backend), fullgraph=True, dynamic=False)
        self._held = {}  # tensors of the plans' states, by id
        self.note_states([])

    def _watched(self):
        """Returns what tells whether modules, tensors, hooks and the optimizer's state are those
        that the plans were made for: dynamo guards types of tensors, not which ones they are, and
        neither hooks nor methods of a class."""
        entries = self.update.entries()
        classes = set()
        for root in (self.model, self.loss):
            for module in root.modules() if isinstance(root, torch.nn.Module) else ():
                classes.add(type(module))
                for held in (module._modules, module._parameters, module._buffers):
                    entries += [(held, key, value) for key, value in held.items()]
                for hooks in (module._forward_hooks, module._forward_pre_hooks):
                    entries += _hooks(hooks)
                for hooks in (module._backward_hooks, module._backward_pre_hooks):
                    entries.append((hooks, None, 0))
        entries += [(kind, "forward", kind.forward) for kind in classes]
        for hooks in (_global_forward_hooks, _global_forward_pre_hooks):
            entries += _hooks(hooks)
        return w._Watch([e for e in entries if (id(e[0]), e[1]) not in self._assigned])

    def _tensors(self):
        """Returns names and tensors that may be state: those of the optimizer that the model has
        not come first, as of a loss with weights of its own."""
        for i, p in enumerate(self.update.parameters):
            yield f"optimizer.{i}", p
        for name, module in (("loss.", self.loss), ("", self.model)):
            if isinstance(module, torch.nn.Module):
                for each, tensor in [*module.named_parameters(), *module.named_buffers()]:
                    yield name + each, tensor

    def _loss_of(self, args, kwargs):
        if self.loss is None:
            output = self.model(*args, **kwargs)
            if isinstance(output, torch.Tensor):
                return output
            if type(output) in (tuple, list):  # as transformers' models return without a class
                return output[0]
            return output["loss"] if isinstance(output, dict) else output.loss
        inputs = args[: len(args) - self.targets]
        return self.loss(self.model(*inputs, **kwargs), *args[len(args) - self.targets:])

    def _partition(self, joint, inputs, *, num_fwd_outputs, **options):
        """Keeps the joint graph, which the plan is made of, and cuts it for AOTAutograd into what
        the forward pass returns and a backward pass that reads nothing, as it never runs."""
        self._joint = joint, num_fwd_outputs
        forward, backward = torch.fx.Graph(), torch.fx.Graph()
        outputs = forward.graph_copy(joint.graph, {})
        forward.output(outputs[:num_fwd_outputs])
        forward.eliminate_dead_code()
        for node in forward.find_nodes(op="placeholder"):
            if is_tangent(node):
                backward.node_copy(node)
                forward.erase_node(node)
        backward.output([None] * len(outputs[num_fwd_outputs:]))
        return torch.fx.GraphModule(joint, forward), torch.fx.GraphModule(joint, backward)

    def _compile(self, gm, examples):
        plan = StepPlan(self, *self._joint)
        self.plans.append(plan)
        return plan

    def __call__(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        if not torch.is_grad_enabled():
            with torch.inference_mode(False), torch.enable_grad():
                return self(*args, **kwargs)
        with self._lock:
            return self._run(args, kwargs)

    def _run(self, args, kwargs):
        if self.update is None or self._watch.changed() or self._places.have_moved() or (
            self.update.look()
        ):
            self._forget()
        loss = self._quick(args, kwargs)
        if loss is None:
            loss = self._by_dynamo(args, kwargs)
        self.micro_step = (self.micro_step + 1) % self.accumulate
        if self.micro_step == 0:
            self.update.after_run()
            self.summed.clear()
        return loss

    def updates(self):
        """Returns whether this call ends with an update, or only adds up gradients."""
        return self.micro_step == self.accumulate - 1

    def sum_of(self, stated):
        """Returns the sum of a parameter's gradients, which outlives plans."""
        shape = stated.variable.shape
        held = self.sums.get(id(stated.tensor))
        if held is None or held[1].shape != shape:
            made = w.Variable(
                f"gradient.{stated.name}", stated.variable.dtype, shape, "optimizer")
            held = self.sums[id(stated.tensor)] = stated.tensor, made
        return held[1]

    def _quick(self, args, kwargs):
        """Runs a known plan, where dynamo's guards say that it is still the plan of this call."""
        scope = _scope(self, args, kwargs)
        leaves, form = _flatten(args, kwargs)
        for guards, known_form, plan, places in self.known:
            if form == known_form and guards.check(scope):
                return plan.run_leaves(leaves, places)
        return None

    def _by_dynamo(self, args, kwargs):
        self._ran = None
        leaves, form = _flatten(args, kwargs)
        for leaf in leaves:
            if id(leaf) in self.names:
                raise w.UsageError(
                    f"[step] an input is {self.names[id(leaf)]}, which the model has as state. "
                    "Hint: clone() it")
        if not self.update.has_all_trained():  # somebody unfroze a parameter
            self._forget()
        with torch._dynamo.config.patch(recompile_limit=MOST_PLANS):
            try:
                loss = self._function(args, kwargs)
            except w.Error as error:
                raise _without_tail(error) from None
            except _UNTRACED as error:
                inner = getattr(error, "inner_exception", None)
                if isinstance(inner, w.InternalError):
                    raise
                raise _untraced(error, inner) from error
            except dynamo.FailOnRecompileLimitHit as error:
                raise w.UsageError(
                    f"[step] a step has at most {MOST_PLANS} plans, and this batch, of shapes "
                    f"{_shapes(args, kwargs)}, needs one more: the latest holds for "
                    f"{self._changed(0, args, kwargs)}. Hint: pad batches by weft.torch.buckets(), "
                    "and count calls outside of the model"
                ) from error
        if not isinstance(loss, torch.Tensor):
            raise w.UsageError(f"[step] a loss is one number. Got a {type(loss).__name__}")
        loss = loss.detach()
        plan = self._ran
        self._count_plans(args, kwargs)
        # What the forward pass itself assigns, its trace has read.
        assigned = {(id(at), key) for at, key, _ in self._watch.changed() if key is not None}
        if assigned:
            self._assigned |= assigned
            self._watch = self._watched()
        places = None
        if plan is not None:
            loss, places = plan.learn(leaves, loss)
        if places is not None:
            known = [(guards, form) for guards, form, *_ in self.known]
            for entry in torch._dynamo.eval_frame._debug_get_cache_entry_list(self._code):
                if (entry.guard_manager, form) not in known and entry.guard_manager.check(
                    _scope(self, args, kwargs)
                ):
                    if not _has_side_effects(entry.code):
                        self.known.append((entry.guard_manager, form, plan, places))
                    break
        return loss

    def _changed(self, age, args, kwargs):
        """Returns what a plan, by its age, holds for and this call is not, as dynamo's guard says
        with its line."""
        entries = torch._dynamo.eval_frame._debug_get_cache_entry_list(self._code)
        found = entries[age].guard_manager.check_verbose(_scope(self, args, kwargs))
        failed = [" ".join(part.split("(HINT:")[0].split()) for part in found.verbose_code_parts]
        return failed[0] if failed else "Python values that the model reads differ"

    def _count_plans(self, args, kwargs):
        """Says once that batches of the same shapes are planned anew, as no padding helps there."""
        if len(self.plans) == self._planned:
            return
        self._planned = len(self.plans)
        shapes = str(_shapes(args, kwargs))
        self._plans_of[shapes] += 1
        if self._plans_of[shapes] == MOST_SAME:
            warnings.warn(
                f"[step] batches of shapes {shapes} were planned {MOST_SAME} times, as Python "
                "values that the model reads change: the plan before holds for "
                f"{self._changed(1, args, kwargs)}", stacklevel=5)

    def stated(self, tensor):
        """Returns a parameter or buffer of the model as state, None for other tensors."""
        at = id(tensor)  # as a batch may be in memory that a parameter has, or had
        if at not in self.names or tensor.numel() == 0:
            return None
        if at not in self.states:
            kind = "parameter" if isinstance(tensor, torch.nn.Parameter) else "buffer"
            self.states[at] = Stated(self.names[at], tensor, kind)
        return self.states[at]

    def state_of(self, parameter):
        """Returns a parameter, by its id, as state."""
        return self.stated(self.sums[parameter][0])

    def note_states(self, states):
        """Watches the tensors of a plan, and the optimizer's state, once it is made."""
        self._held.update((id(s.tensor), s.tensor) for s in states)
        self._places = w._Places(
            torch.Tensor.__dlpack_c_exchange_api__, list(self._held.values()))
        self._watch = self._watched()

    def __reduce_ex__(self, protocol):
        raise TypeError(
            "[step] a step is not copied, as its plans are of this process: save the state_dict() "
            "of model and optimizer, and make it anew with weft.torch.step()")

    def plan(self) -> w.PlanSummary:
        """Returns memory and time of the latest plan (weft.PlanSummary)."""
        if not self.plans or not self.plans[-1].runs:
            raise w.UsageError("[step] nothing is planned before the first call")
        plan = self.plans[-1]
        return plan.runs[max(plan.runs)].step.plan(plan.types)


# Calls that dynamo's code makes for a graph: the graph's, and two that count its time.
_CALLS = 3


def _has_side_effects(code):
    """Returns whether dynamo's code does more than run its graph: what a model stores in Python, as
    a counter or its latest activations, is stored by that code, and a known plan would not."""
    names = [each.opname for each in dis.get_instructions(code)]
    return sum(name.startswith("CALL") for name in names) > _CALLS or any(
        name in ("STORE_ATTR", "STORE_SUBSCR", "STORE_GLOBAL", "DELETE_SUBSCR", "DELETE_ATTR")
        for name in names)


def _scope(step, args, kwargs):
    """Returns the local variables that dynamo's guards of a step's call read."""
    return {"self": step, "args": args, "kwargs": kwargs}


def _shapes(args, kwargs):
    leaves, _ = _flatten(args, kwargs)
    return [list(x.shape) for x in leaves if isinstance(x, torch.Tensor)]


def _refuse_backward(*args):
    raise w.UsageError(
        "[step] what a forward pass of a step stored has no backward pass. Hint: detach() it")


def _refuse_inference(gm, examples):
    raise w.UsageError("[step] nothing of the loss needs a gradient")


def _flatten(args, kwargs):
    """Returns the leaves of a call, and its form: the order of keys of its dicts may be another one
    in the next call, of which dynamo's guards say nothing."""
    leaves = (*args, *kwargs.values())
    if all(isinstance(leaf, torch.Tensor) for leaf in leaves):
        return leaves, (len(args), *kwargs)  # as tree_flatten() takes as long as a small plan
    return pytree.tree_flatten((args, kwargs))


def _hooks(hooks):
    """Returns what a watch compares of a module's hooks."""
    return [(hooks, None, len(hooks)), *((hooks, key, hook) for key, hook in hooks.items())]


_UNTRACED = (dynamo.Unsupported, dynamo.TorchRuntimeError, dynamo.UserError,
             dynamo.BackendCompilerFailed)


def _untraced(error, inner):
    """Returns in one sentence why dynamo cannot trace a model, with the user's line; its own
    message is the cause."""
    message = str(error if inner is None else inner)
    wrong = re.search(r"got \w+\((['\"])(.*)\1\)", message)
    reason = wrong[2] if wrong else f"torch.compile cannot trace this: {message.splitlines()[0]}"
    hint = "" if wrong else '. Hint: torch.compile(model, backend="weft") runs it in torch'
    line = place_of(getattr(error, "real_stack", None) or ())
    return w.UsageError(f"[step] {reason.rstrip('.')}{hint}{line}")


def _without_tail(error):
    """Returns an error of weft's without what dynamo adds behind its message."""
    made = type(error).__new__(type(error))
    made.__dict__.update(error.__dict__)
    made.args = str(error).split("\n\nSet TORCHDYNAMO")[0].split("\n\nfrom user code")[0],
    return made


def _with_own_code(method):
    """Returns a method with a code object of its own, as dynamo counts compilations by code, and
    all steps of a program would share one limit."""
    function = method.__func__
    own = types.FunctionType(
        function.__code__.replace(), function.__globals__, function.__name__)
    return types.MethodType(own, method.__self__)


def _count_targets(loss):
    """Returns how many of a batch's tensors the loss takes behind the model's output."""
    if loss is None:
        return 0
    function = loss.forward if isinstance(loss, torch.nn.Module) else loss
    required = [
        p for p in inspect.signature(function).parameters.values()
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    return max(len(required) - 1, 0)


def _check_model(model):
    if not isinstance(model, torch.nn.Module):
        raise w.UsageError(
            f"[step] a model is a torch.nn.Module. Got {type(model).__name__}. Hint: the order is "
            "model, loss, optimizer")
    if hasattr(model, "_orig_mod"):
        raise w.UsageError("[step] the model is compiled already: pass the module itself")
    if type(model).__name__ in ("DistributedDataParallel", "FullyShardedDataParallel"):
        raise w.UsageError(
            f"[step] a step runs on one device, and the model is wrapped in {type(model).__name__}")
    check_sized(model, "step")
    for name, parameter in model.named_parameters():
        if parameter.device.type != "cpu":
            raise w.UsageError(f"[step] {name} is on {parameter.device}, and a step on the CPU")
        if has_hooks(parameter):
            raise w.UsageError(f"[step] {name} has gradient hooks, which a plan cannot call")
    for name, module in model.named_modules():
        if module._backward_hooks or module._backward_pre_hooks:
            raise w.UsageError(
                f"[step] {name or 'the model'} has backward hooks, which a plan cannot call")


def step(model: torch.nn.Module, loss: Callable[..., torch.Tensor] | None,
         optimizer: torch.optim.Optimizer, **options: Unpack[StepOptions]) -> Step:
    """Makes a training step of a torch model that is one plan.

        step = weft.torch.step(model, torch.nn.functional.cross_entropy, optimizer)
        for x, y in loader:
            loss = step(x, y)

    The loss takes the model's output and the last tensors of the batch; None: the model's output
    is the loss, or has it as its attribute. Options: clip_norm, accumulate (every so many calls
    update, by the mean of their gradients), memory ("1.5GiB"), precision ("bf16"), recompute,
    offload (["activations"]: in files of offload_folder while no kernel needs them), device.
    """
    return Step(model, loss, optimizer, **options)


__all__ = ["Step", "step"]
