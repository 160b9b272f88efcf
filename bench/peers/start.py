"""The common start of all sides: weft's initial weights, and batches by one formula.

Both peers need NumPy; run.py does not, so this is no part of workloads.py.
"""
import json
import pathlib
import sys
import time

import numpy as np

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "reference"))
import formula

INPUTS, LABELS = 1000, 2000  # streams of the formula


def images(batch, shape, classes):
    """Returns f32 [batch, *shape] in [-1, 1) and i64 [batch], as in `weft bench`."""
    return (formula.uniform(INPUTS, [batch, *shape]).astype(np.float32),
            formula.integers(LABELS, [batch], classes))


def tokens(batch, length, vocabulary):
    """Returns two i64 [batch, length]: ids and targets."""
    shape = [batch, length]
    return formula.integers(INPUTS, shape, vocabulary), formula.integers(LABELS, shape, vocabulary)


def read_weights(path):
    """Reads a safetensors file by name: eight bytes of header size, JSON header, elements."""
    data = np.fromfile(path, np.uint8)
    begin = 8 + int(data[:8].view("<u8")[0])
    header = json.loads(data[8:begin].tobytes())
    header.pop("__metadata__", None)
    weights = {}
    for name, entry in header.items():
        assert entry["dtype"] == "F32", (path, name)
        first, last = (begin + offset for offset in entry["data_offsets"])
        weights[name] = data[first:last].copy().view("<f4").reshape(entry["shape"])
    return weights
