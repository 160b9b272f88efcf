"""Compiled steps, variables, gradients and optimizers."""

import numpy as np
import pytest
from support import RNG, floats

import weft


# ---- steps ---------------------------------------------------------------------------------------


def test_results_keep_their_form():
    @weft.compile
    def step(x):
        return {"a": x + 1, "b": (x * 2, [x * 3]), "none": None}

    found = step(np.ones(2, "f4"))
    assert list(found) == ["a", "b", "none"] and found["none"] is None
    assert found["a"].tolist() == [2, 2]
    assert isinstance(found["b"], tuple) and isinstance(found["b"][1], list)
    assert found["b"][0].tolist() == [2, 2] and found["b"][1][0].tolist() == [3, 3]
    assert [each.tolist() for each in weft.compile(lambda x: (x, -x))(np.ones(1, "f4"))] == [
        [1],
        [-1],
    ]


def test_steps_are_captured_once_for_each_type():
    shapes = []

    @weft.compile
    def step(x):
        """Says what it does."""
        shapes.append((x.dtype, x.shape))
        return x * 2

    for _ in range(2):
        for array in np.ones(2, "f4"), np.ones(3, "f4"), np.ones(3, "f8"), weft.ones((2,)):
            found = step(array)
            assert found.numpy().tolist() == [2] * len(array)
    assert shapes == [("f32", (2,)), ("f32", (3,)), ("f64", (3,))]
    assert (
        step.__name__ == "step" and step.__doc__ == "Says what it does." and "step(x)" in repr(step)
    )


def test_other_arguments_are_constants():
    seen = []

    @weft.compile
    def step(x, k, *, flag=True):
        seen.append((k, flag))
        return x * k if flag else x

    x = np.ones(2, "f4")
    for _ in range(2):
        assert step(x, 3).tolist() == [3, 3]
        assert step(x, k=4).tolist() == [4, 4]
        assert step(x, 3, flag=False).tolist() == [1, 1]
        assert step(x, weft.tensor(2.0)).tolist() == [2, 2]
    assert len(seen) == 4
    assert step({"a": x}["a"], 2.0).tolist() == [2, 2]
    with pytest.raises(weft.UsageError, match="hashed"):
        step(x, {1, 2})


def test_trees_of_arguments():
    step = weft.compile(lambda batch, pair: batch["x"] * pair[0] + pair[1]["y"])
    found = step({"x": np.ones(2, "f4")}, (np.full(2, 3, "f4"), {"y": np.full(2, 4, "f4")}))
    assert found.tolist() == [7, 7]


def test_equal_constants_of_different_types_are_different_plans():
    step = weft.compile(lambda x, k: x * k if isinstance(k, float) else x + k)
    x = np.ones(1, "f4")
    assert [step(x, 2).item(), step(x, 2.0).item(), step(x, True).item(), step(x, 1).item()] == [
        3,
        2,
        2,
        2,
    ]
    reciprocal = weft.compile(lambda x, k: x / k)
    assert [reciprocal(x, 0.0).item(), reciprocal(x, -0.0).item()] == [np.inf, -np.inf]


def test_plans():
    w = weft.Variable("w", "f32", (256, 256))

    @weft.compile
    def step(x):
        return weft.relu(weft.matmul(x, w)).sum()

    plan = step.plan(np.ones((64, 256), "f4"))
    assert plan.state_bytes == 256 * 256 * 4 and plan.flops >= 2 * 64 * 256 * 256
    assert plan.memory_bytes >= plan.state_bytes + plan.live_peak_bytes - plan.argument_bytes
    assert 0 <= plan.least_seconds <= plan.seconds and plan.launches >= 1  # 0: peaks not measured
    assert (w.numpy() == 0).all()
    on = step.plan(np.ones((64, 256), "f4"), on="h100")
    assert on.device != plan.device and on.state_bytes == plan.state_bytes
    assert 0 < on.least_seconds <= on.seconds
    with pytest.raises(weft.UsageError, match="h1000"):
        step.plan(np.ones((64, 256), "f4"), on="h1000")


def test_budgets_change_no_result():
    x = floats(256, 64)
    ws = []
    for i in range(4):
        ws.append(weft.Variable(f"w{i}", "f32", (64, 64)))
        ws[-1].assign(floats(64, 64) / 8)

    def step(x):
        for w in ws:
            x = weft.gelu(weft.matmul(x, w))
        return weft.grad(x.sum(), ws)

    free = weft.compile(step)
    least = free.plan(x)
    tight = weft.compile(step, memory=int(least.memory_bytes * 0.8), recompute="automatic")
    for a, b in zip(free(x), tight(x)):
        assert (a.numpy() == b.numpy()).all()


# ---- variables, gradients, optimizers ------------------------------------------------------------


def test_variables():
    w = weft.Variable("w", "f32", (2, 2))
    assert (w.name, w.shape, w.dtype, w.tolist()) == ("w", (2, 2), "f32", [[0, 0], [0, 0]])
    w.assign(np.eye(2, dtype="f4"))
    before = w.numpy()

    @weft.compile
    def step(x):
        old = w.sum()
        w.assign(w + x)
        return old, w.sum()

    old, new = step(np.ones((2, 2), "f4"))
    assert (old.item(), new.item()) == (2, 6)
    assert w.tolist() == [[2, 1], [1, 2]] and before.tolist() == [[1, 0], [0, 1]]
    assert "w = " in repr(w)
    assert not w.frozen
    w.freeze()
    assert w.frozen


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (weft.exp(x) * weft.sin(x)).sum(),
        lambda x: weft.softmax(x)[:, 0].sum(),
        lambda x: weft.matmul(x, x.T).norm(),
        lambda x: weft.logsumexp(weft.gelu(x) ** 2),
        lambda x: weft.layer_norm(x).max(axis=1).prod(),
        lambda x: (x[1:, ::2] / (1 + x[:-1, 1::2] ** 2)).mean(),
    ],
)
def test_gradients_beside_finite_differences(function):
    x = RNG.standard_normal((3, 4))
    step = weft.compile(lambda x: function(x))
    analytic = weft.compile(lambda x: weft.grad(function(x), x))(x).numpy()
    eager = weft.tensor(x)
    np.testing.assert_allclose(
        weft.grad(function(eager), eager).numpy(), analytic, rtol=1e-9, atol=1e-12
    )
    h = 1e-6
    for at in np.ndindex(*x.shape):
        low, high = x.copy(), x.copy()
        low[at] -= h
        high[at] += h
        difference = (step(high).item() - step(low).item()) / (2 * h)
        np.testing.assert_allclose(analytic[at], difference, rtol=1e-6, atol=1e-8)


def test_gradients_of_lists_and_of_gradients():
    a, b = weft.tensor([2.0], "f64"), weft.tensor([3.0], "f64")
    da, db = weft.grad((a * a * b).sum(), [a, b])
    assert (da.item(), db.item()) == (12, 4)
    first = weft.grad((a**3).sum(), a)
    assert weft.grad(first.sum(), a).item() == 12


def trained(optimizer_of, steps=5):
    """Returns a parameter after steps of an optimizer, and the gradients it saw."""
    w = weft.Variable("w", "f32", (8, 4))
    start = np.linspace(-1, 1, 32, dtype="f4").reshape(8, 4)
    w.assign(start)
    optimizer = optimizer_of(w)
    xs = [np.sin(np.arange(24, dtype="f4") * (i + 1)).reshape(3, 8) for i in range(steps)]

    @weft.compile
    def step(x):
        gradient = weft.grad((weft.matmul(x, w) ** 2).mean(), w)
        optimizer.step([gradient])
        return gradient

    gradients = [step(x).numpy().astype("f8") for x in xs]
    return start.astype("f8"), gradients, w.numpy()


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adamw_beside_numpy(decay):
    lr, (beta1, beta2), eps = 1e-2, (0.8, 0.95), 1e-6
    w, gradients, found = trained(
        lambda w: weft.AdamW([w], lr=lr, betas=(beta1, beta2), eps=eps, weight_decay=decay)
    )
    m = v = np.zeros_like(w)
    for t, g in enumerate(gradients, 1):
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
        w = w * (1 - lr * decay)
        w = w - lr * (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + eps)
    np.testing.assert_allclose(found, w, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "momentum, nesterov, decay", [(0, False, 0), (0.9, False, 0.1), (0.9, True, 0)]
)
def test_sgd_beside_numpy(momentum, nesterov, decay):
    lr = 0.05
    w, gradients, found = trained(
        lambda w: weft.SGD([w], lr=lr, momentum=momentum, nesterov=nesterov, weight_decay=decay)
    )
    buffer = np.zeros_like(w)
    for g in gradients:
        g = g + decay * w
        buffer = momentum * buffer + g
        w = w - lr * (g + momentum * buffer if nesterov else buffer)
    np.testing.assert_allclose(found, w, rtol=1e-5, atol=1e-6)


def test_schedules():
    schedule = weft.Schedule("cosine", 0.1, warmup=2, total=10)
    assert schedule.peak == 0.1 and schedule.at(0) < schedule.at(1) and schedule.at(9) < 0.05
    w = weft.Variable("w", "f32", (1,))
    optimizer = weft.SGD([w], lr=weft.Schedule("step", 1.0, every=2, gamma=0.5))
    step = weft.compile(lambda g: optimizer.step([g]) or g)
    steps = []
    for _ in range(4):
        before = w.item()
        step(np.ones(1, "f4"))
        steps.append(before - w.item())
    assert steps == [1, 1, 0.5, 0.5]
