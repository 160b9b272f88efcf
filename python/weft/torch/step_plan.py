"""The plan of a step: the joint graph for the types of one batch, with the update behind it."""

import time
import weakref

import torch
from torch._functorch._aot_autograd.descriptors import PlainAOTOutput

from .. import _weft as w
from .lower import from_memory, line_of, lower, order_of, to_memory
from .plan import Caller, Lowered, draw_step, type_in_memory
from .report import GraphReport, report
from .rules import dtype_of
from .state import Stated, check_apart

_TORCH = {}  # weft's names to torch's dtypes
for _dtype in (
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32,
    torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.bool,
):
    _TORCH[dtype_of(_dtype)] = _dtype


def is_tangent(node):
    return node.name.startswith("tangents")


def _tangent(example, value):
    return w.full([int(d) for d in example.shape], value, dtype_of(example.dtype))


def _refusal(failed):
    line = line_of(failed.node)
    return w.UsageError(
        f"[step] {failed.node.target}: {failed.reason}. Hint: torch.compile(model, "
        f'backend="weft") runs it between plans' + (f" ({line})" if line else ""))


class Planned:
    """One step of a graph's, which assigns some of its states."""

    def __init__(self, step, call, states):
        self.step, self.call = step, call
        assigned = [s for s in states if s.is_assigned]
        self.changed = [s.tensor for s in assigned]
        self.staged = [s for s in states if s.is_staged]
        self.staged_back = [s for s in assigned if s.is_staged]


class StepPlan(Lowered):
    """The joint graph for the types of one batch, with the update behind it."""

    def __init__(self, owner, gm, forward_outputs):
        super().__init__(gm)
        self._owner = weakref.ref(owner)  # dynamo keeps plans until the step's code is gone
        self.forward_outputs = forward_outputs
        # The first outputs are new values of the arguments that the forward pass writes to.
        metadata = torch._guards.TracingContext.get().fw_metadata
        if metadata.tokens:
            raise w.UsageError(
                "[step] the model runs operations for their effects, as torch.linalg's checks of "
                'errors. Hint: torch.compile(model, backend="weft") runs them between plans')
        self.written = metadata.mutated_inp_runtime_indices
        self._of_written = [metadata.input_info[i] for i in self.written]
        tangents = [n for n in self.placeholders if is_tangent(n)]
        self.primals = [n for n in self.placeholders if not is_tangent(n)]
        # Those of what the forward pass writes or stores are 0, as nobody differentiates it.
        returned = [n for n in tangents if isinstance(n.meta["desc"].output, PlainAOTOutput)]
        of_one = [n for n in returned if n.meta["val"].numel() == 1]
        if len(returned) == 1 and not of_one:
            shape = list(returned[0].meta["val"].shape)
            raise w.UsageError(
                f"[step] a loss is one number. Got one of shape {shape}. Hint: take its mean()")
        if len(of_one) != 1:
            raise w.UsageError(
                "[step] the model stores a number that needs a gradient, or returns more than the "
                "loss. Hint: detach() what it stores")
        self.tangents = {n: float(n is of_one[0]) for n in tangents}  # and their value
        place = len(self.written) + of_one[0].meta["desc"].output.idx
        self.loss = sum(
            isinstance(n, torch.fx.Node) for n in self.outputs[len(self.written): place])
        self.inputs = None
        self.runs = {}  # by whether it updates, and which further parameters, as Planned
        self._boxed_call = True

    @property
    def owner(self):
        return self._owner()

    def _bind(self, args):
        """Plans the step, once the first arguments show which of them are state."""
        self.inputs = []  # by argument: a Stated, an order of axes, or a number
        self.runs.clear()
        types = []
        for arg in args:
            if not isinstance(arg, torch.Tensor):
                self.inputs.append(arg)
                continue
            stated = self.owner.stated(arg)
            if stated is not None:
                self.inputs.append(stated)
                continue
            order = order_of(arg) or list(range(arg.dim()))
            self.inputs.append(order)
            types.append(type_in_memory(arg, order))
        settings = self.owner.update.settings()
        types.append(("f64", list(settings.shape)))
        self.types = types + self.further_types()
        self.fixed = [c.contiguous() for c in self.constants.values()]
        self.addresses = [c.data_ptr() for c in self.fixed]
        gradients = self.outputs[self.forward_outputs:]
        for arg, each, gradient in zip(args, self.inputs, gradients):
            if isinstance(each, list) and gradient is not None:
                raise w.UsageError(
                    f"[step] a tensor of shape {list(arg.shape)} needs a gradient, and is neither "
                    "of the model nor of the loss or the optimizer. Hint: detach() an input; a net "
                    "that makes it is part of the model")
        for i, how in zip(self.written, self._of_written):
            self._check_written(self.inputs[i], how)
        self.trained = {
            id(each.tensor): each for each, gradient in zip(self.inputs, gradients)
            if isinstance(each, Stated) and gradient is not None
            and id(each.tensor) in self.owner.update.group_of}

    def _check_written(self, each, how):
        if not isinstance(each, Stated):
            raise w.UsageError(
                "[step] the model writes to its input, which a plan leaves as it is. Hint: clone() "
                "it")
        if how.mutates_metadata:
            raise w.UsageError(
                f"[step] the forward pass gives {each.name} other memory or another shape")
        # A parameter is written behind autograd's back, as torch allows nothing else.
        if how.requires_grad and not each.tensor.requires_grad:
            raise w.UsageError(
                f"[step] the forward pass writes a value that needs a gradient to {each.name}. "
                "Hint: detach() the value")

    def _states(self, updates, others):
        """Returns the state of the graph, and of an update, whose state the first of them makes."""
        states = [i for i in self.inputs if isinstance(i, Stated)]
        if updates:
            trained = [*self.trained.values(), *others]
            self.owner.update.make_state(each.tensor for each in trained)
            states += [*trained, *self.owner.update.all_states()]
        states = list({id(s): s for s in states}.values())
        check_apart(states)
        self.owner.note_states(states)
        return states

    def _planned(self, args, updates, others):
        """Plans the step with an update, or one that adds its gradients up. `others` are parameters
        that had gradients in earlier micro-steps alone."""
        states = self._states(updates, others)
        for state in states:
            state.is_assigned = False
        self._updates, self._others = updates, others
        step = self.new_step(self.owner.options)
        graph = GraphReport(type(self.owner.model).__name__, "step", 0, 0)
        graph.operations = graph.in_plans = len(self.gm.graph.nodes)
        begin = time.perf_counter()
        with self.refusals(_refusal):
            step.bind(self.types)
        graph.seconds = time.perf_counter() - begin
        summary = step.plan(self.types)
        graph.plans, graph.arena_bytes = 1, summary.arena_bytes
        graph.argument_bytes = summary.argument_bytes
        report().graphs.append(graph)
        places = [(i, each) for i, each in enumerate(self.inputs) if isinstance(each, list)]
        results = [(list(shape), _TORCH[dtype]) for dtype, shape in step.result_types()]
        call = Caller(step, args, places, results, self.gm.graph, self.primals, states)
        return Planned(step, call, states)

    def _results(self, inputs):
        rest = iter(inputs)
        env = {node: _tangent(node.meta["val"], value) for node, value in self.tangents.items()}
        for node, each in zip(self.primals, self.inputs):
            if isinstance(each, Stated):
                env[node] = each.value()
            elif isinstance(each, list):
                env[node] = from_memory(next(rest), each)
            else:
                env[node] = each
        settings = next(rest)
        lower(self.gm.graph, env, self.take_further(env, rest))
        outputs = self.outputs
        for i, value in zip(self.written, outputs):
            self.inputs[i].assign(env[value])
        self._update(outputs[self.forward_outputs:], env, settings)
        forward = outputs[len(self.written): self.forward_outputs]
        return [env[n] for n in forward if isinstance(n, torch.fx.Node)]

    def _update(self, gradients, env, settings):
        update = self.owner.update
        trained = {id(each) for each in self.trained.values()}
        wanted = {}  # of a tied parameter the gradients add up
        for each, gradient in zip(self.inputs, gradients):
            if gradient is None or id(each) not in trained:
                continue
            known = wanted.get(id(each))
            value = env[gradient]
            wanted[id(each)] = (each, value if known is None else w.add(known[1], value))
        parameters = [each for each, _ in wanted.values()]
        values = [value for _, value in wanted.values()]
        count = self.owner.accumulate
        if count > 1:
            sums = [self.owner.sum_of(each) for each in parameters]
            added = [
                w.add(total.value(), to_memory(value, each.order))
                for total, value, each in zip(sums, values, parameters)]
            for total, value in zip(sums, added):
                total.assign(w.zeros_like(value) if self._updates else value)
            if not self._updates:
                return
            for each in self._others:
                total = self.owner.sum_of(each)
                parameters.append(each)
                added.append(total.value())
                total.assign(w.zeros_like(total.value()))
            values = [
                from_memory(w.mul(value, 1.0 / count), each.order)
                for value, each in zip(added, parameters)]
        if self.owner.clip_norm is not None and values:
            kinds = sorted({str(value.dtype) for value in values})
            if len(kinds) > 1:
                raise w.UsageError(
                    f"[step] clip_norm takes gradients of one type. Got {' and '.join(kinds)}")
            values, _ = w.clip_grad_norm(values, float(self.owner.clip_norm))
        update.apply(parameters, values, settings)
        update.finish()

    def __call__(self, args):
        if self.inputs is None or any(
            isinstance(each, Stated) and arg.data_ptr() != each.pointer
            for each, arg in zip(self.inputs, args)
        ):
            try:
                self._bind(args)
            except w.Error:
                self.inputs = None  # so that the next call is refused, too
                raise
        self.owner._ran = self
        results = self._run(args)
        self._latest = list(args), results
        # AOTAutograd copies what it takes for new values to their arguments, which have them.
        results = [args[i] for i in self.written] + results
        args.clear()
        return results

    def _run(self, args):
        updates, others = self.owner.updates(), ()
        if self.owner.accumulate > 1:
            summed = self.owner.summed
            if updates and not summed <= self.trained.keys():
                others = tuple(sorted(summed - self.trained.keys()))
            summed.update(self.trained)
        if (updates, others) not in self.runs:
            stated = [self.owner.state_of(each) for each in others]
            self.runs[updates, others] = self._planned(args, updates, stated)
        planned = self.runs[updates, others]
        settings = self.owner.update.settings()
        further = [settings.data_ptr(), *self.addresses]
        if self.draws:
            drawn = draw_step()
            further.append(drawn.data_ptr())
        for state in planned.staged:
            state.before_run()
        results = planned.call(args, further)
        for state in planned.staged_back:
            state.after_run()
        torch.autograd.graph.increment_version(planned.changed)
        return results

    def learn(self, leaves, loss):
        """Returns the loss of the latest call, and the leaf that each of its arguments is, for
        run_leaves(); None where one is not known. `loss` is what dynamo takes for it, which is
        another result where a model writes to memory that it returns, too."""
        args, results = self._latest
        self._latest = None
        found = results[self.loss]
        at = {id(leaf): i for i, leaf in enumerate(leaves)}
        places = [
            (i, at.get(id(args[i])))
            for i, each in enumerate(self.inputs) if isinstance(each, list)]
        if found.shape == loss.shape and found.data_ptr() == loss.data_ptr():
            found = loss
        else:
            found = found.reshape([])
        return found, None if any(leaf is None for _, leaf in places) else places

    def run_leaves(self, leaves, places):
        """Runs with the leaves of a call, and returns the loss."""
        args = [None] * len(self.inputs)
        for i, leaf in places:
            args[i] = leaves[leaf]
        loss = self._run(args)[self.loss]
        return loss if loss.dim() == 0 else loss.reshape([])
