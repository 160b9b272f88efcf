"""Bad input: an exception that says what is wrong, or torch computes it, which is counted."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
from functions import Doubling
from torch import nn

import weft
import weft.torch

X = torch.randn(3, 4)


def small():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def square(output):
    return output.square().mean()


def compiled(function, **options):
    torch._dynamo.reset()
    weft.torch.report().reset()
    return torch.compile(function, backend=weft.torch.backend, **options)


def step_of(model, loss=square):
    torch._dynamo.reset()
    return weft.torch.step(model, loss, torch.optim.SGD(model.parameters(), lr=0.1))


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        y = self.layer(x)
        if y.sum() > 1e6:  # which depends on elements
            y = y * 2
        return y


class Choosing(Branching):
    def forward(self, x):
        y = self.layer(x)
        return y[y < 1e6]


class Writing(Branching):
    def forward(self, x):
        x.mul_(2)
        return self.layer(x)


class Custom(Branching):
    def forward(self, x):
        return Doubling.apply(self.layer(x))


# ---- devices and types


def test_meta_tensors_are_planned_and_not_run(tmp_path):
    model, x = small().to("meta"), X.to("meta")
    assert weft.plan(model, x)["cpu"].memory_bytes > 0
    with pytest.raises(Exception, match="CPU tensors. Got one on meta"):
        compiled(model)(x)
    with pytest.raises(weft.UsageError, match="0.weight is on meta"):
        step_of(model)
    with pytest.raises(weft.UsageError, match="0.weight is on meta"):
        weft.export(model, x, tmp_path / "net.onnx")


def test_devices_that_are_mixed_are_torch_errors():
    with pytest.raises(Exception, match="device"):
        compiled(lambda a, b: a + b)(X, X.to("meta"))
    with pytest.raises(Exception, match="device"):
        step_of(small())(X.to("meta"))


def test_unsupported_types_run_in_torch_and_are_counted():
    for dtype in (torch.complex64, torch.uint64, torch.float8_e4m3fn):
        x = torch.ones(3, dtype=torch.float32).to(dtype)
        got = compiled(lambda x: (x.view(-1), x.to(torch.complex64) * 2))(x)
        assert torch.equal(got[1], torch.full((3,), 2, dtype=torch.complex64))
        assert weft.torch.report().fallbacks


def test_unsupported_types_are_refused_by_a_step_and_files(tmp_path):
    model, x = nn.Linear(4, 2, dtype=torch.complex64), X.to(torch.complex64)
    with pytest.raises(weft.UsageError, match="no torch.complex64"):
        step_of(model, lambda o: o.abs().mean())(x)
    with pytest.raises(weft.UsageError, match="no torch.complex64"):
        weft.export(model, x, tmp_path / "net.onnx")


def test_factors_of_different_types_are_refused_as_in_torch():
    layer, x = nn.Linear(4, 4), torch.randn(2, 4, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="same dtype"):
        compiled(layer)(x)
    with pytest.raises(weft.UsageError, match="factors of different types: f64 and f32"):
        step_of(layer)(x)


def test_tensors_of_more_axes_than_weft_has():
    x = torch.ones((1,) * 9)
    assert torch.equal(compiled(lambda x: x * 2)(x), x * 2)
    assert any("8 axes" in f.reason for f in weft.torch.report().fallbacks)


def test_sparse_and_quantized_tensors_run_in_torch():
    got = compiled(lambda a: a @ torch.ones(4, 2))(X.to_sparse())
    torch.testing.assert_close(got, X @ torch.ones(4, 2))


# ---- memory


@pytest.mark.parametrize("x", [
    torch.randn(4, 3).t(), torch.randn(0, 4), torch.randn(1, 4).expand(3, 4),
    torch.randn(3, 4).requires_grad_()], ids=["transposed", "empty", "expanded", "requires_grad"])
def test_batches_of_a_step_a_plan_and_a_file(x, tmp_path):
    torch.manual_seed(0)
    model = small()
    expected = square(model(x)).item()
    if x.requires_grad:  # eager torch would give it a gradient
        with pytest.raises(weft.UsageError, match="needs a gradient.*detach"):
            step_of(model)(x)
    else:
        assert step_of(model)(x).item() == pytest.approx(expected, nan_ok=True, rel=1e-5)
    assert weft.plan(model, x)["cpu"].memory_bytes > 0
    weft.export(model, x, tmp_path / "net.onnx")


def test_inputs_that_a_model_writes(tmp_path):
    model, x, twin = Writing(), X.clone(), X.clone()
    torch.testing.assert_close(compiled(model)(x), model(twin))
    assert torch.equal(x, twin)
    for refuse in (lambda: step_of(model)(X.clone()), lambda: weft.plan(model, X),
                   lambda: weft.export(model, X, tmp_path / "net.onnx")):
        with pytest.raises(Exception, match="writes to its input"):
            refuse()


def test_parts_of_one_result_are_results():
    """A part of a slot gave its address for the whole slot, and the kernel wrote behind it."""

    def f(x):
        y = x.cumsum(0).tril(3)
        first, rest = torch.split(x @ x, [0, 3])
        return torch.diagonal(y, 1, 0, 1), y, first, rest

    x = torch.randn(3, 3)
    for got, expected in zip(compiled(f)(x), f(x)):
        torch.testing.assert_close(got, expected)


# ---- models


@pytest.mark.parametrize("kind", [
    "register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook"])
def test_hooks_of_modules(kind):
    model, seen = small(), []
    getattr(model[0], kind)(lambda *_: seen.append(1))
    compiled(model)(X).sum().backward()
    assert seen and model[0].weight.grad is not None
    if kind == "register_full_backward_hook":
        with pytest.raises(weft.UsageError, match="0 has backward hooks"):
            step_of(model)
    else:
        seen.clear()
        step = step_of(model)
        step(X), step(X)
        assert len(seen) == 2


def test_hooks_of_parameters_are_called():
    model, seen = small(), []
    model[0].weight.register_hook(lambda g: g * 3)
    model[0].weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
    model(X).sum().backward()
    expected = seen.pop()
    model.zero_grad()
    compiled(model)(X).sum().backward()
    torch.testing.assert_close(seen.pop(), expected)


def test_custom_functions():
    model = Custom()
    torch.manual_seed(0)
    square(model(X)).backward()
    expected = model.layer.weight.detach() - 0.1 * model.layer.weight.grad
    step_of(model)(X)
    torch.testing.assert_close(model.layer.weight.detach(), expected)
    assert weft.plan(model, X)["cpu"].memory_bytes > 0


def test_control_flow_that_depends_on_elements(tmp_path):
    model = Branching()
    torch.testing.assert_close(compiled(model)(X), model(X))
    with pytest.raises(Exception, match="[Dd]ata-dependent.*test_bad_input.py|[Dd]ata-dependent"):
        step_of(model)(X)
    for refuse in (weft.plan, lambda m, x: weft.export(m, x, tmp_path / "net.onnx")):
        with pytest.raises(weft.UsageError, match=r"depends on elements.*test_bad_input.py:\d+"):
            refuse(model, X)


def test_sizes_that_depend_on_elements(tmp_path):
    model = Choosing()
    torch.testing.assert_close(compiled(model)(X), model(X))
    with pytest.raises(weft.UsageError, match="depends on the elements"):
        step_of(model, lambda o: o.sum())(X)
    for refuse in (weft.plan, lambda m, x: weft.export(m, x, tmp_path / "net.onnx")):
        with pytest.raises(weft.UsageError, match=r"depends on elements.*test_bad_input.py:\d+"):
            refuse(model, X)


def test_losses_that_are_not_one_number():
    with pytest.raises(Exception, match=r"a loss is one number. Got one of shape \[3, 2\]"):
        step_of(small(), lambda o: o)(X)
    with pytest.raises(Exception, match="nothing of the loss needs a gradient"):
        step_of(small(), lambda o: 3.0)(X)
    model, twin = nn.Linear(4, 2), nn.Linear(4, 2)
    twin.load_state_dict(model.state_dict())
    step_of(model, lambda o: square(o).reshape(1))(X)  # one element, which torch takes too
    step_of(twin)(X)
    assert torch.equal(model.weight, twin.weight)


def test_wrong_shapes_and_arguments(tmp_path):
    wrong = torch.randn(3, 5)
    for call in (compiled(small()), step_of(small()), lambda x: weft.plan(small(), x),
                 lambda x: weft.export(small(), x, tmp_path / "net.onnx")):
        with pytest.raises(Exception, match="3.*5.*4.*8|fake tensor"):
            call(wrong)
    with pytest.raises(weft.UsageError, match="a model is a torch.nn.Module. Got int"):
        weft.plan(3, X)
    with pytest.raises(weft.UsageError, match="a model is a torch.nn.Module. Got function"):
        weft.export(lambda x: x, X, tmp_path / "net.onnx")
    with pytest.raises(weft.UsageError, match="nosuch.*no such device"):
        weft.plan(small(), X, on="nosuch")
    with pytest.raises(TypeError, match="missing 1 required"):
        weft.plan(small())
    with pytest.raises(weft.Error, match="no such|No such|could not"):
        weft.export(small(), X, tmp_path / "none" / "net.onnx")
    with pytest.raises(weft.DataError, match="none.pt2"):
        weft.torch.load(tmp_path / "none.pt2")


# ---- gradients of equal inputs


def test_attention_to_itself():
    """The gradient by each of three equal inputs is its own, and not the sum of all."""

    def f(x):
        return nn.functional.scaled_dot_product_attention(x, x, x).square().sum()

    x = torch.randn(1, 2, 5, 4, requires_grad=True)
    f(x).backward()
    expected, x.grad = x.grad, None
    compiled(f)(x).backward()
    torch.testing.assert_close(x.grad, expected, rtol=1e-4, atol=1e-5)


# ---- processes


def run(script):
    return subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True,
                          text=True, timeout=120)


def test_another_version_of_torch_is_said_once_and_no_more():
    done = run("""
        import warnings
        import torch

        torch.__version__ = "9.1.0"
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            import weft.torch
            import weft.torch.step
        said = [str(w.message) for w in said if "[weft]" in str(w.message)]
        assert len(said) == 1, said
        assert "9.1.0" in said[0] and weft.torch.TESTED in said[0], said
        weft.plan(torch.nn.Linear(2, 2), torch.ones(1, 2))
        """)
    assert done.returncode == 0, done.stderr


def test_a_second_interpreter():
    done = run("""
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        import weft

        other = interpreters.create()
        script = '''
        try:
            import weft
        except ImportError as error:
            print("refused:", error)
        else:
            print("sum", float(weft.ones((2,), "f4").sum().numpy()))
        '''
        import textwrap
        print(interpreters.run_string(other, textwrap.dedent(script)) or "", flush=True)
        print(weft.ones((2,), "f4").numpy().sum())
        """)
    assert done.returncode == 0, done.stderr
    assert "2.0" in done.stdout and ("refused" in done.stdout or "sum 2.0" in done.stdout)


# ---- arrays of NumPy


def read_only():
    array = np.arange(6, dtype="f4").reshape(2, 3)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("array", [
    np.arange(6, dtype=">f4").reshape(2, 3), np.arange(6, dtype="f4").reshape(2, 3)[::-1, ::-1],
    read_only(), np.array(3.0), np.zeros((1,) * 8, "f4"), np.zeros((0, 2**40), "f4"),
    np.broadcast_to(np.float32(1), (4, 5)), np.frombuffer(bytes(17), "u1")[1:].view("f4")],
    ids=["big_endian", "reversed", "read_only", "scalar", "rank_8", "empty", "broadcast",
         "unaligned"])
def test_odd_arrays_are_read(array):
    @weft.compile
    def twice(x):
        return x + x

    for made in (weft.asarray(array), weft.tensor(array), weft.from_dlpack(array)):
        assert made.shape == array.shape
        if array.size:
            assert np.array_equal(made.numpy(), array)
    result = twice(array)
    assert result.shape == array.shape
    if array.size:
        assert np.array_equal(result.numpy(), array + array)


@pytest.mark.parametrize("data", [
    np.array([1, None, "a"], dtype=object), np.zeros(3, [("a", "f4"), ("b", "i4")]),
    np.array(["a", "b"]), np.array([b"a"]), np.array(["2020-01-01"], "M8[D]"), np.zeros(3, "c8"),
    np.zeros(3, np.longdouble), np.zeros(3, "u8"), np.zeros((1,) * 9, "f4"), 2**70, None, "text",
    [[1, 2], [3]]], ids=str)
@pytest.mark.parametrize("over", [weft.asarray, weft.tensor, weft.from_dlpack])
def test_odd_arrays_are_refused(over, data):
    with pytest.raises((TypeError, ValueError)) as refusal:
        over(data)
    assert "\n" not in str(refusal.value)


def test_objects_that_fail_by_themselves():
    class Failing:
        def __array__(self, *args, **options):
            raise RuntimeError("no elements")

    class Elsewhere:
        def __dlpack__(self, *args, **options):
            return None

        def __dlpack_device__(self):
            return 2, 0

    with pytest.raises(RuntimeError, match="no elements"):
        weft.asarray(Failing())
    with pytest.raises((TypeError, ValueError, BufferError)):
        weft.from_dlpack(Elsewhere())


def test_huge_shapes():
    with pytest.raises(weft.UsageError, match="more elements than can be counted"):
        weft.zeros((2**40, 2**40), "f4")
    with pytest.raises(MemoryError):
        weft.zeros((2**40,), "f4").numpy()
    with pytest.raises(MemoryError):
        weft.asarray(np.broadcast_to(np.float32(1), (2**40,)))
    with pytest.raises(weft.UsageError, match="negative"):
        weft.zeros((-1, 2), "f4")
