"""weft.torch.step() beside a loop of eager torch, and the traps of memory and lifetime."""

import copy
import gc
import importlib
import threading
import unittest.mock
import weakref

import pytest
import support
import torch
from torch import nn
from torch.nn import functional as F

import weft
import weft.torch


# The convolution has no bias, whose gradient is noise in front of a batch norm: Adam would make
# steps of its full rate out of that noise.
def net():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(),
        nn.Linear(8 * 36, 10))


def batches(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(8, 3, 6, 6, generator=generator),
         torch.randint(0, 10, (8,), generator=generator))
        for _ in range(count)
    ]


def eager_step(model, optimizer, clip_norm=None):
    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        if clip_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        optimizer.step()
        return loss.detach()

    return step


def check_twins(make_optimizer, count=8, tolerance=1e-5, schedule=None, **options):
    """Trains two copies of a net, one by eager torch, and compares losses and all state."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    model = net()
    twin = copy.deepcopy(model)
    optimizers = make_optimizer(model), make_optimizer(twin)
    step = weft.torch.step(model, F.cross_entropy, optimizers[0], **options)
    expected = eager_step(twin, optimizers[1], options.get("clip_norm"))
    schedules = [schedule(o) for o in optimizers] if schedule else []
    for x, y in batches(count):
        assert step(x, y).item() == pytest.approx(expected(x, y).item(), rel=1e-5)
        for each in schedules:
            each.step()
    for (name, p), q in zip(model.state_dict().items(), twin.state_dict().values()):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=tolerance, msg=name)
    return model, twin, optimizers, step, expected


@pytest.mark.parametrize("options", [{}, {"weight_decay": 0.1}, {"amsgrad": True},
                                     {"maximize": True}, {"betas": (0.8, 0.95), "eps": 1e-6}])
@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.Adam])
def test_adam(kind, options):
    check_twins(lambda m: kind(m.parameters(), lr=1e-3, **options), tolerance=1e-4)


@pytest.mark.parametrize("options", [{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True},
                                     {"momentum": 0.9, "dampening": 0.5}, {"weight_decay": 0.1},
                                     {"maximize": True}])
def test_sgd(options):
    check_twins(lambda m: torch.optim.SGD(m.parameters(), lr=0.01, **options))


def test_groups_schedules_and_clipping():
    def optimizer(model):
        matrices = [p for p in model.parameters() if p.dim() > 1]
        others = [p for p in model.parameters() if p.dim() <= 1]
        return torch.optim.AdamW(
            [{"params": matrices, "weight_decay": 0.1}, {"params": others, "lr": 3e-4}], lr=1e-3)

    *_, step, _ = check_twins(
        optimizer, tolerance=1e-4, clip_norm=0.5,
        schedule=lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 8))
    assert len(step.plans) == 1  # rates are values of a run


def test_accumulation_over_micro_batches():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    twin = copy.deepcopy(model)
    make = lambda m: torch.optim.AdamW(m.parameters(), lr=1e-2)  # noqa: E731
    step = weft.torch.step(model, F.cross_entropy, make(model), accumulate=3, clip_norm=0.1)
    optimizer = make(twin)
    for _ in range(4):
        optimizer.zero_grad()
        for _ in range(3):
            x, y = torch.randn(5, 6), torch.randint(0, 3, (5,))
            loss = F.cross_entropy(twin(x), y)
            (loss / 3).backward()
            assert step(x, y).item() == pytest.approx(loss.item(), rel=1e-5)
        nn.utils.clip_grad_norm_(twin.parameters(), 0.1)
        optimizer.step()
        for p, q in zip(model.parameters(), twin.parameters()):
            torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)
    assert {float(s["step"]) for s in step.optimizer.state.values()} == {4.0}


def test_the_state_goes_on_in_eager_torch_and_back():
    model, twin, optimizers, step, expected = check_twins(
        lambda m: torch.optim.AdamW(m.parameters(), lr=1e-3), tolerance=1e-4)
    go_on = eager_step(model, optimizers[0])
    for x, y in batches(3, seed=5):
        assert go_on(x, y).item() == pytest.approx(expected(x, y).item(), rel=1e-4)
    for x, y in batches(3, seed=6):
        assert step(x, y).item() == pytest.approx(expected(x, y).item(), rel=1e-4)
    for own, other in zip(optimizers[0].state.values(), optimizers[1].state.values()):
        assert float(own["step"]) == float(other["step"]) == 14


def test_checkpoints_of_torch():
    model, _, optimizers, step, _ = check_twins(
        lambda m: torch.optim.AdamW(m.parameters(), lr=1e-3), tolerance=1e-4)
    saved = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizers[0].state_dict())
    first = [step(x, y).item() for x, y in batches(3, seed=9)]
    model.load_state_dict(saved[0])
    optimizers[0].load_state_dict(saved[1])
    assert [step(x, y).item() for x, y in batches(3, seed=9)] == pytest.approx(first, rel=1e-6)


def test_new_batch_sizes():
    torch.manual_seed(0)
    model = nn.Linear(6, 3)
    twin = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    step = weft.torch.step(model, F.cross_entropy, optimizer)
    expected = eager_step(twin, torch.optim.AdamW(twin.parameters(), lr=1e-2))
    for rows in (4, 7, 4, 9):
        x, y = torch.randn(rows, 6), torch.randint(0, 3, (rows,))
        assert step(x, y).item() == pytest.approx(expected(x, y).item(), rel=1e-5)
    torch.testing.assert_close(model.weight, twin.weight, rtol=1e-4, atol=1e-5)
    assert {float(s["step"]) for s in optimizer.state.values()} == {4.0}


def test_detach_means_what_it_means_in_torch():
    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            with torch.no_grad():
                still = self.b(x)
            return self.a(x) * still.detach() + self.b(x).detach()

    torch.manual_seed(0)
    model = Half()
    before = model.b.weight.detach().clone()
    twin = copy.deepcopy(model)
    step = weft.torch.step(
        model, lambda o: o.square().mean(), torch.optim.SGD(model.parameters(), lr=0.1))
    x = torch.randn(5, 4)
    step(x)
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.1)
    twin(x).square().mean().backward()
    optimizer.step()
    assert torch.equal(model.b.weight, before)
    torch.testing.assert_close(model.a.weight, twin.a.weight)


def test_parameters_that_are_not_aligned_or_dense():
    flat = torch.randn(4 * 4 + 1)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[0].weight = nn.Parameter(flat[1:].view(4, 4))  # 4 bytes behind an aligned address
    model[1].weight = nn.Parameter(torch.randn(4, 8)[:, ::2])
    twin = copy.deepcopy(model)
    step = weft.torch.step(
        model, lambda o: o.square().mean(), torch.optim.SGD(model.parameters(), lr=0.1))
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.1)
    for _ in range(3):
        x = torch.randn(5, 4)
        step(x)
        optimizer.zero_grad()
        twin(x).square().mean().backward()
        optimizer.step()
    torch.testing.assert_close(model[0].weight, twin[0].weight)
    torch.testing.assert_close(model[1].weight, twin[1].weight)
    torch.testing.assert_close(flat[1:].view(4, 4), twin[0].weight.detach())


def test_autograd_notices_what_a_step_changed():
    model = nn.Linear(3, 3)
    step = weft.torch.step(
        model, lambda o: o.square().mean(), torch.optim.SGD(model.parameters(), lr=0.1))
    y = model(torch.randn(2, 3)).square()
    y = (y @ model.weight).sum()
    step(torch.randn(2, 3))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_dropout_is_reproducible():
    model = nn.Sequential(nn.Linear(8, 64), nn.Dropout(0.5), nn.Linear(64, 1))
    start = copy.deepcopy(model.state_dict())
    step = weft.torch.step(
        model, lambda o: o.square().mean(), torch.optim.SGD(model.parameters(), lr=0.01))
    x = torch.randn(4, 8)
    losses = []
    for _ in range(2):
        model.load_state_dict(start)
        torch.manual_seed(4)
        losses.append([step(x).item() for _ in range(3)])
    assert losses[0] == losses[1]
    assert len(set(losses[0])) == 3


def test_memory_budget_with_equal_losses(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(*[m for _ in range(8) for m in (nn.Linear(64, 64), nn.Tanh())])
    twins = [copy.deepcopy(model) for _ in range(3)]
    x = torch.randn(512, 64)

    def made(model, **options):
        return weft.torch.step(model, lambda o: o.square().mean(),
                               torch.optim.SGD(model.parameters(), lr=0.1), **options)

    free = made(twins[0])
    losses = [free(x).item() for _ in range(3)]
    plan = free.plan()
    limit = plan.memory_bytes - plan.arena_bytes // 3
    bounded = made(twins[1], memory=limit)
    assert [bounded(x).item() for _ in range(3)] == losses
    assert bounded.plan().memory_bytes <= limit
    assert bounded.plan().rematerialized > 0
    in_files = made(twins[2], offload=["activations"], offload_folder=str(tmp_path))
    assert [in_files(x).item() for _ in range(3)] == losses
    assert in_files.plan().memory_bytes < plan.memory_bytes and in_files.plan().file_bytes > 0
    with pytest.raises(weft.UsageError, match="in torch's memory"):
        made(model, offload=["optimizer"])
    with pytest.raises(weft.DoesNotFit) as refusal:
        made(model, memory=10_000)(x)
    assert refusal.value.least_bytes > 10_000


def test_autocast():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 4))
    twin = copy.deepcopy(model)
    step = weft.torch.step(
        model, F.cross_entropy, torch.optim.AdamW(model.parameters(), lr=1e-3))
    expected = eager_step(twin, torch.optim.AdamW(twin.parameters(), lr=1e-3))
    for _ in range(3):
        x, y = torch.randn(16, 32), torch.randint(0, 4, (16,))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert step(x, y).item() == pytest.approx(expected(x, y).item(), rel=2e-2)


def test_steps_are_collected():
    model = nn.Linear(3, 3)
    step = weft.torch.step(
        model, lambda o: o.square().mean(), torch.optim.SGD(model.parameters(), lr=0.1))
    step(torch.randn(2, 3))
    dead = weakref.ref(step), weakref.ref(model)
    del step, model
    gc.collect()
    assert dead[0]() is None and dead[1]() is None


def test_many_types_of_batches_are_bounded():
    model = nn.Linear(8, 3)
    step = weft.torch.step(model, F.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.1))
    with unittest.mock.patch.object(importlib.import_module("weft.torch.step"), "MOST_PLANS", 10):
        for rows in range(2, 12):
            step(torch.randn(rows, 8), torch.zeros(rows, dtype=torch.int64))
        with pytest.raises(weft.UsageError, match=r"at most 10 plans, .*\[12, 8\], \[12\].* size"):
            step(torch.randn(12, 8), torch.zeros(12, dtype=torch.int64))
    step(torch.randn(5, 8), torch.zeros(5, dtype=torch.int64))  # planned before


class Spare(nn.Module):
    """A model with layers that no loss reads, or that one batch reads and another does not."""

    def __init__(self):
        super().__init__()
        self.layer, self.second, self.spare = nn.Linear(4, 2), nn.Linear(4, 2), nn.Linear(4, 2)

    def forward(self, x):
        return self.layer(x) if x.shape[0] == 3 else self.layer(x) + self.second(x)


@pytest.mark.parametrize("make", [
    torch.optim.AdamW, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)])
def test_parameters_without_gradients_get_no_state(make):
    model = Spare()
    twin = copy.deepcopy(model)
    optimizer, other = make(model.parameters()), make(twin.parameters())
    step = weft.torch.step(model, F.mse_loss, optimizer)
    for rows in (3, 5, 3, 5):
        x, y = torch.randn(rows, 4), torch.randn(rows, 2)
        step(x, y)
        other.zero_grad()
        F.mse_loss(twin(x), y).backward()
        other.step()
        for (name, p), q in zip(model.named_parameters(), twin.parameters()):
            torch.testing.assert_close(p, q, msg=name)
        states = optimizer.state_dict()["state"], other.state_dict()["state"]
        assert states[0].keys() == states[1].keys()
        for at, state in states[1].items():
            for name, tensor in state.items():
                torch.testing.assert_close(states[0][at][name], tensor, msg=f"{name} of {at}")


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_steps_train_whatever_the_mode_of_the_caller(mode):
    model = nn.Linear(4, 2)
    before = model.weight.detach().clone()
    step = weft.torch.step(model, F.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1))
    with mode():
        step(torch.randn(3, 4), torch.randn(3, 2))
        assert not torch.is_grad_enabled()
    assert (model.weight != before).any()


def test_arguments_of_a_step_in_another_order():
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(weft.UsageError, match="a loss is .* Got SGD. Hint: the order is"):
        weft.torch.step(model, optimizer, F.mse_loss)
    with pytest.raises(weft.UsageError, match="a model is .* Got function. Hint: the order is"):
        weft.torch.step(F.mse_loss, model, optimizer)
    with pytest.raises(weft.UsageError, match="weight has no shape yet. Hint: call the model once"):
        weft.torch.step(nn.LazyLinear(3), F.mse_loss, optimizer)


class Counting(nn.Module):
    """A model that counts its calls in a Python number, for which dynamo compiles each anew."""

    def __init__(self):
        super().__init__()
        self.layer, self.calls = nn.Linear(4, 2), 0

    def forward(self, x):
        self.calls += 1
        return self.layer(x)


def test_a_model_that_counts_its_calls_is_named_with_its_line():
    model = Counting()
    step = weft.torch.step(model, F.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1))
    batch = torch.randn(3, 4), torch.randn(3, 2)
    line = r"model\.calls == 2.*self\.calls \+= 1.*test_step\.py"
    with pytest.warns(UserWarning, match=line) as said:
        for _ in range(6):
            step(*batch)
    assert len(said) == 1 and said[0].filename == __file__
    assert model.calls == 6
    with unittest.mock.patch.object(importlib.import_module("weft.torch.step"), "MOST_PLANS", 7):
        step(*batch)
        with pytest.raises(weft.UsageError, match=r"at most 7 plans.*model\.calls == 6.*test_step"):
            step(*batch)


def test_steps_of_equal_modules_in_two_threads():
    models = [nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3)) for _ in range(2)]
    twins = copy.deepcopy(models)
    x, y = torch.randn(32, 8), torch.randint(0, 3, (32,))
    curves = {}

    def train(i):
        optimizer = torch.optim.SGD(models[i].parameters(), lr=0.1)
        step = weft.torch.step(models[i], F.cross_entropy, optimizer)
        curves[i] = [step(x, y).item() for _ in range(200)]

    threads = [threading.Thread(target=train, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, twin in enumerate(twins):
        optimizer = torch.optim.SGD(twin.parameters(), lr=0.1)
        losses = []
        for _ in range(200):
            optimizer.zero_grad()
            loss = F.cross_entropy(twin(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert curves[i] == pytest.approx(losses, rel=1e-5)


class Weighted(nn.Module):
    """A loss with weights of its own (Kendall et al. 2018)."""

    def __init__(self):
        super().__init__()
        self.log_variance = nn.Parameter(torch.zeros(3))

    def forward(self, output, target):
        squares = (output - target).square().mean(0)
        return (squares * torch.exp(-self.log_variance) + self.log_variance).sum()


@pytest.mark.parametrize("form", ["module", "closure"])
def test_a_loss_with_parameters_is_trained(form):
    torch.manual_seed(0)
    losses, x, y = [Weighted(), Weighted()], torch.randn(16, 4), torch.randn(16, 3)
    models = [nn.Linear(4, 3) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    optimizers = [torch.optim.AdamW([*m.parameters(), *loss.parameters()], lr=0.05)
                  for m, loss in zip(models, losses)]
    loss = losses[0] if form == "module" else lambda output, target: losses[0](output, target)
    step = weft.torch.step(models[0], loss, optimizers[0])
    for _ in range(5):
        got = step(x, y)
        optimizers[1].zero_grad()
        expected = losses[1](models[1](x), y)
        expected.backward()
        optimizers[1].step()
        torch.testing.assert_close(got, expected.detach(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(losses[0].log_variance, losses[1].log_variance, rtol=1e-5, atol=1e-6)
    assert losses[0].log_variance.abs().max() > 0.1


class Storing(nn.Linear):
    latest, calls = None, 0

    def forward(self, x):
        y = super().forward(x)
        self.latest = y.detach()
        return y


def test_what_a_model_stores_is_stored_in_each_step():
    model = Storing(4, 3)
    step = weft.torch.step(model, F.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.1))
    for _ in range(4):
        x = torch.randn(5, 4)
        expected = F.linear(x, model.weight, model.bias).detach()
        step(x, torch.zeros(5, dtype=torch.int64))
        torch.testing.assert_close(model.latest, expected)


def test_frozen_parameters_have_no_state_until_they_are_trained():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    model[0].requires_grad_(False)
    twin = copy.deepcopy(model)
    optimizer, other = (torch.optim.AdamW(m.parameters(), lr=0.01) for m in (model, twin))
    step = weft.torch.step(model, F.cross_entropy, optimizer)
    x, y = torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])
    for trained in (False, True):
        for m in (model, twin):
            m[0].requires_grad_(trained)
        for _ in range(3):
            step(x, y)
            other.zero_grad()
            F.cross_entropy(twin(x), y).backward()
            other.step()
        assert len(optimizer.state) == len(other.state) == (4 if trained else 2)
        torch.testing.assert_close(model.state_dict(), twin.state_dict(), rtol=1e-5, atol=1e-6)
    assert [float(s["step"]) for s in optimizer.state.values()] == [
        float(s["step"]) for s in other.state.values()]


def test_eager_steps_may_come_before_the_first():
    """Nothing of the optimizer's state is made until a step runs."""
    model, twin = nn.Linear(3, 3), nn.Linear(3, 3)
    twin.load_state_dict(model.state_dict())
    options = {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}
    optimizer, other = (torch.optim.SGD(m.parameters(), **options) for m in (model, twin))
    step = weft.torch.step(model, lambda o: o.square().mean(), optimizer)
    assert optimizer.state_dict() == other.state_dict()
    x = torch.randn(4, 3)

    def eager(model, optimizer):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    eager(model, optimizer)
    step(x)
    for _ in range(2):
        eager(twin, other)
    torch.testing.assert_close(model.state_dict(), twin.state_dict())
    assert optimizer.state_dict()["param_groups"] == other.state_dict()["param_groups"]


# ---- what a step refuses


def test_refusals():
    model = nn.Linear(3, 3)
    square = lambda o: o.square().mean()  # noqa: E731
    with pytest.raises(weft.UsageError, match="optimizer Adagrad: steps and plans take"):
        weft.torch.step(model, square, torch.optim.Adagrad(model.parameters()))
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(weft.UsageError, match="compiled already"):
        weft.torch.step(torch.compile(model), square, sgd)
    model.weight.register_hook(lambda g: g * 2)
    with pytest.raises(weft.UsageError, match="weight has gradient hooks"):
        weft.torch.step(model, square, sgd)
    class Svd(nn.Linear):
        def forward(self, x):
            return torch.linalg.svdvals(super().forward(x))

    model = Svd(3, 3)
    step = weft.torch.step(model, square, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(Exception, match="svd.*test_step.py|svd"):
        step(torch.randn(3, 3))


def test_a_frozen_model_has_nothing_to_train():
    model = nn.Linear(3, 3).requires_grad_(False)
    step = weft.torch.step(model, lambda o: o.square().mean(),
                           torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1))
    with pytest.raises(Exception, match="nothing of the loss needs a gradient"):
        step(torch.randn(2, 3))


def test_parameters_that_moved_are_found():
    model = nn.Linear(4, 4)
    twin = copy.deepcopy(model)
    optimizer, other = (torch.optim.AdamW(m.parameters(), lr=0.1) for m in (model, twin))
    step = weft.torch.step(model, lambda o: o.square().mean(), optimizer)
    x = torch.randn(5, 4)
    for _ in range(4):
        step(x)
        other.zero_grad()
        twin(x).square().mean().backward()
        other.step()
        model.weight.data = model.weight.data.clone()  # as model.to() does
    torch.testing.assert_close(model.weight, twin.weight, rtol=1e-5, atol=1e-6)


def test_a_step_knows_its_plan_without_dynamo():
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2))
    step = weft.torch.step(
        model, F.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.1))
    x, y = torch.randn(6, 4), torch.randint(0, 2, (6,))
    for _ in range(3):
        step(x, y)
    assert len(step.known) == 1 and len(step.plans) == 1
    model.eval()  # which dynamo's guards notice
    step(x, y)
    assert len(step.plans) == 2


def test_distributed_wrappers_are_refused():
    class DistributedDataParallel(nn.Linear):
        pass

    model = DistributedDataParallel(2, 2)
    with pytest.raises(weft.UsageError, match="one device.*DistributedDataParallel"):
        weft.torch.step(model, None, torch.optim.SGD(model.parameters(), lr=0.1))


def test_idle_threads_of_torch_leave_their_cores_to_a_long_step():
    """A step ends the threads that torch's OpenMP keeps busy in waiting; torch makes new ones."""
    done = support.run("""
        import os
        import torch
        from torch import nn
        import weft.torch
        torch.set_num_threads(3)

        def threads_after(run):
            run()
            return len(os.listdir("/proc/self/task"))

        model, x = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU()), torch.randn(1024, 1024)
        step = weft.torch.step(
            model, lambda y: y.square().mean(), torch.optim.SGD(model.parameters(), lr=0.1))
        for _ in range(2):
            step(x)
        alone = threads_after(lambda: step(x))
        for _ in range(2):
            assert threads_after(lambda: x.relu()) == alone + 2
            assert threads_after(lambda: step(x)) == alone
        """)
    assert done.returncode == 0, done.stderr
