"""The library in Python without PyTorch: arrays, operations, errors, steps, optimizers, threads."""

import array
import gc
import operator
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref

import brought
import ml_dtypes
import numpy as np
import pytest

import weft

RNG = np.random.default_rng(0)


def floats(*shape):
    return RNG.standard_normal(shape).astype("f4")


def address(array):
    return array.__array_interface__["data"][0]


def aligned(*shape):
    """Returns an array at the alignment of weft's own memory, 64 bytes."""
    raw = np.zeros(int(np.prod(shape)) + 16, "f4")
    return raw[-address(raw) % 64 // 4 :][: int(np.prod(shape))].reshape(shape)


def run(script, **options):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=60,
        **options,
    )


# ---- arrays --------------------------------------------------------------------------------------


@pytest.mark.parametrize("over", [weft.asarray, weft.from_dlpack])
@pytest.mark.parametrize("shape", [(64, 64), (3, 5), (7,)])
def test_arrays_are_read_in_place(over, shape):
    array = floats(*shape)
    tensor = over(array)
    assert address(tensor.numpy()) == address(array)
    assert address(np.from_dlpack(tensor)) == address(array)
    array[...] = 7
    assert (tensor.numpy() == 7).all()


def test_tensor_copies():
    array = aligned(4, 4)
    tensor = weft.tensor(array)
    array[...] = 7
    assert (tensor.numpy() == 0).all()


def test_numpy_is_a_view_that_cannot_be_written():
    tensor = weft.asarray(floats(4, 4)) + 1
    array = tensor.numpy()
    assert address(array) == address(tensor.numpy()) == address(np.asarray(tensor))
    assert address(array) == address(np.from_dlpack(tensor))
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 0
    copy = np.array(tensor)
    copy[0] = 0
    assert (tensor.numpy()[0] != 0).any()


def test_arrays_outlive_their_tensor():
    tensor = weft.asarray(floats(256, 256)) + 1
    array, again = tensor.numpy(), np.from_dlpack(tensor)
    expected = array.copy()
    del tensor
    gc.collect()
    weft.randn((256, 256)).eval()  # would take the memory if it was free
    assert (array == expected).all() and (again == expected).all()


def test_arrays_outlive_the_next_run_of_their_step():
    step = weft.compile(lambda x: x + 1)
    first = step(np.zeros((64, 64), "f4"))
    array = first.numpy()
    second = step(np.ones((64, 64), "f4"))
    assert (array == 1).all() and (first.numpy() == 1).all() and (second.numpy() == 2).all()


def test_each_run_gives_its_own_results():
    step = weft.compile(lambda x: x + 1)
    assert [step(np.full(3, i, "f4")).numpy()[0] for i in range(4)] == [1, 2, 3, 4]
    arrays = [step(np.full(3, i, "f4")).numpy() for i in range(4)]
    assert [array.tolist() for array in arrays] == [[i + 1] * 3 for i in range(4)]
    results = [step(np.full(3, i, "f4")) for i in range(4)]
    assert [result.sum().item() for result in results] == [3, 6, 9, 12]
    empty = weft.compile(lambda x: (x * 2, x.sum()))(np.zeros((0, 3), "f4"))
    assert empty[0].numpy().shape == (0, 3) and empty[1].item() == 0


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24).reshape(2, 3, 4)[:, ::2, ::-1],
        np.arange(12, dtype="f4").reshape(3, 4).T,
        np.broadcast_to(np.float32(3), (2, 3)),
        np.asfortranarray(floats(3, 4)),
        np.frombuffer(b"\0" + bytes(range(16)), "u1")[1:].view("f4"),
        np.arange(4, dtype=">f4"),
    ],
)
def test_arrays_of_any_strides(array):
    for over in weft.asarray, weft.tensor:
        assert over(array).shape == array.shape
        np.testing.assert_array_equal(over(array).numpy(), array)


@pytest.mark.parametrize("over", [weft.asarray, weft.tensor, weft.from_dlpack])
def test_arrays_without_axes_and_without_elements(over):
    zero = over(np.array(3, "f4"))
    assert (zero.shape, zero.ndim, zero.size, zero.item(), float(zero)) == ((), 0, 1, 3.0, 3.0)
    assert zero.numpy().shape == () and zero.numpy() == 3
    empty = over(np.zeros((0, 3), "f4"))
    assert (empty.shape, empty.size, empty.nbytes) == ((0, 3), 0, 0)
    assert empty.numpy().shape == (0, 3)
    assert (empty + 1).numpy().shape == (0, 3) and empty.sum().item() == 0


def test_types_of_python_numbers():
    assert [weft.tensor(each).dtype for each in (True, 1, 1.5, [1, 2], [[1.5]], [])] == [
        "bool",
        "i64",
        "f32",
        "i64",
        "f32",
        "f32",
    ]
    assert weft.tensor([1, 2], "f16").dtype == weft.tensor([1, 2], np.float16).dtype == "f16"
    assert weft.tensor(1.0, float).dtype == "f32"


@pytest.mark.parametrize(
    "name, dtype",
    [
        ("bool", np.bool_),
        ("u8", np.uint8),
        ("u16", np.uint16),
        ("u32", np.uint32),
        ("i8", np.int8),
        ("i16", np.int16),
        ("i32", np.int32),
        ("i64", np.int64),
        ("f16", np.float16),
        ("f32", np.float32),
        ("f64", np.float64),
        ("bf16", ml_dtypes.bfloat16),
        ("f8_e4m3", ml_dtypes.float8_e4m3fn),
        ("f8_e5m2", ml_dtypes.float8_e5m2),
    ],
)
def test_dtypes(name, dtype):
    array = np.array([0, 1, 1, 0]).astype(dtype)
    tensor = weft.asarray(array)
    assert tensor.dtype == name and tensor.numpy().dtype == array.dtype
    assert (tensor.numpy() == array).all()
    assert tensor.nbytes == array.nbytes
    for given in name, dtype, np.dtype(dtype):
        assert weft.ones((2,), given).dtype == name
        assert weft.tensor([0, 1, 1, 0]).cast(given).numpy().tolist() == array.tolist()


def test_small_floats_round_as_those_of_ml_dtypes():
    array = floats(1000) * 10
    for name, dtype in ("bf16", ml_dtypes.bfloat16), ("f8_e5m2", ml_dtypes.float8_e5m2):
        np.testing.assert_array_equal(weft.asarray(array).cast(name).numpy(), array.astype(dtype))


def test_unknown_types_are_refused():
    for array in np.array(["text"]), np.array([1j]), np.array([2**70]):
        with pytest.raises(TypeError, match="weft has no dtype.*f32"):
            weft.asarray(array)
    with pytest.raises(TypeError):
        weft.from_dlpack(3)


# ---- operations ----------------------------------------------------------------------------------

BINARY = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"]


@pytest.mark.parametrize("name", BINARY)
def test_operators(name):
    apply = getattr(operator, name)
    a, b = (np.abs(floats(4, 4)) + 0.5 for _ in range(2))
    expected = apply(a, b)
    x, y = weft.asarray(a), weft.asarray(b)
    variable = weft.Variable("x", "f32", (4, 4))
    variable.assign(a)
    for found in apply(x, y), apply(a, y), apply(x, b), apply(variable, b), apply(a, y):
        assert isinstance(found, weft.Tensor)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)
    if name != "matmul":
        np.testing.assert_allclose(apply(2.5, y).numpy(), apply(np.float32(2.5), b), rtol=1e-5)
        np.testing.assert_allclose(apply(x, 3).numpy(), apply(a, np.float32(3)), rtol=1e-5)
        np.testing.assert_allclose(
            apply(np.float32(2), y).numpy(), apply(np.float32(2), b), rtol=1e-5
        )


@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_comparisons(name):
    apply = getattr(operator, name)
    a, b = np.array([1, 2, 3]), np.array([3, 2, 1])
    for found in apply(weft.asarray(a), weft.asarray(b)), apply(weft.asarray(a), b):
        assert found.numpy().tolist() == apply(a, b).tolist()
    assert apply(2, weft.asarray(a)).numpy().tolist() == apply(2, a).tolist()


@pytest.mark.parametrize("name", ["and_", "or_", "xor"])
def test_bits(name):
    apply = getattr(operator, name)
    for a, b in (
        (np.array([6, 5]), np.array([3, 9])),
        (np.array([True, False]), np.array([True, True])),
    ):
        found = apply(weft.asarray(a), weft.asarray(b)).numpy()
        assert found.tolist() == apply(a, b).tolist() and found.dtype == a.dtype
        assert apply(a[0].item(), weft.asarray(b)).numpy().tolist() == apply(a[0], b).tolist()
        assert (~weft.asarray(a)).numpy().tolist() == (~a).tolist()


@pytest.mark.parametrize("a", [-7, 7])
@pytest.mark.parametrize("b", [-3, 2])
def test_integers_divide_as_in_python(a, b):
    x = weft.tensor([a])
    assert ((x // b).item(), (x % b).item()) == (a // b, a % b)
    assert (a // weft.tensor([b])).item() == a // b


def test_mixed_numbers():
    assert (weft.tensor([1, 2]) + 0.5).tolist() == [1.5, 2.5]
    assert (weft.tensor([1, 2]) / 2).tolist() == [0.5, 1.0]
    assert (1 - weft.tensor(3)).item() == -2
    assert (2 ** weft.tensor([2, 3])).tolist() == [4, 8]
    assert (weft.tensor([1.0]).cast("bf16") * 2).dtype == "bf16"
    assert abs(-weft.tensor([1, -2])).tolist() == [1, 2]


INDICES = [
    0,
    -1,
    slice(None),
    slice(1, None),
    slice(-2, None),
    slice(1, 100),
    slice(3, 1),
    slice(None, None, 2),
    (0, 1),
    (slice(None), -1),
    (Ellipsis, 1),
    (1, Ellipsis, slice(0, 2)),
    None,
    (None, 1, None),
    (slice(None), None, 2),
    np.int64(1),
    np.array([1, 0, 1]),
    (slice(None), np.array([2, 0])),
    (Ellipsis, slice(1, -1)),
    (),
    Ellipsis,
]


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_indices(index):
    array = floats(2, 3, 4)
    found = weft.asarray(array)[index]
    assert found.shape == array[index].shape
    np.testing.assert_array_equal(found.numpy(), array[index])


def test_bad_indices():
    x = weft.zeros((2, 3))
    for index in 2, -3, (0, 3), True, "a", 1.5:
        with pytest.raises(IndexError):
            x[index]
    with pytest.raises(ValueError, match="flip"):
        x[::-1]
    with pytest.raises(ValueError):
        x[0, 0, 0]
    assert [row.tolist() for row in x] == [[0, 0, 0], [0, 0, 0]] and len(x) == 2
    with pytest.raises(TypeError):
        len(x[0, 0])


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "max", "min"])
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), (), (2, 1, 0)], ids=str)
@pytest.mark.parametrize("keep", [False, True])
def test_reductions(name, axis, keep):
    array = floats(2, 3, 4)
    x = weft.asarray(array)
    expected = getattr(array, name)(axis=axis, keepdims=keep)
    reduce = getattr(x, name)
    for found in (
        reduce(axis, keep),
        reduce(axis=axis, keepdims=keep),
        reduce(dim=axis, keepdim=keep),
        getattr(weft, name)(x, axis=axis, keepdim=keep),
    ):
        assert found.shape == expected.shape
        np.testing.assert_allclose(found.numpy(), expected, rtol=2e-5, atol=1e-6)


def test_other_reductions():
    array = floats(3, 4)
    x = weft.asarray(array)
    np.testing.assert_allclose(x.variance(axis=0).numpy(), array.var(0, ddof=1), rtol=1e-5)
    np.testing.assert_allclose(x.stddev(1, correction=0).numpy(), array.std(1), rtol=1e-5)
    np.testing.assert_allclose(x.norm(1).numpy(), np.linalg.norm(array, axis=1), rtol=1e-5)
    assert x.argmax().item() == array.argmax()
    assert x.argmin(1, keepdims=True).tolist() == array.argmin(1, keepdims=True).tolist()
    assert (x > 0).any(axis=0).tolist() == (array > 0).any(0).tolist()
    assert (x > 9).all().item() == 0
    np.testing.assert_allclose(x.cumsum(1).numpy(), array.cumsum(1), rtol=1e-5)
    with pytest.raises(TypeError, match="not both"):
        x.sum(axis=0, dim=0)


# ---- errors --------------------------------------------------------------------------------------


def test_error_classes():
    assert issubclass(weft.UsageError, (weft.Error, ValueError))
    assert issubclass(weft.DoesNotFit, MemoryError) and issubclass(weft.DoesNotFit, weft.Error)
    assert issubclass(weft.DataError, ValueError) and issubclass(weft.Error, RuntimeError)
    assert not issubclass(weft.InternalError, weft.Error)


def test_errors_say_the_rule_and_the_line():
    x = weft.zeros((2, 3))
    with pytest.raises(weft.UsageError) as error:
        line = sys._getframe().f_lineno + 1
        weft.matmul(x, x)
    assert str(error.value) == (
        "[matmul] inner extents must match. Got [2, 3] and [2, 3]: 3 and 2. "
        f"(test_library.py:{line})"
    )
    assert error.value.exit_code == 2


@pytest.mark.parametrize(
    "mistake",
    [
        lambda x, w: x + weft.zeros((4, 5)),
        lambda x, w: x @ x,
        lambda x, w: x.sum(axis=5),
        lambda x, w: x.reshape((7,)),
        lambda x, w: x[0, 0, 0],
        lambda x, w: weft.concat([x, w[0]]),
        lambda x, w: w.assign(np.zeros((4, 4), "f4")),
        lambda x, w: weft.einsum("ij,jk->ik", [x, x]),
        lambda x, w: weft.grad(x, w),
        lambda x, w: weft.cross_entropy(x, x[0]),
        lambda x, w: weft.compile(lambda y: y @ y)(x),
    ],
)
def test_errors_name_their_line(mistake):
    with pytest.raises(weft.UsageError) as error:
        mistake(weft.zeros((2, 3)), weft.Variable("w", "f32", (2, 3)))
    assert f"(test_library.py:{mistake.__code__.co_firstlineno})" in str(error.value)


def test_wrong_arguments():
    x = weft.zeros((2, 3))
    for mistake in (
        lambda: x + "text",
        lambda: x.cast("f99"),
        lambda: weft.matmul(x),
        lambda: weft.zeros("text"),
        lambda: weft.exp(None),
        lambda: x.reshape([1.5]),
    ):
        with pytest.raises(TypeError):
            mistake()
    for options in {"mode": "fit"}, {"precision": "f31"}, {"recompute": "often"}, {"memory": "1QB"}:
        with pytest.raises(ValueError):
            weft.compile(lambda x: x, **options)


def test_a_step_that_does_not_fit():
    step = weft.compile(lambda x: weft.exp(x).sum() * x, memory="1KiB")
    with pytest.raises(MemoryError) as error:
        step(np.ones((1000, 1000), "f4"))
    assert isinstance(error.value, weft.DoesNotFit)
    assert error.value.least_bytes > 1024 and "1.0 KiB" in str(error.value)


def test_exceptions_of_the_function_pass_through():
    @weft.compile
    def step(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        step(np.ones(3, "f4"))
    with pytest.raises(TypeError, match="a step returns tensors"):
        weft.compile(lambda x: 3)(np.ones(3, "f4"))


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


# ---- threads and processes -----------------------------------------------------------------------


def heavy():
    """Returns a step that takes about a tenth of a second, and its argument."""

    @weft.compile
    def step(x):
        for _ in range(6):
            x = weft.tanh(weft.matmul(x, x))
        return x.sum()

    x = floats(768, 768)
    step(x).item()
    return step, x


def test_a_step_runs_without_the_gil():
    step, x = heavy()
    counts, ends = [0], threading.Event()

    def count():
        while not ends.is_set():
            counts[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    try:
        start, seen = time.perf_counter(), counts[0]
        while time.perf_counter() - start < 0.5:
            step(x)  # holding the GIL, it would let the thread count once each 5 ms at most
        counted = counts[0] - seen
    finally:
        ends.set()
        thread.join()
    assert counted > 10_000


def test_steps_of_two_threads():
    failures = []

    def train(seed):
        w = weft.Variable(f"w{seed}", "f32", (32, 32))
        step = weft.compile(lambda x: w.assign(w + x) or (w * 2).sum())
        for i in range(50):
            if step(np.full((32, 32), seed, "f4")).item() != 2 * 1024 * seed * (i + 1):
                failures.append((seed, i))

    threads = [threading.Thread(target=train, args=(seed,)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads) and not failures


def test_one_step_on_two_threads():
    step = weft.compile(lambda x: (x * 2).sum())
    found = {}

    def call(value):
        found[value] = [step(np.full(1000, value, "f4")).item() for _ in range(200)]

    threads = [threading.Thread(target=call, args=(value,)) for value in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == {value: [2000 * value] * 200 for value in (1, 2, 3)}


def test_ctrl_c_ends_a_loop_of_steps():
    script = """
        import numpy as np, weft
        step = weft.compile(lambda x: weft.matmul(x, x).sum())
        x = np.ones((256, 256), "f4")
        step(x)
        print("runs", flush=True)
        while True:
            step(x)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stdout.readline() == "runs\n"
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == -signal.SIGINT and "KeyboardInterrupt" in error


def test_a_forked_child_is_told():
    done = run("""
        import os, numpy as np, weft
        step = weft.compile(lambda x: weft.matmul(x, x).sum())
        x = np.ones((512, 512), "f4")
        step(x)
        for compute in (lambda: step(x), lambda: weft.matmul(x, x).numpy()):
            child = os.fork()
            if child == 0:
                try:
                    compute()
                except weft.UsageError as error:
                    os._exit(7 if "spawn" in str(error) else 8)
                os._exit(9)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), end=" ")
        print(step(x).item())
    """)
    assert done.stdout == f"7 7 {512.0**3}\n", done.stdout + done.stderr


def test_a_child_of_a_process_that_computed_nothing_computes():
    done = run("""
        import os, numpy as np, weft
        child = os.fork()
        if child == 0:
            x = np.ones((512, 512), "f4")
            os._exit(7 if weft.compile(lambda x: weft.matmul(x, x).sum())(x).item() > 0 else 8)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """)
    assert done.stdout == "7\n", done.stdout + done.stderr


def test_weft_torch_needs_no_import_of_its_own():
    brought.need("torch")
    done = run("import weft; print(weft.torch.step.__name__); weft.nothing")
    assert done.stdout == "step\n" and "no attribute 'nothing'" in done.stderr


def test_methods_take_numbers_or_a_list_of_them():
    x = weft.arange(6)
    assert x.reshape(2, 3).shape == x.reshape((2, 3)).shape == x.reshape([2, -1]).shape == (2, 3)
    assert x.reshape(6, 1).permute(1, 0).shape == (1, 6)
    assert weft.ones((1, 3)).broadcast_to(2, 3).shape == (2, 3)
    with pytest.raises(TypeError, match="takes numbers"):
        x.reshape(2, "3")


def test_the_buffer_protocol():
    x = weft.arange(6).reshape(2, 3)
    view = memoryview(x)
    assert view.shape == (2, 3) and view.format == "l" and view.readonly
    assert view.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert np.asarray(view).ctypes.data == x.numpy().ctypes.data  # nothing is copied
    assert bytes(weft.asarray(b"abc")) == b"abc"
    memory = array.array("f", range(64))
    y = weft.asarray(memory)
    memory[1] = 7
    assert y.dtype == "f32" and y.numpy()[1] == 7  # it is read where it is
    assert weft.tensor(memoryview(memory)).shape == (64,)
    with pytest.raises(TypeError, match="read-only"):
        view[0, 0] = 1
    with pytest.raises((BufferError, ValueError)):  # which has no code in the protocol
        memoryview(weft.ones((2,), "bf16"))


# ---- lifetime ------------------------------------------------------------------------------------


def test_a_step_that_refers_to_itself_is_collected():
    def made():
        held = floats(4)

        @weft.compile
        def step(x):
            return x + held if step is not None else x

        step(np.ones(4, "f4"))
        return weakref.ref(step), weakref.ref(step._function)

    references = made()
    gc.collect()
    assert [reference() for reference in references] == [None, None]


def test_arrays_are_released():
    array = floats(1000)
    count = sys.getrefcount(array)
    tensor = weft.asarray(array)
    view = tensor.numpy()
    assert sys.getrefcount(array) > count
    del tensor, view
    gc.collect()
    assert sys.getrefcount(array) == count


@pytest.mark.slow
def test_compiled_functions_do_not_leak():
    done = run("""
        import gc, numpy as np, weft

        def rss():
            gc.collect()
            return int(open("/proc/self/statm").read().split()[1]) * 4096

        def once(i):
            w = weft.Variable("w", "f32", (256, 256))
            optimizer = weft.AdamW([w], lr=1e-3)

            @weft.compile
            def step(x):
                loss = (weft.matmul(x, w) * (i + 1)).sum()
                optimizer.step([weft.grad(loss, w)])
                return loss
            step.itself = step
            step(np.ones((128, 256), "f4"))

        for i in range(40):
            once(i)
        before = rss()
        for i in range(200):
            once(i)
        print((rss() - before) / 1e6)
    """)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 60, f"200 functions left {done.stdout} MB"  # each has 1.5 MB


# ---- devices -------------------------------------------------------------------------------------


def test_devices():
    cpu = weft.devices()[0]
    assert cpu.name == "cpu" and cpu.is_present and "Device('cpu')" in repr(cpu)
    assert weft.Device("h100").memory_bytes > 2**36
    with pytest.raises(weft.UsageError, match="h1000"):
        weft.Device("h1000")


def test_values_are_computed_on_the_device_of_a_scope():
    with weft.DeviceScope("reference"):
        here = (weft.tensor([1.0, 2.0]) * 3).numpy()
    assert (here == [3, 6]).all()
    if not weft.Device("cuda").is_present:
        with pytest.raises(weft.DeviceError), weft.DeviceScope("cuda"):
            pass
