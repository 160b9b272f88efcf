"""Errors in Python: their classes, and the line of the program that each message ends with."""

import pickle
import sys

import brought
import numpy as np
import pytest

import weft
from weft import data, io, nn, optim


def test_error_classes():
    assert issubclass(weft.UsageError, (weft.Error, ValueError))
    assert issubclass(weft.DoesNotFit, MemoryError) and issubclass(weft.DoesNotFit, weft.Error)
    assert issubclass(weft.DataError, ValueError) and issubclass(weft.Error, RuntimeError)
    assert not issubclass(weft.InternalError, weft.Error)


def test_errors_say_the_rule_and_the_line():
    x = weft.zeros((2, 3))
    with pytest.raises(weft.UsageError) as error:
        line = sys._getframe().f_lineno + 1
        weft.matmul(x, x)
    assert str(error.value) == (
        "[matmul] inner extents must match. Got [2, 3] and [2, 3]: 3 and 2. "
        f"(test_errors.py:{line})"
    )
    assert error.value.exit_code == 2


@pytest.mark.parametrize(
    "mistake",
    [
        lambda x, w: x + weft.zeros((4, 5)),
        lambda x, w: x @ x,
        lambda x, w: x.sum(axis=5),
        lambda x, w: x.reshape((7,)),
        lambda x, w: x[0, 0, 0],
        lambda x, w: weft.concat([x, w[0]]),
        lambda x, w: w.assign(np.zeros((4, 4), "f4")),
        lambda x, w: weft.einsum("ij,jk->ik", [x, x]),
        lambda x, w: weft.grad(x, w),
        lambda x, w: weft.cross_entropy(x, x[0]),
        lambda x, w: weft.compile(lambda y: y @ y)(x),
    ],
)
def test_errors_name_their_line(mistake):
    with pytest.raises(weft.UsageError) as error:
        mistake(weft.zeros((2, 3)), weft.Variable("w", "f32", (2, 3)))
    assert f"(test_errors.py:{mistake.__code__.co_firstlineno})" in str(error.value)


def test_wrong_arguments():
    x = weft.zeros((2, 3))
    for mistake in (
        lambda: x + "text",
        lambda: x.cast("f99"),
        lambda: weft.matmul(x),
        lambda: weft.zeros("text"),
        lambda: weft.exp(None),
        lambda: x.reshape([1.5]),
    ):
        with pytest.raises(TypeError):
            mistake()
    for options in {"mode": "fit"}, {"precision": "f31"}, {"recompute": "often"}, {"memory": "1QB"}:
        with pytest.raises(ValueError):
            weft.compile(lambda x: x, **options)


def test_a_step_that_does_not_fit():
    step = weft.compile(lambda x: weft.exp(x).sum() * x, memory="1KiB")
    with pytest.raises(MemoryError) as error:
        step(np.ones((1000, 1000), "f4"))
    assert isinstance(error.value, weft.DoesNotFit)
    assert error.value.least_bytes > 1024 and "1.0 KiB" in str(error.value)


def test_exceptions_of_the_function_pass_through():
    @weft.compile
    def step(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        step(np.ones(3, "f4"))
    with pytest.raises(TypeError, match="a step returns tensors"):
        weft.compile(lambda x: 3)(np.ones(3, "f4"))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(2, 3)

    def forward(self, x):
        return self.head(x)


WRONG = {
    "several elements as one bool": lambda: bool(weft.zeros((2,))),
    "several elements as one number": lambda: weft.ones((2, 2)).item(),
    "rows of different lengths": lambda: weft.tensor([[1], [2, 3]]),
    "a negative extent": lambda: weft.zeros((-1,)),
    "an empty range": lambda: weft.randint(3, 1, (2,)),
    "a probability above 1": lambda: weft.bernoulli(2, (2,)),
    "nine axes": lambda: weft.asarray(np.zeros((1,) * 9)),
    "a variable's extent": lambda: weft.Variable("w", "f32", (-1,)),
    "a variable's category": lambda: weft.Variable("w", "f32", (1,), "moment"),
    "a layer's extent": lambda: nn.Linear(-1, 3),
    "a layer's groups": lambda: nn.Conv2d(3, 4, 3, groups=2),
    "a module's input": lambda: nn.Linear(2, 3)(weft.zeros((4, 4))),
    "a module's place": lambda: setattr(Net(), "head", 3),
    "names that match nothing": lambda: Net().freeze("x*"),
    "a negative rate": lambda: optim.SGD([], lr=-1),
    "a schedule's end": lambda: optim.cosine(1e-3, total=-1),
    "a rounding": lambda: optim.AdamW([], rounding="up"),
    "a step's mode": lambda: weft.compile(lambda x: x, mode="fit"),
    "a step's memory": lambda: weft.compile(lambda x: x, memory="1QB"),
    "a step's argument": lambda: weft.compile(lambda x, k: x)(np.zeros(3), {1}),
    "a device": lambda: weft.Device("h1000"),
    "a file of NumPy": lambda: io.read_npy("missing.npy"),
    "a file of weights": lambda: io.Safetensors("missing.safetensors"),
    "weights of another net": lambda: Net().load_state_dict({"tail": np.zeros(3)}),
    "a data set's split": lambda: data.mnist("tran"),
    "a batch of nothing": lambda: data.Loader((np.zeros(3), np.zeros(3)), batch_size=0),
    "labels of other samples": lambda: data.Loader((np.zeros(3), np.zeros(4))),
    "a tokenizer's file": lambda: data.Tokenizer("missing.json"),
    "a model's name": lambda: weft.models.make("mlpp", kind="features", input=(8,), classes=3),
    "a recipe's name": lambda: weft.plan("mnst"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_calls_end_with_the_line_of_the_program(what):
    mistake = WRONG[what]
    with pytest.raises(weft.Error) as error:
        mistake()
    line = mistake.__code__.co_firstlineno
    message = str(error.value)
    assert message.endswith(f" (test_errors.py:{line})") and message.count(".py:") == 1
    assert ".cpp" not in message


def test_an_error_in_torch_names_the_line_of_the_program():
    torch = brought.imported("torch")
    compiled = torch.compile(torch.nn.Linear(2, 2), backend=weft.torch.backend, options={"size": 1})
    with pytest.raises(Exception) as error:  # dynamo's own, around weft's
        line = sys._getframe().f_lineno + 1
        compiled(torch.ones(1, 2))
    assert "options are memory, precision" in str(error.value)
    assert f"(test_errors.py:{line})" in str(error.value)


def test_an_error_has_one_line_wherever_it_goes():
    with pytest.raises(weft.DataError) as error:
        io.read_npy("missing.npy")
    again = pickle.loads(pickle.dumps(error.value))
    assert type(again) is weft.DataError and str(again) == str(error.value)
    assert weft.Error("two", "parts").args == ("two", "parts") and weft.Error().args == ()
