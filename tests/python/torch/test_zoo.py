"""Models of torchvision, torchaudio, timm, transformers and programs beside eager torch (zoo.py).

`same` compares one forward and backward pass by torch.compile, `step` the losses of 20 steps by
weft.torch.step(), `export` what onnxruntime computes of the file by weft.export(). The tables below
name every model that is not like the others, and why.
"""

import copy
import importlib
import importlib.util

import brought
import pytest
import torch
import zoo
from torch.utils import _pytree as pytree

import weft
import weft.torch

STEPS = 20
FAST = {
    "mlp", "lenet", "resnet_small", "gru_classifier", "nanogpt", "torch_transformer", "conv1d_tcn",
    "siamese_triplet", "vit", "mixer", "gpt2", "bert"}

# Deep nets of batch norm and relu, whose losses float32 tells apart within a few steps: they are
# compared in float64.
CHAOTIC = {
    "resnet18", "resnet50", "wide_resnet", "resnext", "mobilenet_v2", "efficientnet_b0",
    "efficientnet_lite", "mnasnet", "shufflenet_v2", "googlenet", "vgg11_bn", "densenet"}

# Those of them that float64 tells apart within 20 steps, so that fewer are compared: a change of
# all weights by 1e-15 grows to a tenth of the loss in 7 steps of resnet50, in torch as in weft. In
# the others the losses part by a jump, as at the kink of a relu, at the tenth step or later.
FEW_STEPS = {"resnet50": 5, "efficientnet_lite": 5, "mnasnet": 10, "mobilenet_v2": 10}

# Those of them whose float32 gradients of one pass differ by 2 in 100 from torch's float64 ones,
# torch's own or weft's.
ROUGH = {"resnet50", "mobilenet_v2", "shufflenet_v2", "googlenet"}

# Nets that the usual rate of 0.01 brings to a loss of 0, or throws about.
SLOW_RATE = {"vit", "squeezenet", "resnetv2", "wav2vec2_ctc", *CHAOTIC}

# By model, the operations that torch computes between plans.
FALLBACKS = {}

# Models that dynamo cuts in parts whatever the backend, and that a step refuses for it.
BREAKS = {
    "deberta_v3": "reads labels by nonzero(), of a size that depends on elements",
    "longformer": "reads global tokens by nonzero(), and branches on their number",
    "wav2vec2": "sets requires_grad of a hidden tensor, and reads a ContextVar",
    "hubert": "sets requires_grad of a hidden tensor, and reads a ContextVar",
    "wav2vec2_ctc": "reads labels by masked_select(), of a size that depends on elements",
    "conformer": "reads the longest of its lengths by item()",
    "wav2vec2_audio": "branches on a random number that it reads by item(), to drop a layer",
}

# Models that torch itself does not trace on tensors without memory: its product of groups of rows
# takes bfloat16 alone there.
PLAN_REFUSED = {"mixtral_moe": "BF16|BFloat16"}

# By model, why its forward pass is not exported, as the refusal says it.
EXPORT_REFUSED = {
    **PLAN_REFUSED,
    "conformer": r"depends on elements of a tensor.*\(conformer\.py:",  # the longest length
    "longformer": r"depends on elements of a tensor.*\(modeling_longformer\.py:",  # global tokens
    "dit": "draws random numbers",
}

# Models that read labels by a size that depends on elements, and that are exported without them.
WITHOUT_LABELS = {"deberta_v3", "wav2vec2_ctc"}

# Models whose first call installs hooks under a lock, which dynamo cannot trace: they are called
# once before they are compiled, as a program would do.
CALLED_BEFORE = {"mixtral_moe", "segformer"}


def test_eight_models_need_torch_alone():
    """These run wherever torch does; CI brings no other library of models."""
    assert sum(zoo.MODELS[name].group in ("small", "own") for name in FAST) >= 8


def names():
    """Returns the names of all models, those that are not FAST with the marker `slow`."""
    return [
        name if name in FAST else pytest.param(name, marks=pytest.mark.slow)
        for name in zoo.MODELS]


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # results of torch's kernels depend on how threads share the work
    forget()
    # Without allow_rnn dynamo leaves LSTMs to eager mode.
    with torch._dynamo.config.patch(allow_rnn=True, ignore_logging_functions=warnings_of_models()):
        yield
    forget()
    torch.set_num_threads(threads)


def forget():
    torch._dynamo.reset()
    weft.torch.report().reset()


def warnings_of_models():
    """Returns the function by which models of transformers warn; dynamo cuts a graph there."""
    if importlib.util.find_spec("transformers") is None:
        return set()
    return {importlib.import_module("transformers").utils.logging.warning_once}


def case_of(name):
    """Returns a model without dropout, with weights and a batch that depend on its name alone."""
    case = case_in_float32(name)
    return in_float64(case) if name in CHAOTIC else case


def case_in_float32(name):
    entry = zoo.MODELS[name]
    package = zoo.missing_package(entry)
    if package is not None:
        brought.missing(package)
    torch.manual_seed(0)
    case = entry.make()
    zoo.without_dropout(case.module.train())
    if name in CALLED_BEFORE:
        with torch.no_grad():
            loss_of(case, case.module)
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


def curve_of_step(case, rate, steps=STEPS):
    """Returns the losses of steps by weft with one batch."""
    optimizer = torch.optim.SGD(case.module.parameters(), lr=rate, momentum=0.9)
    step = weft.torch.step(case.module, case.loss, optimizer)
    return [step(*case.args, **case.kwargs).item() for _ in range(steps)]


def curve_of_eager(case, module, rate, steps=STEPS, compiled=None):
    optimizer = torch.optim.SGD(module.parameters(), lr=rate, momentum=0.9)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = compiled() if compiled else loss_of(case, module)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", names())
def test_same(name):
    case = case_of(name)
    eager, expected, got = passes(case)
    of_loss, of_gradients = distances(got, expected)
    assert of_loss <= 1e-5
    assert of_gradients <= 1e-4
    for (key, buffer), other in zip(case.module.named_buffers(), eager.buffers(), strict=True):
        torch.testing.assert_close(buffer, other, rtol=1e-4, atol=1e-5, msg=key)
    report = weft.torch.report()
    assert {each.operation for each in report.fallbacks} == set(FALLBACKS.get(name, ()))
    assert bool(report.graph_breaks) == (name in BREAKS), report.graph_breaks
    if name not in BREAKS:
        assert len(report.graphs) == 2  # forward and backward pass


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CHAOTIC))
def test_chaotic_nets_in_float32(name):
    case = case_of(name)
    module = case.module.float()
    case = case._replace(args=tuple(x.float() for x in case.args))
    _, expected, got = passes(case)
    of_loss, of_gradients = distances(got, expected)
    assert of_loss <= 1e-5 and of_gradients <= (0.1 if name in ROUGH else 1e-4)
    assert all(p.dtype == torch.float32 for p in module.parameters())


@pytest.mark.parametrize("name", names())
def test_step(name):
    case = case_of(name)
    rate = 1e-3 if name in SLOW_RATE else 1e-2
    steps = FEW_STEPS.get(name, STEPS)
    eager = copy.deepcopy(case.module)
    if name in BREAKS:
        with pytest.raises((torch._dynamo.exc.TorchDynamoException, weft.UsageError)):
            curve_of_step(case, rate, 1)
        compiled = torch.compile(lambda: loss_of(case, case.module), backend=weft.torch.backend)
        got = curve_of_eager(case, case.module, rate, steps, compiled)
    else:
        got = curve_of_step(case, rate, steps)
    expected = curve_of_eager(case, eager, rate, steps)
    assert got == pytest.approx(expected, rel=1e-3)
    assert expected[-1] != pytest.approx(expected[0], rel=1e-3)  # or the curve would say nothing


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(zoo.MODELS) - set(BREAKS)))
def test_plan(name):
    case = case_of(name)
    if case.args and case.kwargs:
        pytest.skip("weft.plan() takes arguments, or keyword arguments")
    if name in PLAN_REFUSED:
        with pytest.raises(RuntimeError, match=PLAN_REFUSED[name]):
            weft.plan(case.module, case.kwargs or case.args, loss=case.loss)
        return
    found = weft.plan(case.module, case.kwargs or case.args, loss=case.loss, on=["cpu", "h100"])
    bytes_of = {id(p): p.numel() * p.element_size() for p in case.module.parameters()}
    for plan in found:
        assert plan.state["parameters"] == sum(bytes_of.values())
        assert plan.fits and plan.flops > 0 and plan.arena_bytes > 0
    assert found["h100"].seconds > 0


def computed_by_onnxruntime(path, inputs):
    runtime = importlib.import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    return session.run(None, {n: x.numpy() for n, x in zip(names, inputs, strict=True)})


def tensors_of(tree):
    return [x for x in pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


@pytest.mark.slow
@pytest.mark.parametrize("name", list(zoo.MODELS))
def test_export(name, tmp_path):
    brought.need("onnxruntime")
    module, args, kwargs, _ = case_in_float32(name)
    kwargs = {k: x for k, x in kwargs.items() if k != "labels" or name not in WITHOUT_LABELS}
    with torch.no_grad():
        module(*args, **kwargs)  # so that batch norm has statistics
        expected = tensors_of(module.eval()(*args, **kwargs))
    path = tmp_path / "net.onnx"
    if name in EXPORT_REFUSED:
        with pytest.raises(RuntimeError, match=EXPORT_REFUSED[name]):
            weft.export(module, kwargs or args, path)
        return
    weft.export(module, kwargs or args, path)
    found = computed_by_onnxruntime(path, tensors_of((args, kwargs)))
    for got, wanted in zip(found, expected, strict=True):
        largest = float(wanted.abs().max()) if wanted.is_floating_point() else 0
        torch.testing.assert_close(torch.from_numpy(got), wanted, rtol=0, atol=1e-4 * largest)


def test_what_setup_brings_is_known():
    assert brought.is_brought("torch")
    assert not brought.is_brought("peft")  # which comes for the peers alone


def test_a_missing_package_fails_where_all_are_brought(monkeypatch):
    monkeypatch.setenv("WEFT_PYTHON_ALL", "1")
    with pytest.raises(pytest.fail.Exception, match="no_such_package"):
        brought.imported("no_such_package.part")
    monkeypatch.delenv("WEFT_PYTHON_ALL")
    with pytest.raises(pytest.skip.Exception, match="no_such_package"):
        brought.need("torch", "no_such_package")


def test_the_tables_name_models_of_the_zoo():
    tables = FAST, CHAOTIC, FEW_STEPS, ROUGH, SLOW_RATE, FALLBACKS, BREAKS, EXPORT_REFUSED
    tables += WITHOUT_LABELS, CALLED_BEFORE
    assert {name for table in tables for name in table} <= set(zoo.MODELS)
