"""Operations, operators, indices and reductions of tensors, beside NumPy."""

import operator

import numpy as np
import pytest
from support import floats

import weft


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


def test_methods_take_numbers_or_a_list_of_them():
    x = weft.arange(6)
    assert x.reshape(2, 3).shape == x.reshape((2, 3)).shape == x.reshape([2, -1]).shape == (2, 3)
    assert x.reshape(6, 1).permute(1, 0).shape == (1, 6)
    assert weft.ones((1, 3)).broadcast_to(2, 3).shape == (2, 3)
    with pytest.raises(TypeError, match="takes numbers"):
        x.reshape(2, "3")
