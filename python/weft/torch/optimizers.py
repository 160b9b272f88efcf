"""torch's optimizers as updates of weft, over torch's own state tensors.

Rates, decays and the bias corrections are values of a run, in float64 as torch computes them, so
that a schedule changes no plan. The state has torch's names, and optimizer.state_dict() is torch's.
"""

import weakref

import torch
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

from .. import _weft as w
from .state import Stated

_SETTINGS = {  # by class: the settings that are values of a run
    torch.optim.AdamW: ("lr", "beta1", "beta2", "eps", "weight_decay"),
    torch.optim.Adam: ("lr", "beta1", "beta2", "eps", "weight_decay"),
    torch.optim.SGD: ("lr", "momentum", "dampening", "weight_decay"),
}


_FLAGS = ("amsgrad", "maximize", "nesterov", "decoupled_weight_decay")  # of groups
_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")  # of parameters
_counters = weakref.WeakKeyDictionary()  # by optimizer: the steps of all parameters, one tensor


def has_hooks(parameter):
    return any(getattr(parameter, name) for name in _HOOKS)


def check(optimizer):
    """Refuses what a plan would leave out in silence."""
    if type(optimizer) not in _SETTINGS:
        raise w.UsageError(
            f"[torch] optimizer {type(optimizer).__name__}: steps and plans take torch.optim's "
            'AdamW, Adam and SGD. Hint: torch.compile(model, backend="weft") with any optimizer')
    for hooks in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"):
        if getattr(optimizer, hooks, None):
            raise w.UsageError("[step] the optimizer has hooks, which a plan cannot call")
    if _global_optimizer_pre_hooks or _global_optimizer_post_hooks:
        raise w.UsageError("[step] all optimizers have hooks, which a plan cannot call")
    if any(has_hooks(p) for group in optimizer.param_groups for p in group["params"]):
        raise w.UsageError("[step] a parameter has gradient hooks, which a plan cannot call")
    for group in optimizer.param_groups:
        if group.get("differentiable"):
            raise w.UsageError("[step] the optimizer is differentiable, which a plan is not")


def _rounded(x):
    """Returns what rounds to the type of a parameter, and what computes with it: each operation of
    torch's takes numbers of 16 bits in float32, and rounds its result, so that the square of a
    gradient does not overflow before its share is taken."""
    dtype = "f32" if x.dtype in ("f16", "bf16") else x.dtype
    return lambda v: w.cast(v, x.dtype), lambda v: w.cast(v, dtype)


def _constant(numbers):
    from .._arrays import tensor

    return tensor(numbers)


class Update:
    """The update of an optimizer: makes torch's state, and computes new values in a graph."""

    def __init__(self, optimizer, in_memory=True, fresh=(), summed=()):
        """`fresh` are parameters, by id, whose momentum was made for an update that never ran;
        `summed` those that have gradients, even if they are frozen now."""
        check(optimizer)
        self.fresh = set(fresh)
        self._in_memory = in_memory
        self.optimizer = optimizer
        self.names = _SETTINGS[type(optimizer)]
        # Those that are frozen, or have no gradient, get no state, as in eager mode.
        self.parameters = [
            p for group in optimizer.param_groups for p in group["params"]
            if p.requires_grad or id(p) in summed]
        self.group_of = {
            id(p): i for i, group in enumerate(optimizer.param_groups) for p in group["params"]
        }
        self._first = set()  # groups without dampening in the next run
        self._rows = self._settings = self._form = None  # of this run, and the rows as a tensor
        self.look()
        self.states = {}  # of each parameter by id: names of state to Stated
        self.steps = None  # the counters, once there is state

    def _make_counters(self):
        """Makes one tensor of the steps of all parameters, or takes that of another step with the
        same optimizer, as long as the optimizer's state has it."""
        known = [self.optimizer.state.get(p, {}).get("step") for p in self.parameters]
        shared = _counters.get(self.optimizer)
        if shared is None or len(shared) != len(known) or any(
            each != 0 if count is None else count.data_ptr() != each.data_ptr()
            for count, each in zip(known, shared)
        ):
            shared = torch.tensor([0.0 if c is None else float(c) for c in known])
            _counters[self.optimizer] = shared
        self._counters = shared
        self.steps = Stated("step", self._counters, "optimizer", self._in_memory)

    def make_state(self, parameters):
        """Makes the state of parameters that have a gradient, as torch's first step does."""
        wanted = set(map(id, parameters))
        new = [(i, p) for i, p in enumerate(self.parameters)
               if id(p) in wanted and id(p) not in self.states]
        if type(self.optimizer) is torch.optim.SGD:
            self._make_momentum([p for _, p in new])
            return
        if self.steps is None:
            self._make_counters()
        for i, p in new:
            state = self.optimizer.state[p]
            if "step" not in state or state["step"].data_ptr() != self._counters[i].data_ptr():
                state["step"] = self._counters[i]
            names = ["exp_avg", "exp_avg_sq"]
            if self.optimizer.param_groups[self.group_of[id(p)]]["amsgrad"]:
                names.append("max_exp_avg_sq")
            self._keep(p, state, names)

    def _make_momentum(self, parameters):
        for at, group in enumerate(self.optimizer.param_groups):
            new = [p for p in parameters if self.group_of[id(p)] == at]
            if group["momentum"] == 0 or not new:
                continue
            self.fresh |= {
                id(p) for p in new if self.optimizer.state[p].get("momentum_buffer") is None}
            first = {id(p) in self.fresh for p in new}
            first |= {False for p in group["params"] if id(p) in self.states}
            if group["dampening"] and len(first) > 1:
                raise w.UsageError(
                    "[step] some parameters of a group with dampening have momentum, others none "
                    "yet. Hint: put those that come later in a group of their own")
            # The first step has no dampening, as its momentum is the gradient itself.
            if first == {True}:
                self._first.add(at)
                self.look()
            for p in new:
                self._keep(p, self.optimizer.state[p], ["momentum_buffer"])

    def _keep(self, p, state, names):
        for name in names:
            if state.get(name) is None:
                state[name] = torch.zeros_like(p, memory_format=torch.preserve_format)
        self.states[id(p)] = {
            name: Stated(
                f"{name}.{len(self.states)}", state[name], "optimizer", self._in_memory)
            for name in names
        }

    def all_states(self):
        own = [s for states in self.states.values() for s in states.values()]
        return own + ([self.steps] if self.steps is not None else [])

    def entries(self):
        """Returns what w._Watch compares: groups, parameters, their hooks and state, and hooks of
        the optimizer."""
        optimizer = self.optimizer
        groups, state = optimizer.param_groups, optimizer.state
        entries = [(optimizer, "state", state), (groups, None, len(groups))]
        for i, group in enumerate(groups):
            held = group["params"]
            entries += [(groups, i, group), (group, "params", held), (held, None, len(held))]
            entries += [(group, name, group[name]) for name in _FLAGS if name in group]
            entries += [(held, j, p) for j, p in enumerate(held)]
        for p in self.parameters:
            for name in _HOOKS:
                hooks = getattr(p, name)
                entries.append((p, name, hooks))
                entries += [] if hooks is None else [(hooks, None, 0)]
            entries.append((state, p, state.get(p)))
            entries += [(state[p], name, value) for name, value in state.get(p, {}).items()]
        hooks = [optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks,
                 _global_optimizer_pre_hooks, _global_optimizer_post_hooks]
        return entries + [(each, None, 0) for each in hooks]

    def has_all_trained(self):
        """Returns whether parameters that need gradients now did so when the state was made."""
        known = set(map(id, self.parameters))
        return all(
            id(p) in known for group in self.optimizer.param_groups for p in group["params"]
            if p.requires_grad)

    def look(self):
        """Reads the settings of this run. Returns whether the form of the update is another one."""
        rows = []
        for at, group in enumerate(self.optimizer.param_groups):
            betas = group.get("betas", (0, 0))
            values = dict(group, beta1=betas[0], beta2=betas[1])
            if at in self._first:
                values["dampening"] = 0.0
            rows.append([float(values[name]) for name in self.names])
        if rows == self._rows:
            return False
        self._rows, self._settings = rows, None
        before, self._form = self._form, self._key()
        return self._form != before

    def _key(self):
        """Returns what the form of the update depends on, beside what entries() has: a change makes
        a new plan."""
        return [
            [bool(group.get(name)) for name in ("momentum", "weight_decay", "dampening")]
            for group in self.optimizer.param_groups
        ]

    def settings(self):
        """Returns the settings of this run, [groups, settings], in float64."""
        if self._settings is None:
            self._settings = torch.tensor(self._rows, dtype=torch.float64)
        return self._settings

    def after_run(self):
        self._first.clear()
        self.fresh.clear()
        self.optimizer._opt_called = True  # torch's schedulers ask whether a step came before them

    # ---- in a graph

    def apply(self, parameters, gradients, settings):
        """Assigns the new values. `parameters` are Stated; `settings` is the value of settings()."""
        if type(self.optimizer) is torch.optim.SGD:
            update = self._sgd
        else:
            count = w.add(w.cast(self.steps.value(), "f64"), 1.0)
            update = self._adam_with(count)
        for stated, gradient in zip(parameters, gradients):
            p = stated.tensor
            group = self.group_of[id(p)]
            values = {
                name: w.reshape(settings[group, i], []) for i, name in enumerate(self.names)
            }
            if self.optimizer.param_groups[group]["maximize"]:
                gradient = w.neg(gradient)
            update(stated, gradient, self.optimizer.param_groups[group], values)

    def _adam_with(self, count):
        index = {id(p): i for i, p in enumerate(self.parameters)}
        self.stepped = set()

        def update(stated, g, group, values):
            x, p = stated.value(), stated.tensor
            at = index[id(p)]
            narrow, wide = _rounded(x)
            self.stepped.add(at)
            if group["weight_decay"]:
                decay = values["weight_decay"]
                if group.get("decoupled_weight_decay", type(self.optimizer) is torch.optim.AdamW):
                    x = narrow(w.mul(wide(x), wide(w.sub(1.0, w.mul(values["lr"], decay)))))
                else:
                    g = narrow(w.add(wide(g), w.mul(wide(x), wide(decay))))
            own = self.states[id(p)]
            m, v = own["exp_avg"], own["exp_avg_sq"]
            before = wide(m.value())
            m_now = narrow(w.add(before, w.mul(
                w.sub(wide(g), before), wide(w.sub(1.0, values["beta1"])))))
            kept = narrow(w.mul(wide(v.value()), wide(values["beta2"])))
            v_now = narrow(w.add(
                wide(kept), w.mul(w.square(wide(g)), wide(w.sub(1.0, values["beta2"])))))
            m.assign(m_now)
            v.assign(v_now)
            if group["amsgrad"]:
                most = own["max_exp_avg_sq"]
                v_now = w.maximum(most.value(), v_now)
                most.assign(v_now)
            t = count[at]
            rate = w.div(values["lr"], w.sub(1.0, w.pow(values["beta1"], t)))
            scale = w.sqrt(w.sub(1.0, w.pow(values["beta2"], t)))
            divisor = narrow(w.div(wide(w.sqrt(v_now)), wide(scale)))
            divisor = narrow(w.add(wide(divisor), wide(values["eps"])))
            stated.assign(narrow(w.sub(
                wide(x), w.mul(w.div(wide(m_now), wide(divisor)), wide(rate)))))

        return update

    def finish(self):
        """Counts the step of each parameter that was updated."""
        if self.steps is None:
            return
        counts = [1.0 if i in self.stepped else 0.0 for i in range(len(self.parameters))]
        count = self.steps.value()
        self.steps.assign(w.add(count, w.cast(_constant(counts), count.dtype)))

    def _sgd(self, stated, g, group, values):
        x = stated.value()
        narrow, wide = _rounded(x)
        if group["weight_decay"]:
            g = narrow(w.add(wide(g), w.mul(wide(x), wide(values["weight_decay"]))))
        if group["momentum"]:
            buffer = self.states[id(stated.tensor)]["momentum_buffer"]
            momentum = wide(values["momentum"])
            fresh = wide(g) if not group["dampening"] else w.mul(
                wide(g), wide(w.sub(1.0, values["dampening"])))
            now = narrow(w.add(wide(narrow(w.mul(wide(buffer.value()), momentum))), fresh))
            buffer.assign(now)
            g = narrow(w.add(wide(g), w.mul(wide(now), momentum))) if group["nesterov"] else now
        stated.assign(narrow(w.sub(wide(x), w.mul(wide(g), wide(values["lr"])))))
