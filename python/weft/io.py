"""Files of tensors: safetensors, NumPy's, IDX and CSV, as the C++ library has them.

    weft.io.save(net, "net.safetensors")
    weft.io.load(net, "net.safetensors")
    tensors = weft.io.Safetensors("net.safetensors")      # a mapping of names to tensors
"""

import os
from collections.abc import Iterator, Mapping

from ._weft import Tensor, Variable, _io
from ._weft._io import Loaded

__all__ = ["Loaded", "Safetensors", "load", "read_csv", "read_idx", "read_npy", "read_npz", "save",
           "save_folder", "write_npy", "write_npz"]


def _variables(net):
    """Returns pairs of name and variable of a net, of a list of variables, or of pairs."""
    if hasattr(net, "state") and callable(net.state):
        return net.state()
    return [(each.name, each) if isinstance(each, Variable) else each for each in net]


def _arrays(net):
    return list(net.items()) if isinstance(net, Mapping) else _variables(net)


def save(net, path, metadata=None) -> None:
    """Writes a safetensors file, which is whole or absent.

    net: a module (parameters and buffers by name), variables (`optimizer.state`), or a dict of
    arrays by name: tensors, NumPy's, PyTorch's.
    """
    arrays = _arrays(net)
    options = {} if metadata is None else {"metadata": dict(metadata)}
    _io.save(arrays, os.fspath(path), **options)


def save_folder(net, folder, files: Mapping[str, str] = {}) -> None:
    """Writes a new folder as Hugging Face's, which appears whole: the weights as safetensors, in
    parts of 5 GB, and `files`, texts by name, such as config.json.

    net: as of save(); tensors of the same memory (tied weights) are written once.
    """
    _io.save_folder(_arrays(net), os.fspath(folder), dict(files))


def load(net, source, **options) -> Loaded:
    """Overwrites the variables of a net, or a list of variables, with the tensors of their names.

    source: a safetensors file, a list of them, or a dict of arrays by name.
    strict=True: missing and left-over tensors are an error (DataError), before anything changes.
    ignore=["head.*"]: names that are neither required nor read; '*' stands for any characters.
    prefix="model.": is removed from the names of the file. rename=[("model.*", "*")]: maps names.
    cast=True: accepts other floating point types, and rounds. map=True: variables become views of
    the file. transpose, stack, aliases, extra: see weft/io/load.h.
    """
    chosen = _io.LoadOptions(**options)
    if isinstance(source, Mapping) and not isinstance(source, Safetensors):
        return _io.load_arrays(_variables(net), list(source.items()), chosen)
    if isinstance(source, Safetensors):
        source = source.path
    files = [source] if isinstance(source, (str, os.PathLike)) else source
    return _io.load(_variables(net), [os.fspath(file) for file in files], chosen)


class Safetensors(Mapping[str, Tensor]):
    """A safetensors file as a mapping of names to tensors, which are views of the mapped file."""

    def __init__(self, path) -> None:
        self.path = os.fspath(path)
        self._file = _io.Safetensors(self.path)

    @property
    def metadata(self) -> dict[str, str]:
        return self._file.metadata

    def __getitem__(self, name) -> Tensor:
        if name not in self:
            raise KeyError(name)
        return self._file.tensor(name)

    def __contains__(self, name) -> bool:
        return isinstance(name, str) and self._file.find(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._file.names)

    def __len__(self) -> int:
        return len(self._file.names)

    def __repr__(self) -> str:
        return f"Safetensors({self.path!r}, {len(self)} tensors)"


def read_npy(path) -> Tensor:
    """Returns the array of a .npy file; in this machine's layout, as a view of the mapped file."""
    return _io.read_npy(os.fspath(path))


def write_npy(path, tensor) -> None:
    _io.write_npy(os.fspath(path), tensor)


def read_npz(path) -> dict[str, Tensor]:
    """Returns the arrays of a .npz archive by name."""
    return _io.read_npz(os.fspath(path))


def write_npz(path, arrays) -> None:
    _io.write_npz(os.fspath(path), list(arrays.items()))


def read_idx(path) -> Tensor:
    """Returns the array of an IDX file, the format of MNIST, plain or gzipped."""
    return _io.read_idx(os.fspath(path))


def read_csv(path, separator=",") -> list[list[str]]:
    """Returns the records of a CSV file (RFC 4180), each a list of texts."""
    with open(path, encoding="utf-8", newline="") as file:
        return _io.parse_csv(file.read(), os.fspath(path), separator)
