"""The element types of weft, and those of NumPy and ml_dtypes that hold the same numbers."""

import functools

import numpy as np

_NUMPY = {
    "bool": "bool", "u8": "uint8", "u16": "uint16", "u32": "uint32", "i8": "int8", "i16": "int16",
    "i32": "int32", "i64": "int64", "f16": "float16", "f32": "float32", "f64": "float64",
}
_ML_DTYPES = {"bf16": "bfloat16", "f8_e4m3": "float8_e4m3fn", "f8_e5m2": "float8_e5m2"}
_NAMES = {numpy: name for name, numpy in (_NUMPY | _ML_DTYPES).items()}

NAMES = tuple(_NUMPY) + tuple(_ML_DTYPES)


@functools.cache
def numpy_dtype(name):
    """Returns NumPy's dtype of that name in weft: float32 for "f32"."""
    if name in _NUMPY:
        return np.dtype(_NUMPY[name])
    if name not in _ML_DTYPES:
        raise TypeError(f"NumPy has no dtype for {name}")
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, _ML_DTYPES[name]))


@functools.cache
def name_of(dtype):
    """Returns weft's name of a dtype: a name itself, NumPy's, PyTorch's, or a type of Python."""
    if isinstance(dtype, str) and dtype in NAMES + ("i4x2",):
        return dtype
    text = str(dtype)
    if text.startswith("torch."):
        text = text.removeprefix("torch.")
    else:
        text = {"<class 'float'>": "float32", "<class 'int'>": "int64"}.get(text)
        text = text or np.dtype(dtype).name
    if text not in _NAMES:
        raise TypeError(f"weft has no dtype {dtype!r}. Known: {', '.join(NAMES)}")
    return _NAMES[text]
