"""Tensors in Python's own protocols: numbers, formats, DLPack, buffers, pickle, copies."""

import array
import copy
import operator
import pickle

import brought
import numpy as np
import pytest

import weft
from weft._dtypes import NAMES


def variable(elements):
    made = weft.Variable("w", elements.dtype, elements.shape)
    made.assign(elements)
    return made


# ---- numbers -------------------------------------------------------------------------------------

NUMBERS = [
    np.int64(2**53 + 1),
    np.int64(-(2**63)),
    np.int32(-7),
    np.uint32(2**32 - 1),
    np.uint8(255),
    np.bool_(True),
    np.bool_(False),
    np.float64(0.1),
    np.float32(1e30),
    np.float16(-0.5),
]


@pytest.mark.parametrize("number", NUMBERS, ids=repr)
@pytest.mark.parametrize("of", [weft.asarray, variable])
def test_one_element_is_a_number_of_python(number, of):
    expected = number.item()
    tensor = of(np.array(number))
    assert tensor.item() == expected and type(tensor.item()) is type(expected)
    assert (int(tensor), float(tensor), bool(tensor)) == (
        int(expected),
        float(expected),
        bool(expected),
    )
    assert of(np.full((1, 1), number)).item() == expected


@pytest.mark.parametrize("number", NUMBERS, ids=repr)
def test_only_integers_are_indices(number):
    tensor = weft.asarray(np.array(number))
    if number.dtype.kind in "iu":
        assert operator.index(tensor) == operator.index(number)
    else:
        for value in tensor, number:
            with pytest.raises(TypeError):
                operator.index(value)


def test_integers_index_lists_and_count():
    assert [10, 20, 30][weft.tensor(-1)] == 30 and list(range(weft.tensor([2]))) == [0, 1]
    with pytest.raises(TypeError, match="one integer"):
        operator.index(weft.tensor([1, 2]))


def test_numbers_that_python_lacks_as_integers():
    with pytest.raises(ValueError, match="NaN"):
        int(weft.tensor(float("nan")))
    with pytest.raises(OverflowError):
        int(weft.tensor(float("inf")))


@pytest.mark.parametrize("spec", ["", ".3f", "10.2e", "+g"])
@pytest.mark.parametrize("number", [np.float64(0.1), np.int64(2**60 + 1), np.bool_(True)], ids=repr)
def test_a_tensor_of_one_number_is_formatted_as_it(spec, number):
    assert format(weft.asarray(np.array(number)), spec) == format(number.item(), spec)
    assert format(variable(np.array(number)), spec) == format(number.item(), spec)


def test_formats_of_several_numbers():
    x = weft.tensor([1.5, 2.5])
    assert f"{x}" == str(x) and f"{x[:1]:.2f}" == "1.50" and f"{x[:1]}" == str(x[:1])
    for value in x, x.numpy():
        with pytest.raises(TypeError):
            f"{value:.3f}"


# ---- DLPack --------------------------------------------------------------------------------------


def test_dlpack_of_a_tensor_is_read_only():
    x = weft.arange(6).reshape(2, 3)
    shared = np.from_dlpack(x)
    assert not shared.flags.writeable and shared.ctypes.data == x.numpy().ctypes.data
    shared = np.from_dlpack(x, copy=False)
    assert not shared.flags.writeable and shared.ctypes.data == x.numpy().ctypes.data


def test_dlpack_copies_on_request():
    x = weft.arange(6).reshape(2, 3) + 0
    copied = np.from_dlpack(x, copy=True)
    copied[0, 0] = 7
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]] and copied.tolist() == [[7, 1, 2], [3, 4, 5]]
    assert np.from_dlpack(weft.zeros((0, 3)), copy=True).shape == (0, 3)
    torch = brought.imported("torch")
    torch.from_dlpack(x, copy=True).zero_()
    assert x.sum().item() == 15 and torch.from_dlpack(x).tolist() == x.tolist()


def test_dlpack_of_earlier_consumers():
    x = weft.arange(3)
    for options in {}, {"max_version": None}, {"max_version": (0, 8)}, {"stream": None}:
        assert '"dltensor"' in repr(x.__dlpack__(**options))
    assert '"dltensor_versioned"' in repr(x.__dlpack__(max_version=(1, 3)))


@pytest.mark.parametrize("wanted", [None, True, False])
def test_dlpack_on_other_devices_is_refused(wanted):
    with pytest.raises(BufferError):
        weft.arange(3).__dlpack__(dl_device=(2, 0), copy=wanted)
    with pytest.raises(TypeError):
        weft.arange(3).__dlpack__(copies=wanted)


# ---- buffers -------------------------------------------------------------------------------------


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


# ---- pickle and copies ---------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("dtype", NAMES)
def test_tensors_are_pickled(dtype, protocol):
    for x in weft.tensor([[0, 1, 1], [1, 0, 0]]).cast(dtype), weft.zeros((0, 3), dtype):
        found = pickle.loads(pickle.dumps(x, protocol))
        assert (found.dtype, found.shape) == (x.dtype, x.shape)
        assert found.numpy().tobytes() == x.numpy().tobytes()


def test_pickles_hold_elements_out_of_band():
    x = weft.randn((64, 64))
    buffers = []
    small = pickle.dumps(x, 5, buffer_callback=buffers.append)
    assert len(small) < 500 and buffers[0].raw().nbytes == x.nbytes
    assert (pickle.loads(small, buffers=buffers).numpy() == x.numpy()).all()


def test_copies_of_tensors():
    elements = np.arange(4.0)
    x = weft.asarray(elements)
    deep = copy.deepcopy({"x": x, "again": x})
    assert copy.copy(x) is x and deep["x"] is deep["again"]
    elements[0] = 7
    assert x.tolist() == [7, 1, 2, 3] and deep["x"].tolist() == [0, 1, 2, 3]
