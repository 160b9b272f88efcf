"""Runs the cells "PyTorch" and "weft in Python" of docs/from-pytorch.md, and compares results.

A cell's pieces of code are compared one by one. A "-" in the last column is a row that the package
cannot do yet: writing code there is all it takes to have it tested, and where the code needs names
that SETUP does not define, a line there.
"""

import ast
import pathlib
import re

import numpy as np
import pytest

import weft

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "from-pytorch.md"

# The names that the cells use. Arrays become tensors of each library.
RNG = np.random.default_rng(0)
ARRAYS = {
    "x": (RNG.random((4, 6)) * 4).astype("f4"),
    "a": np.arange(24).reshape(2, 3, 4),
    "b": np.zeros((2, 2, 4), "i8"),
    "order": np.array([2, 0, 1, 3]),
    "indices": np.array([[0, 1], [2, 3], [4, 5], [1, 0]]),
    "start": np.array(1),
    "image": RNG.random((1, 3, 2, 2)).astype("f4"),
    "w": np.array([1.25, 2.75], "f4"),
    "weight": RNG.standard_normal((8, 3)).astype("f4"),
    "inputs": RNG.standard_normal((16, 8)).astype("f4"),
    "labels": RNG.integers(0, 3, 16),
}
SETUP_OF_BOTH = "net = lambda inputs: inputs @ weight"
SETUP = {
    "torch": "import torch\nfrom torch.nn import functional as F\nw.requires_grad_()\n"
             + SETUP_OF_BOTH,
    "weft": SETUP_OF_BOTH + """
@weft.compile
def train_step(inputs, labels):
    return weft.grad(weft.cross_entropy(net(inputs), labels), inputs)
""",
}

# Cells that are a part of a program: the program around the cell, which sets `result`.
FUNCTION = "{}\ndef f(x):\n    return (x * 2).sum(0)\nresult = f(x)"
AROUND = {
    "a loop over rows": "{} result = row.sum()",
    "in-place operators": "{}\nresult = x",
    "a custom gradient": "result = weft.grad(({}).sum(), w)",
    "compile": FUNCTION,
    "gradient checkpointing": FUNCTION,
    "compute on a device": "{}\n    result = x * 2",
    "the devices": "result = isinstance({}, (list, bool))",
    "memory of a device": "result = {} > 2**36",
    "memory of a step": "{}\nresult = plan.memory_bytes > 0",
    "time on another GPU": "{}\nresult = there.seconds > 0 and 'H100' in there.device",
    "inference": "step = {}\nresult = step(inputs)",
}

# What PyTorch does in these rows takes more lines than the cell has, or a GPU: the lines that are
# run instead. None: there is nothing to compare with.
INSTEAD = {
    "dropout in a function": ["F.dropout(x, 0.5, True)"],
    "in-place operators": ["result = x + 1"],
    "a custom gradient": ["""
class Through(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()
    @staticmethod
    def backward(ctx, dy):
        return dy
result = torch.autograd.grad(Through.apply(w).sum(), w)[0]
"""],
    "a slice at an index known at run time": [
        "a[:, start:start + 2]", "a[:, start:start + 2] = b\nresult = a"],
    "compile": ["result = (x * 2).sum(0)"],
    "gradient checkpointing": ["result = (x * 2).sum(0)"],
    "compute on a device": ["result = x * 2"],
    "inference": ["with torch.no_grad():\n    result = net(inputs).argmax(-1)"],
    "the devices": None,
    "memory of a device": None,
    "memory of a step": None,
    "time on another GPU": None,
}
RANDOM = {"random numbers", "dropout in a function"}  # compared by shape
SHUFFLED = {"rows in random order"}  # compared when sorted
NO_RESULT = {"seed"}
PROSE = {"in-place operators"}  # names a variable after its code


def rows():
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 4 and "`" in cells[2]:
            what, *cells = cells
            yield what, *(re.findall(r"`([^`]+)`", cell) for cell in cells)


ROWS = {what: (torch, python) for what, torch, _, python in rows()}


def tensors(library):
    """Returns the names that cells begin with."""
    if library == "weft":
        scope = {name: weft.tensor(array) for name, array in ARRAYS.items()}
        scope["weft"] = weft
    else:
        torch = pytest.importorskip("torch")
        scope = {name: torch.from_numpy(array.copy()) for name, array in ARRAYS.items()}
    exec(SETUP[library], scope)
    return scope


def result_of(code, scope):
    """Runs code, and returns the value of an expression, or else of the name `result`."""
    try:
        ast.parse(code.strip(), mode="eval")
    except SyntaxError:
        # The lines of a function need a file, from which errors quote them.
        exec(compile(code, "docs/from-pytorch.md", "exec"), scope)
        return scope["result"]
    return eval(code.strip(), scope)


def arrays(value):
    """Returns the arrays of a result: one of each tensor in it."""
    if isinstance(value, (tuple, list)):
        return [array for each in value for array in arrays(each)]
    return [np.asarray(value.detach() if hasattr(value, "detach") else value)]


def pieces(what, library):
    code = ROWS[what][library == "weft"]
    if what in PROSE:
        code = code[:1]
    if library == "torch":
        return INSTEAD.get(what, code)
    return [AROUND[what].format(each) for each in code] if what in AROUND else code


@pytest.mark.parametrize("what", [what for what, (_, python) in ROWS.items() if python])
def test_a_row_gives_what_pytorch_gives(what):
    ours = pieces(what, "weft")
    results = [result_of(code, tensors("weft")) for code in ours]
    theirs = pieces(what, "torch")
    if theirs is None:
        assert all(result is True for result in results)
        return
    if what in AROUND and what not in INSTEAD:
        theirs = [AROUND[what].format(each) for each in theirs]
    assert len(ours) == len(theirs), (ours, theirs)
    for code, result in zip(theirs, results):
        expected = result_of(code, tensors("torch"))
        if what in NO_RESULT:
            continue
        for got, wanted in zip(arrays(result), arrays(expected), strict=True):
            assert got.shape == wanted.shape
            if what in RANDOM:
                continue
            if what in SHUFFLED:
                got, wanted = np.sort(got, 0), np.sort(wanted, 0)
            np.testing.assert_allclose(
                got.astype("f8"), wanted.astype("f8"), rtol=1e-5, atol=1e-6, err_msg=code)


def test_the_column_is_not_left_behind():
    assert sum(bool(python) for _, python in ROWS.values()) >= 35
