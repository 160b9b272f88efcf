"""Arrays of other libraries as tensors, and tensors as arrays."""

import gc

import ml_dtypes
import numpy as np
import pytest
from support import floats

import weft


def address(array):
    return array.__array_interface__["data"][0]


def aligned(*shape):
    """Returns an array at the alignment of weft's own memory, 64 bytes."""
    raw = np.zeros(int(np.prod(shape)) + 16, "f4")
    return raw[-address(raw) % 64 // 4 :][: int(np.prod(shape))].reshape(shape)


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
