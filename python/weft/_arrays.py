"""Tensors from arrays of other libraries, and arrays from tensors, without copies."""

import pickle
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from . import _weft
from ._dtypes import name_of, numpy_dtype
from ._weft import Tensor, Variable


def tensor(data: Any, dtype: DTypeLike | None = None) -> Tensor:
    """Returns a tensor with a copy of `data`: a number, nested lists, an array, another tensor.

    As in PyTorch, Python's integers become i64 and its fractions f32.
    """
    if isinstance(data, (Tensor, Variable)):
        value = data.value() if isinstance(data, Variable) else data
        return value if dtype is None else value.cast(dtype)
    if not _is_array(data):
        try:
            data = np.asarray(data)
        except ValueError as error:  # rows of different lengths
            message = f"[tensor] nested lists need rows of one length: {error}"
            raise _weft.UsageError(message) from None
        if dtype is None and data.dtype == np.float64:
            data = data.astype(np.float32)
    else:
        data = _as_numpy(data)
    if dtype is not None:
        data = data.astype(numpy_dtype(name_of(dtype)))
    return _over(np.array(data, data.dtype.newbyteorder("="), order="C"))


def asarray(data: Any, dtype: DTypeLike | None = None) -> Tensor:
    """Returns a tensor over the memory of an array, without a copy where it is row-major.

    The tensor keeps the array alive. Its elements are read when the tensor is, so what is written
    to the array until then counts.
    """
    if isinstance(data, (Tensor, Variable)) or not _is_array(data):
        return tensor(data, dtype)
    made = _over(_row_major(_as_numpy(data)))
    return made if dtype is None else made.cast(dtype)


def from_dlpack(data: Any) -> Tensor:
    """Returns a tensor over the memory of any object with __dlpack__ on the CPU."""
    if not hasattr(data, "__dlpack__"):
        raise TypeError(f"from_dlpack() takes an object with __dlpack__. Got {type(data).__name__}")
    return _over(_row_major(_as_numpy(data)))


def _row_major(array):
    """Returns the array itself, where weft can read its memory, or a copy."""
    array = np.asarray(array, array.dtype.newbyteorder("="), order="C")
    return array if array.flags.aligned else array.copy()


def _is_array(data):
    """Returns whether an object has elements by the protocol of NumPy, DLPack or Python."""
    if hasattr(data, "__array__") or hasattr(data, "__dlpack__"):
        return True
    try:
        memoryview(data)
    except TypeError:
        return False
    return True


def _as_numpy(data):
    if isinstance(data, np.ndarray):
        return data
    if hasattr(data, "detach") and hasattr(data, "data_ptr"):  # a tensor of PyTorch
        return _torch_as_numpy(data)
    if hasattr(data, "__dlpack__") and not hasattr(data, "__array__"):
        return np.from_dlpack(data)
    return np.asarray(data if hasattr(data, "__array__") else memoryview(data))


def _torch_as_numpy(data):
    data = data.detach()
    if data.device.type != "cpu":
        raise _weft.UsageError(f"[tensor] a tensor on {data.device}: weft takes those of the CPU")
    name = name_of(data.dtype)
    if name in ("bf16", "f8_e4m3", "f8_e5m2"):  # NumPy has these from ml_dtypes alone
        integers = __import__("torch").int16 if name == "bf16" else __import__("torch").uint8
        return data.view(integers).numpy().view(numpy_dtype(name))
    return data.numpy()


def _over(array):
    name = name_of(array.dtype)
    if array.ndim > 8:
        raise _weft.UsageError(f"[tensor] a tensor has at most 8 axes. Got {array.ndim}")
    if array.size == 0:
        return _weft.zeros(array.shape, name)
    return _weft._from_buffer(array.ctypes.data, name, array.shape, array)


def numpy(self):
    """Returns a read-only array over the elements of the tensor, which it keeps alive."""
    value = self.value() if isinstance(self, Variable) else self
    dtype = numpy_dtype(value.dtype)
    if value.size == 0:
        return np.empty(value.shape, dtype)
    array = np.asarray(value._bytes()).view(dtype).reshape(value.shape)
    array.flags.writeable = False
    return array


def _array(self, dtype=None, copy=None):
    array = numpy(self)
    if dtype is not None and np.dtype(dtype) != array.dtype:
        if copy is False:
            raise ValueError(f"{array.dtype} becomes {np.dtype(dtype)} by a copy alone")
        return array.astype(dtype)
    return array.copy() if copy else array


def _assign_array(self, data):
    """Sets the elements of a variable now, outside of steps."""
    self.assign(asarray(data))


def _bytes_of(value):
    return np.empty(0, np.uint8) if value.size == 0 else value._bytes()


def _restored(data, dtype, shape):
    """Returns a tensor with a copy of bytes."""
    if 0 in shape:
        return _weft.zeros(shape, dtype)
    elements = np.frombuffer(data, np.uint8).copy()
    return _weft._from_buffer(elements.ctypes.data, dtype, shape, elements)


def _reduce(self, protocol):
    """Pickles values, dtype and shape; from protocol 5 on the elements may travel out of band."""
    data = _bytes_of(self)
    data = pickle.PickleBuffer(data) if protocol >= 5 else data.tobytes()
    return _restored, (data, self.dtype, self.shape)


def _deep_copy(self, memo):
    """Returns a tensor with memory of its own: that of asarray() belongs to an array."""
    return _restored(_bytes_of(self), self.dtype, self.shape)


Tensor.__reduce_ex__ = _reduce
Tensor.__copy__ = lambda self: self  # nothing changes a tensor
Tensor.__deepcopy__ = _deep_copy

for _type in (Tensor, Variable):
    _type.numpy = numpy
    _type.__array__ = _array
    _type.__array_priority__ = 1000  # NumPy's operators leave tensors to weft
    _type.__array_ufunc__ = None
    _type.tolist = lambda self: numpy(self).tolist()
    _type.T = property(lambda self: self.transpose())
