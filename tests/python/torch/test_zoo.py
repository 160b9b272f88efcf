"""Models of torchvision, timm, transformers and programs beside eager torch (zoo.py).

`same` compares one forward and backward pass by torch.compile, `step` the losses of 20 steps by
weft.torch.step(). The tables below name every model that is not like the others, and why.
"""

import copy
import os
import pathlib

import pytest

torch = pytest.importorskip("torch")

import weft  # noqa: E402
import weft.torch  # noqa: E402
import zoo  # noqa: E402

STEPS = 20
FAST = {
    "mlp", "lenet", "resnet_small", "gru_classifier", "nanogpt", "vit", "mixer", "gpt2", "bert"}

# Models that draw random numbers in training, which are others than torch's.
RANDOM = {}

# Deep nets whose batch norms multiply rounding: by how much differs from net to net, and eager
# torch is as far from float64 as weft is.
NOISY = {}

# Operations that torch computes between plans, by their packet, without dynamo's graph breaks.
FALLBACKS = {}

# Models that dynamo cuts in several graphs, where the step is refused, too.
BREAKS = {}

# Models that a step refuses, with a part of the message.
REFUSED = {}

SETUP = pathlib.Path(__file__).parents[3] / "tools" / "setup.sh"


def names():
    for name in zoo.MODELS:
        yield name if name in FAST else pytest.param(name, marks=pytest.mark.slow)


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # results of torch's kernels depend on how threads share the work
    torch._dynamo.reset()
    weft.torch.report().reset()
    with torch._dynamo.config.patch(allow_rnn=True):  # without it dynamo leaves LSTMs to eager mode
        yield
    torch.set_num_threads(threads)


def case_of(name):
    """Returns a model without dropout, with weights and a batch that depend on its name alone."""
    entry = zoo.MODELS[name]
    package = zoo.missing_package(entry)
    if package is not None:
        brought = f" {package}==" in SETUP.read_text().partition("--python | --python-build")[2]
        if os.environ.get("CI") == "1" and brought:
            pytest.fail(f"{package} is not installed, which tools/setup.sh --python brings")
        pytest.skip(f"needs {package}")
    torch.manual_seed(0)
    case = entry.make()
    zoo.without_dropout(case.module.train())
    return case


def loss_of(case, module):
    return case.loss(module(*case.args, **case.kwargs))


def in_float64(case):
    def wide(x):
        return x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x

    return case._replace(
        module=copy.deepcopy(case.module).double(), args=tuple(wide(x) for x in case.args),
        kwargs={key: wide(x) for key, x in case.kwargs.items()})


def trained(case, module, call):
    """Returns loss and gradients of one pass."""
    torch.manual_seed(5)
    loss = call()
    loss.backward()
    return loss.item(), {name: p.grad for name, p in module.named_parameters()}


def distances(one, other):
    """Returns how far two losses, and all gradients together, are apart relative to the second."""
    (loss, gradients), (expected, wanted) = one, other
    assert {n for n, g in gradients.items() if g is None} == {
        n for n, g in wanted.items() if g is None}
    apart = sum(float((gradients[n].double() - g.double()).square().sum())
                for n, g in wanted.items() if g is not None)
    size = sum(float(g.double().square().sum()) for g in wanted.values() if g is not None)
    return abs(loss - expected) / max(abs(expected), 1e-9), (apart / max(size, 1e-30)) ** 0.5


def passes(case):
    """Returns loss and gradients of eager torch and of weft; weft's module has been run."""
    eager = copy.deepcopy(case.module)
    expected = trained(case, eager, lambda: loss_of(case, eager))
    compiled = torch.compile(lambda: loss_of(case, case.module), backend=weft.torch.backend)
    return eager, expected, trained(case, case.module, compiled)


def curve_of_step(case, rate):
    optimizer = torch.optim.SGD(case.module.parameters(), lr=rate, momentum=0.9)
    step = weft.torch.step(case.module, case.loss, optimizer)
    return [step(*case.args, **case.kwargs).item() for _ in range(STEPS)]


def curve_of_eager(case, module, rate):
    optimizer = torch.optim.SGD(module.parameters(), lr=rate, momentum=0.9)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(case, module)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
