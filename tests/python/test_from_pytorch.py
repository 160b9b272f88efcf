"""Runs the cells "PyTorch" and "weft in Python" of docs/from-pytorch.md, and compares results.

A cell's pieces of code are compared one by one. Writing code in the last column is all it takes to
have it tested, and where the code needs names that SETUP does not define, a line there.
"""

import ast
import pathlib
import re
import runpy

import brought
import numpy as np
import pytest

import weft
from weft import nn, optim

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
    "sequence": RNG.standard_normal((2, 3, 8)).astype("f4"),
    "tokens": np.array([[3, 1, 4], [1, 5, 0]]),
    "inputs": RNG.standard_normal((16, 8)).astype("f4"),
    "labels": RNG.integers(0, 3, 16),
}
SETUP_OF_BOTH = """
class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return x + self.linear(self.norm(x)).tanh()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block(8) for _ in range(2))
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)

net = same(Net())
memory, padding = sequence * 2, tokens == 0
file, folder = "net.safetensors", "llama"
"""
SETUP = {
    "torch": """
import torch
from torch import nn, optim
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence
from safetensors.torch import load_file, save_file

attention = same(nn.MultiheadAttention(8, 2, batch_first=True))
lstm = same(nn.LSTM(8, 16, batch_first=True, bidirectional=True))

def evaluated(module, *inputs):
    return module.eval()(*inputs)

def gradient(value, by):
    return torch.autograd.grad(value, by)[0]

def trained(optimizer):
    F.cross_entropy(net(inputs), labels).backward()
    optimizer.step()
    return list(net.parameters())

def trainable():
    return sum(p.requires_grad for p in net.parameters())

w.requires_grad_()
""" + SETUP_OF_BOTH,
    "weft": """
from safetensors.numpy import load_file

attention = same(nn.MultiheadAttention(8, 2))
lstm = same(nn.LSTM(8, 16, bidirectional=True))

def evaluated(module, *inputs):
    with weft.ModeScope("eval"):
        return module(*inputs).eval()

gradient = weft.grad

def trained(optimizer):
    optimizer.step(weft.grad(weft.cross_entropy(net(inputs), labels), net.parameters()))
    return net.parameters()

def trainable():
    return len(net.parameters())
""" + SETUP_OF_BOTH + """
@weft.compile
def train_step(inputs, labels):
    return weft.grad(weft.cross_entropy(net(inputs), labels), net.parameters())
""",
}

# Cells that are a part of a program: the program around the cell, which sets `result`.
MEMBER = """
class Owner(nn.Module):
    def __init__(self):
        super().__init__()
        {}
"""
# The file has zeros before the cell, so that values tell what came from where.
FILE = """
save_zeros(net, file)
{}
result = [load_file(file)["head.weight"], *net.parameters()]
"""
UPDATE = """
optimizer = optim.AdamW(net.parameters(), lr=1e-2)
loss = F.cross_entropy(net(inputs), labels)
{}
result = list(net.parameters())
"""
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
    "a layer": MEMBER + "result = same(Owner()).head(inputs)",
    "a list of modules": MEMBER + "a, b = same(Owner()).blocks\nresult = b(a(inputs))",
    "a padding index": "embed = same({})\nresult = [embed(tokens), "
                       "gradient(embed(tokens).sum(), embed.weight)]",
    "a Transformer's encoder": "result = evaluated(same({}), sequence)",
    "attention with a mask": "x = sequence\nresult = {}",
    "sequences with lengths": "y = sequence\n_, *result = {}",
    "an optimizer": "result = trained({})",
    "backward and update": UPDATE,
    "save and load": FILE,
    "a folder of Hugging Face's": "save_llama(folder)\nresult = {}(tokens)",
    "load in part": FILE,
    "freeze": "{}\nresult = trainable()",
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
    "attention with a mask": [
        "x = sequence\nresult = "
        "attention(x, memory, memory, key_padding_mask=padding)[0]"],
    "sequences with lengths": ["""
lengths = (tokens != 0).sum(1)
packed = pack_padded_sequence(sequence, lengths, batch_first=True, enforce_sorted=False)
_, result = lstm(packed)
"""],
    "backward and update": [UPDATE.format("loss.backward(); optimizer.step()")],
    "save and load": [FILE.format("save_file(net.state_dict(), file)"),
                      FILE.format("net.load_state_dict(load_file(file))")],
    "a folder of Hugging Face's": [
        "AutoModel = save_llama(folder).AutoModelForCausalLM\n"
        "result = AutoModel.from_pretrained(folder)(tokens).logits"],
    "load in part": [FILE.format("""
renamed = load_file(file)
del renamed["head.weight"], renamed["head.bias"]
net.load_state_dict(renamed, strict=False)
""")],
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


LIVING = {}  # what stays until the process ends


def save_zeros(net, file):
    numpy_files = brought.imported("safetensors.numpy")
    zeros = {name: np.zeros(tuple(value.shape), "f4") for name, value in net.state_dict().items()}
    numpy_files.save_file(zeros, file)


def save_llama(folder):
    """Writes a published model as transformers saves it, and returns transformers."""
    torch = brought.imported("torch")
    # transformers imports torchvision, whose operators are declared as long as this lives.
    if "media" not in LIVING:
        LIVING["media"] = runpy.run_path(str(pathlib.Path(__file__).parent / "torch/media.py"))
    transformers = brought.imported("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=32, hidden_size=32, intermediate_size=48, num_hidden_layers=1,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return transformers


def tensors(library):
    """Returns the names that cells begin with."""
    brought.need("safetensors")
    if library == "weft":
        tensor = weft.tensor
        scope = {"weft": weft, "nn": nn, "optim": optim, "F": weft}
    else:
        torch = brought.imported("torch")
        scope = {}

        def tensor(array):
            return torch.from_numpy(array.copy())

    def same(module):
        """Gives a module values that follow from its names: the same ones in both libraries."""
        rng = np.random.default_rng(0)
        module.load_state_dict({
            name: tensor(0.1 * rng.standard_normal(tuple(value.shape)).astype("f4"))
            for name, value in sorted(module.state_dict().items())})
        return module

    scope |= {name: tensor(array) for name, array in ARRAYS.items()}
    scope |= {"same": same, "save_zeros": save_zeros, "save_llama": save_llama}
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
def test_a_row_gives_what_pytorch_gives(what, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # cells write files
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


def test_no_cell_of_python_is_empty():
    assert sum(bool(python) for _, python in ROWS.values()) == len(ROWS)
