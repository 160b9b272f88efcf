"""What programs do between steps, to models and optimizers that a plan stands for: eager torch
sees it, and so must a step."""

import copy
import threading

import pytest
import torch
from programs import Program, adam, check, nothing
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import prune

import weft
import weft.torch


class Pair(nn.Module):
    """Learns what a second layer, which is frozen, computes."""

    def __init__(self, make=lambda: nn.Linear(4, 4)):
        super().__init__()
        self.online, self.target = make(), make().requires_grad_(False)

    def forward(self, x):
        return self.online(x) - self.target(x)


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("mask", torch.ones(4))

    def forward(self, x):
        return self.layer(x) * self.mask


class Averaging(nn.Module):
    """Assigns its buffer anew in each forward pass."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("average", torch.zeros(4))

    def forward(self, x):
        y = self.layer(x)
        self.average = 0.9 * self.average + 0.1 * y.detach().mean(0)
        return y - self.average


class Storing(nn.Module):
    """Keeps an activation that needs a gradient."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(4, 6), nn.Linear(6, 4)

    def forward(self, x):
        self.kept = self.layer(x).tanh()
        return self.head(self.kept)


# ---- memory that others write to

def copied(program, i):
    if i % 2:
        program.model.target.load_state_dict(program.model.online.state_dict())


def averaged(program, i):
    for p, q in zip(program.model.target.parameters(), program.model.online.parameters()):
        p.data.lerp_(q.data, 0.3)


def conv():
    return nn.Sequential(nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 4, 2), nn.Flatten())


@pytest.mark.parametrize("change", [copied, averaged])
@pytest.mark.parametrize("make", [lambda: nn.Linear(4, 4), conv])
@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_weights_that_a_step_reads_alone_are_read_anew(change, make, precision):
    if precision == "f32":
        check(Pair(make), change)
        return
    model = Pair(make)  # equal factors give a loss of 0 in any precision
    step = weft.torch.step(
        model, lambda y: y.square().mean(), torch.optim.SGD(model.online.parameters(), lr=0.0),
        precision=precision)
    x = torch.randn(4, 4)
    assert step(x) > 0
    model.target.load_state_dict(model.online.state_dict())
    assert step(x) == 0


@pytest.mark.parametrize("make", [adam, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)])
def test_two_steps_train_a_generator_and_a_discriminator(make):
    """Each step reads what the other trains."""
    torch.manual_seed(2)
    nets = [nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4)),
            nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))]
    twins = copy.deepcopy(nets)

    class Adversary(nn.Module):
        def __init__(self, nets, trains):
            super().__init__()
            self.generator, self.discriminator, self.trains = *nets, trains

        def forward(self, noise, real):
            fake = self.generator(noise)
            if self.trains == 0:
                return F.softplus(-self.discriminator(fake)).mean()
            return (F.softplus(self.discriminator(fake.detach()))
                    + F.softplus(-self.discriminator(real))).mean()

    steps = [weft.torch.step(Adversary(nets, i), None, make(nets[i].parameters()))
             for i in range(2)]
    losses = [Adversary(twins, i) for i in range(2)]
    optimizers = [make(each.parameters()) for each in twins]
    for _ in range(6):
        batch = torch.randn(4, 4), torch.randn(4, 4)
        for i in (1, 0):
            for each in optimizers:
                each.zero_grad()
            loss = losses[i](*batch)
            loss.backward()
            optimizers[i].step()
            torch.testing.assert_close(steps[i](*batch), loss.detach())
    for mine, other in zip(nets, twins):
        for p, q in zip(mine.parameters(), other.parameters()):
            torch.testing.assert_close(p, q)


# ---- tensors and modules that are others

def other_mask(program, i):
    if i == 2:
        program.model.mask = torch.tensor([1.0, 0, 2, 0])


def other_target(program, i):
    if i == 2:
        program.model.target = copy.deepcopy(program.model.online).requires_grad_(False)


def other_weight(program, i):
    if i == 2:
        program.model.target.weight = nn.Parameter(torch.eye(4), requires_grad=False)


def other_class_weights(program, i):
    if i == 2:
        program.loss.weight = torch.tensor([1.0, 2, 3, 4])


class Classes(nn.CrossEntropyLoss):
    def forward(self, y):
        return super().forward(y, torch.arange(4))


@pytest.mark.parametrize("model, change, loss", [
    (Masked, other_mask, None), (Pair, other_target, None), (Pair, other_weight, None),
    (Masked, other_class_weights, Classes(weight=torch.ones(4)))])
def test_what_is_replaced_between_steps_is_read(model, change, loss):
    check(model(), change, loss=loss)


def test_a_buffer_that_the_forward_pass_replaces():
    step = check(Averaging(), nothing, steps=8).step
    assert len(step.plans) == 1  # by dynamo, whose trace holds for all of them


def test_weights_that_are_turned_in_place():
    def turned(program, i):
        if i == 3:
            program.model.weight.data = program.model.weight.data.t()

    check(nn.Linear(4, 4), turned)


def test_parameters_that_are_assigned_by_a_checkpoint():
    def assigned(program, i):
        if i == 3:
            state = {name: torch.ones_like(t) for name, t in program.model.state_dict().items()}
            program.model.load_state_dict(state, assign=True)
            program.optimizer.param_groups[0]["params"] = list(program.model.parameters())

    check(nn.Linear(4, 4), assigned)


def test_what_a_model_stores_may_need_a_gradient():
    ours = check(Storing(), nothing)
    with pytest.raises(weft.UsageError, match="has no backward pass. Hint: detach"):
        ours.model.kept.sum().backward()


@pytest.mark.parametrize("wrap", [
    torch.nn.utils.parametrizations.weight_norm, torch.nn.utils.weight_norm,
    lambda layer: prune.l1_unstructured(layer, "weight", 0.5)])
def test_layers_that_compute_their_weight(wrap):
    model = nn.Sequential(wrap(nn.Linear(4, 4)))
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = weft.torch.step(model, lambda y: y.square().mean(), optimizer)
    x = torch.randn(4, 4)
    losses = [step(x).item() for _ in range(8)]
    assert losses == sorted(losses, reverse=True) and losses[-1] < 0.9 * losses[0]
    assert losses[-1] > model(x).square().mean().item()


class Clipping(nn.Linear):
    """Writes to its weight behind autograd's back, as the critic of a WGAN does."""

    def __init__(self, write):
        super().__init__(4, 4)
        self.write = write

    def forward(self, x):
        self.write(self.weight)
        return super().forward(x)


class Bounded(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.layer = nn.Embedding(5, 4, max_norm=0.5), nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(self.embedding((x[:, 0].abs() * 3).long() % 5))


class Averaged(nn.Module):
    """A target that trains with nobody's gradients, but by its forward pass."""

    def __init__(self):
        super().__init__()
        self.online, self.target = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        self.target.weight.data.mul_(0.9).add_(0.1 * self.online.weight.data)
        return self.online(x) - self.target(x).detach()


class Scaled(nn.Module):
    """Bounds a parameter of one number, as CLIP bounds its temperature."""

    def __init__(self):
        super().__init__()
        self.layer, self.scale = nn.Linear(4, 4), nn.Parameter(torch.tensor(1.5))

    def forward(self, x):
        self.scale.data.clamp_(0, 1)
        return self.layer(x) * self.scale


class Counted(nn.Linear):
    def __init__(self):
        super().__init__(4, 4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        y = super().forward(x)
        self.calls += 1
        self.weight.data.clamp_(-0.3, 0.3)
        return y


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("make", [
    lambda: Clipping(lambda p: p.data.clamp_(-0.1, 0.1)),
    lambda: Clipping(lambda p: p.detach().mul_(0.5)),
    lambda: Clipping(lambda p: p.detach()[0].zero_()),
    Bounded, Averaged, Scaled, Counted],
    ids=["clamp", "mul", "zero", "max_norm", "target", "scale", "counter"])
def test_weights_that_the_forward_pass_writes(make, accumulate):
    model = make()
    ours = check(model, nothing, accumulate=accumulate)
    assert len(ours.step.known) == (0 if isinstance(model, Counted) else 1)


def test_a_buffer_is_not_written_a_value_that_needs_a_gradient():
    class Counting(nn.Linear):
        def __init__(self):
            super().__init__(4, 4)
            self.register_buffer("usage", torch.zeros(4))

        def forward(self, x):
            y = super().forward(x)
            self.usage.add_(y.mean(0))
            return y

    program = Program(Counting(), adam, lambda y: y.square().mean())
    for _ in range(2):
        with pytest.raises(weft.UsageError, match="needs a gradient to usage. Hint: detach"):
            program.weft(torch.randn(4, 4))


# ---- optimizers

def test_two_steps_of_one_optimizer():
    torch.manual_seed(3)
    model = nn.Linear(4, 4)
    twin = copy.deepcopy(model)
    optimizer, other = adam(model.parameters()), adam(twin.parameters())
    steps = [weft.torch.step(model, loss, optimizer) for loss in (F.mse_loss, F.l1_loss)]
    for i in range(8):
        x, y = torch.randn(4, 4), torch.randn(4, 4)
        loss = (F.mse_loss, F.l1_loss)[i % 2]
        steps[i % 2](x, y)
        other.zero_grad()
        loss(twin(x), y).backward()
        other.step()
    for p, q in zip(model.parameters(), twin.parameters()):
        torch.testing.assert_close(p, q)
        assert optimizer.state[p]["step"] == other.state[q]["step"] == 8


def cleared(program, i):
    if i == 3:
        program.optimizer.state.clear()


def forgotten(program, i):
    if i == 3:
        program.optimizer.state[program.model.weight] = {}


def moments_replaced(program, i):
    if i == 3:
        state = program.optimizer.state[program.model.weight]
        state["exp_avg"] = torch.zeros_like(state["exp_avg"])


def parameters_dropped(program, i):
    if i == 3:
        program.optimizer.param_groups[0]["params"] = [program.model.weight]


@pytest.mark.parametrize("change", [cleared, forgotten, moments_replaced, parameters_dropped])
def test_what_is_changed_in_an_optimizer_is_seen(change):
    check(nn.Linear(4, 4), change, make=adam)


@pytest.mark.parametrize("register", [
    lambda p: p.model.weight.register_hook(lambda g: g * 10),
    lambda p: p.model.weight.register_post_accumulate_grad_hook(lambda p: None),
    lambda p: p.model.register_full_backward_hook(lambda m, i, o: None),
    lambda p: p.optimizer.register_step_post_hook(lambda o, a, k: None)])
def test_hooks_that_come_later_are_refused(register):
    program = Program(nn.Linear(4, 4), adam, lambda y: y.square().mean())
    x = torch.randn(4, 4)
    for _ in range(2):
        program.weft(x)
    handle = register(program)
    with pytest.raises(weft.UsageError, match="hooks, which a plan cannot call"):
        program.weft(x)
    handle.remove()
    program.weft(x)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x)


def hook_comes_and_goes(register):
    def change(program, i):
        if i == 2:
            program.handle = register(program.model)
        if i == 4:
            program.handle.remove()

    return change


@pytest.mark.parametrize("register", [
    lambda model: model.layer.register_forward_hook(lambda m, x, y: 2 * y),
    lambda model: model.register_forward_pre_hook(lambda m, x: (x[0] + 1,)),
    lambda model: nn.modules.module.register_module_forward_hook(
        lambda m, x, y: 2 * y if m is model else y)])
def test_forward_hooks_come_and_go(register):
    check(Layer(), hook_comes_and_goes(register))


def test_a_class_may_get_another_forward():
    class Changing(Layer):
        pass

    def changed(program, i):
        factor = 2.0 if 2 <= i < 4 else 1.0
        Changing.forward = lambda self, x: factor * self.layer(x)

    check(Changing(), changed)


@pytest.mark.parametrize("name, value", [
    ("clip_norm", 1.0), ("accumulate", 2), ("optimizer", None), ("loss", None), ("model", None)])
def test_what_a_step_was_made_of_is_fixed(name, value):
    program = Program(nn.Linear(4, 4), adam, lambda y: y.square().mean())
    program.weft(torch.randn(4, 4))
    with pytest.raises(weft.UsageError, match=f"{name} is fixed.*Hint: make the step anew"):
        setattr(program.step, name, value)


# ---- accumulation

class Either(nn.Module):
    """Which of its layers a batch trains depends on its rows."""

    def __init__(self):
        super().__init__()
        self.layer, self.second = nn.Linear(4, 2), nn.Linear(4, 2)

    def forward(self, x):
        return self.layer(x) if x.shape[0] == 3 else self.layer(x) + self.second(x)


@pytest.mark.parametrize("make", [adam, lambda p: torch.optim.SGD(p, lr=0.1)])
@pytest.mark.parametrize("rows", [[5, 3], [3, 5], [3, 3, 5, 3]])
def test_gradients_of_some_micro_steps(make, rows):
    check(Either(), nothing, make=make, steps=12, rows=lambda i: rows[i % len(rows)], accumulate=2)


def test_a_group_that_comes_before_the_first_update():
    """The momentum of the others is made, and their first update has no dampening still."""

    def added(program, i):
        if i == 1:
            program.model.extra = nn.Parameter(torch.ones(4))
            program.optimizer.add_param_group({"params": [program.model.extra]})

    check(nn.Linear(4, 4), added, accumulate=2,
          make=lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.8, dampening=0.5))


def test_a_layer_is_replaced_between_micro_steps():
    def replaced(program, i):
        if i == 1:
            program.model[0] = nn.Linear(4, 4)
            program.optimizer.param_groups[0]["params"] = list(program.model.parameters())

    check(nn.Sequential(nn.Linear(4, 4), nn.Tanh()), replaced, accumulate=2)


def test_sums_of_gradients_outlive_a_plan():
    def moved(program, i):
        if i == 3:  # in the middle of an update
            for p in program.model.parameters():
                p.data = p.data.clone()

    check(nn.Linear(4, 4), moved, make=adam, accumulate=2)


def test_memory_that_is_not_aligned_is_written_by_updates_alone():
    """Plans are made anew before the last micro-step, so that the one that updates comes first."""

    def cut_from_one(program, i):
        if i == 3:
            vector = nn.utils.parameters_to_vector(program.model.parameters()).detach()
            nn.utils.vector_to_parameters(vector.clone(), program.model.parameters())

    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 4))
    check(model, cut_from_one, make=adam, steps=10, accumulate=2)


@pytest.mark.parametrize("decoupled", [[True, False], [False, True]])
def test_groups_that_decay_in_two_ways(decoupled):
    def make(parameters):
        return torch.optim.Adam([
            {"params": [p], "decoupled_weight_decay": how}
            for p, how in zip(parameters, decoupled)], lr=0.05, weight_decay=0.3)

    def turned(program, i):
        if i == 4:
            for group in program.optimizer.param_groups:
                group["decoupled_weight_decay"] = not group["decoupled_weight_decay"]

    check(nn.Linear(4, 4), turned, make=make, steps=8)


# ---- calls

def test_keyword_arguments_come_in_any_order():
    class Difference(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, a, b):
            return (self.layer(a) - 2 * b).square().mean()

    model = Difference()
    step = weft.torch.step(model, None, torch.optim.SGD(model.parameters(), lr=0.0))
    a, b = torch.randn(3, 4), torch.randn(3, 4)
    for _ in range(2):
        torch.testing.assert_close(step(a=a, b=b), model(a, b).detach())
        torch.testing.assert_close(step(b=b, a=a), model(a, b).detach())


def test_dicts_name_their_tensors_in_any_order():
    class Difference(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, batch):
            return (self.layer(batch["x"]["a"]) - 2 * batch["x"]["b"]).square().mean()

    model = Difference()
    step = weft.torch.step(model, None, torch.optim.SGD(model.parameters(), lr=0.0))
    a, b = torch.randn(3, 4), torch.randn(3, 4)
    for _ in range(3):
        for batch in ({"a": a, "b": b}, {"b": b, "a": a}):
            torch.testing.assert_close(step({"x": batch}), model({"x": batch}).detach())
    assert len(step.plans) == 1 and len(step.known) == 2


def test_gradients_that_would_be_cut_off_are_refused():
    encoder, model, scale = nn.Linear(4, 4), nn.Linear(4, 4), nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(4, 4)
    step = weft.torch.step(model, lambda y: y.square().mean(), optimizer)
    step(x)
    for given in (encoder(x), x.clone().requires_grad_()):
        for _ in range(2):
            with pytest.raises(weft.UsageError, match=r"shape \[4, 4\] needs a gradient.*detach"):
                step(given)
    step(x)
    step = weft.torch.step(model, lambda y: (scale * y).square().mean(), optimizer)
    with pytest.raises(weft.UsageError, match=r"shape \[4\] needs a gradient"):
        step(x)


def test_an_input_within_a_weight_is_refused():
    model = nn.Linear(4, 4)
    step = weft.torch.step(
        model, lambda y: y.square().mean(), torch.optim.SGD(model.parameters(), lr=0.1))
    step(torch.randn(2, 4))
    with pytest.raises(weft.UsageError, match="shares memory with weight. Hint: clone"):
        step(model.weight.detach()[1:3])


def test_the_first_batch_may_not_be_the_models_own():
    model = Masked()
    program = Program(model, adam, lambda y: y.square().mean())
    with pytest.raises(weft.UsageError, match="an input is mask, which the model has as state"):
        program.weft(model.mask)
    program = Program(model, adam, lambda y: y.square().mean())
    with pytest.raises(weft.UsageError, match="shares memory with layer.weight. Hint: clone"):
        program.weft(model.layer.weight.detach())
    program.weft(torch.randn(4, 4))


def test_a_step_in_several_threads_at_its_first_call():
    model = nn.Linear(4, 4)
    step = weft.torch.step(
        model, lambda y: y.square().mean(), torch.optim.SGD(model.parameters(), lr=0.1))
    x, failures = torch.randn(4, 4), []

    def run():
        try:
            step(x)
        except Exception as error:  # noqa: BLE001  (any of them is a failure)
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_frozen_recurrent_layer():
    class Teacher(nn.Module):
        def __init__(self):
            super().__init__()
            self.teacher = nn.LSTM(4, 4, batch_first=True).requires_grad_(False)
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            with torch.no_grad():
                wanted, _ = self.teacher(x[:, None])
            return self.layer(x) - wanted[:, 0]

    check(Teacher(), nothing)


class Penalized(nn.Linear):
    def forward(self, x):
        x = x.detach().requires_grad_()
        gradient, = torch.autograd.grad(super().forward(x).sum(), x, create_graph=True)
        return gradient.square().sum()


class Rescaled(nn.Linear):
    def forward(self, x):
        y = super().forward(x)
        return y / 2 if y.mean().item() > 0 else y


class Branching(nn.Linear):
    def forward(self, x):
        return x if super().forward(x).sum() > 0 else -x


@pytest.mark.parametrize("model, rows, line", [
    (Penalized(4, 4), [3, 4], r"cannot trace this: using `torch.autograd.grad`.*\(test_step_"),
    (Branching(4, 4), [3, 4], r"cannot trace this: Data-dependent branching.*\(test_step_"),
    (Rescaled(4, 4), [3, 4], r"cannot trace this: .*data-dependent expression"),
    (nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, momentum=None)), [3, 4],
     "cannot trace this: .*data-dependent expression"),
    (nn.Linear(4, 4), [3, 5], r"^\[step\] a and b must have same reduction dim.*\(test_step_")])
def test_what_cannot_be_traced_is_said_in_one_line(model, rows, line):
    step = weft.torch.step(
        model, lambda y: y.square().mean(), torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(weft.UsageError, match=line) as found:
        step(torch.randn(*rows))
    assert "\n" not in str(found.value)


class Inverting(nn.Linear):
    def forward(self, x):
        return torch.linalg.inv(super().forward(x) + 9 * torch.eye(4))


@pytest.mark.parametrize("model, loss, line", [
    (Scaled(), lambda y: y.square().mean(0), r"a loss is one number. Got one of shape \[4\]"),
    (nn.Linear(4, 4), lambda y: (y.mean(), 1), "a loss is one number. Got a tuple"),
    (Inverting(4, 4), lambda y: y.mean(), "runs operations for their effects")])
def test_what_is_no_loss_is_refused(model, loss, line):
    step = weft.torch.step(model, loss, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(weft.UsageError, match=line) as found:
        step(torch.randn(4, 4))
    assert "\n" not in str(found.value)


def test_refusals_of_a_step_are_those_of_weft():
    model = nn.Flatten(0)
    layer = nn.Linear(4, 4)
    step = weft.torch.step(
        nn.Sequential(layer, model), lambda y: y, torch.optim.SGD(layer.parameters(), lr=0.1))
    with pytest.raises(weft.UsageError, match="a loss is one number. Got one of shape"):
        step(torch.randn(2, 4))
    step = weft.torch.step(
        nn.Sequential(layer, nn.Unflatten(1, (1,) * 8 + (4,))), lambda y: y.sum(),
        torch.optim.SGD(layer.parameters(), lr=0.1))
    with pytest.raises(weft.UsageError, match="more than 8 axes"):
        step(torch.randn(2, 4))
    step = weft.torch.step(layer, lambda y: y.sum(), torch.optim.SGD(layer.parameters(), lr=0.1))
    with pytest.raises(weft.UsageError, match=r"at most 8 axes. Got 9"):
        step(torch.randn(*[1] * 8, 4))
    with pytest.raises(weft.UsageError, match=r"at most 8 axes. Got 9"):
        weft.plan(layer, torch.randn(*[1] * 8, 4))
