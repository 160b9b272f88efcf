"""weft.plan, weft.export and torch.export programs."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import weft
import weft.torch


def net():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10))


BATCH = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def cross_entropy(output):
    return F.cross_entropy(output, torch.zeros(output.shape[0], dtype=torch.int64))


def test_a_plan_has_the_bytes_of_the_step_that_runs():
    model = net()
    planned = weft.plan(model, BATCH, loss=cross_entropy)["cpu"]
    step = weft.torch.step(model, cross_entropy, torch.optim.AdamW(model.parameters()))
    step(BATCH)
    parameters = sum(p.numel() * 4 for p in model.parameters())
    assert planned.state["parameters"] == parameters
    assert planned.state["optimizer"] == 2 * parameters + 4 * len(list(model.parameters()))
    run = step.plan()
    assert run.state_bytes == pytest.approx(
        planned.state["parameters"] + planned.state["optimizer"] + planned.state["buffers"], rel=0.01)
    # The batch is in the arena of a plan alone, and in torch's memory when the step runs.
    assert planned.arena_bytes == pytest.approx(
        run.arena_bytes + run.argument_bytes, rel=0.1, abs=4096)
    assert planned.flops == pytest.approx(run.flops, rel=0.01)
    assert planned.fits


def test_nothing_is_allocated_for_a_large_model():
    with torch.device("meta"):
        model = nn.Sequential(*[nn.Linear(16384, 16384) for _ in range(40)])
    x = torch.empty(8, 16384, device="meta")
    plans = weft.plan(model, x, on=["h100", "rtx4090"], loss=lambda o: o.mean())
    assert plans["h100"].state["parameters"] == 40 * (16384 * 16384 + 16384) * 4
    assert not plans["rtx4090"].fits
    assert "rtx4090" in str(plans) and "no" in str(plans)
    assert json.loads(plans.to_json())["plans"][0]["name"] == "h100"
    assert "<table>" in plans._repr_html_()


def test_a_loss_closes_over_meta_tensors():
    with torch.device("meta"):
        model = nn.Linear(8, 4)
        x, labels, scale = torch.empty(3, 8), torch.empty(3, dtype=torch.int64), torch.empty(4)

    def loss(output):
        assert labels.device == output.device
        return F.cross_entropy(output * scale, labels) + (output * scale).square().mean()

    def loss_on_cpu(output):
        return F.cross_entropy(output * numbers, zeros) + (output * numbers).square().mean()

    numbers, zeros = torch.ones(4), torch.zeros(3, dtype=torch.int64)
    planned, expected = weft.plan(model, x, loss=loss), weft.plan(model, x, loss=loss_on_cpu)
    assert planned["cpu"].arena_bytes == expected["cpu"].arena_bytes > 0
    assert planned["cpu"].flops == expected["cpu"].flops


def test_plans_are_shown_with_pictures():
    plans = weft.plan(net(), BATCH, loss=cross_entropy, on=["cpu", "h100"])
    for plan in plans:
        most = max(map(sum, zip(*plan.live_bytes.values())))
        assert 0 < most <= plan.arena_bytes
        assert "parameters" in plan.memory_svg() and "optimizer" in plan.bars_svg()
    page = plans._repr_html_()
    assert page.count("<svg") == 2 and "memory by category on cpu" in page


def test_remedies_say_what_would_make_it_fit():
    with torch.device("meta"):
        model = nn.Sequential(*[m for _ in range(24) for m in (nn.Linear(1024, 1024), nn.GELU())])
    x = torch.empty(262144, 1024, device="meta")
    plans = weft.plan(model, x, on="rtx4090", loss=lambda o: o.mean(), optimizer="sgd")
    plan = plans["rtx4090"]
    assert not plan.fits
    assert "<pre>rtx4090: " in plans._repr_html_() and "<svg" not in plans._repr_html_()
    assert any("recomputation" in change for change, _ in plan.remedies)


def test_remedies_are_within_the_limit_that_was_given():
    """Each of them is planned again, and fits."""
    with torch.device("meta"):
        model = nn.Sequential(*[m for _ in range(4) for m in (nn.Linear(256, 256), nn.GELU())])
        x = torch.empty(4096, 256)
    known = {"recomputation": {}, 'precision="bf16"': {"precision": "bf16", "recompute": "none"}}

    def planned(**options):
        plans = weft.plan(model, x, on="h100", loss=lambda o: o.mean(), **options)
        return plans["h100"]

    refused = planned(memory="55MiB", recompute="none")
    assert not refused.fits and {change for change, _ in refused.remedies} == set(known)
    for change, seconds in refused.remedies:
        other = planned(memory="55MiB", **known[change])
        assert other.fits and other.arena_bytes < 55 << 20
        assert other.seconds == pytest.approx(seconds, rel=0.05)


def test_modes_of_the_caller_change_nothing():
    expected = str(weft.plan(net(), BATCH, loss=cross_entropy))
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert str(weft.plan(net(), BATCH, loss=cross_entropy)) == expected


def test_an_output_without_a_loss_is_said():
    plans = weft.plan(net(), BATCH)
    assert "the mean of the outputs stands for a loss" in str(plans)
    assert "forward pass" in str(weft.plan(net().eval(), BATCH))
    assert weft.plan(net().eval(), BATCH)["cpu"].flops < plans["cpu"].flops


def test_wrong_questions():
    with pytest.raises(RuntimeError, match="same reduction dim"):
        weft.plan(nn.Linear(3, 3), torch.ones(2, 4))
    with pytest.raises(weft.UsageError, match="weight has no shape yet. Hint: call the model once"):
        weft.plan(nn.LazyLinear(3), torch.ones(2, 4))
    with pytest.raises(weft.UsageError, match="h1000"):
        weft.plan(net(), BATCH, on="h1000")
    with pytest.raises(weft.UsageError, match="optimizer is one of"):
        weft.plan(net(), BATCH, optimizer="adamwx")

    class Svd(nn.Module):
        def forward(self, x):
            return torch.linalg.svdvals(x)

    with pytest.raises(weft.UsageError, match="svd.*no rule.*test_plan.py"):
        weft.plan(Svd().eval(), torch.randn(3, 3))


def run_program(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "weft", *arguments], capture_output=True, text=True, check=False)


def test_exported_files_compute_what_torch_computes(tmp_path):
    model = net().eval()
    np.save(tmp_path / "x.npy", BATCH.numpy())
    for name in ("net.onnx", "net.weft"):
        weft.export(model, BATCH, tmp_path / name)
        run = run_program("run", str(tmp_path / name), "--input", str(tmp_path / "x.npy"),
                          "--output", str(tmp_path / "y.npy"))
        assert run.returncode == 0, run.stderr
        with torch.no_grad():
            expected = model(BATCH).numpy()
        np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(weft.UsageError, match="ends in .onnx or .weft"):
        weft.export(model, BATCH, tmp_path / "net.pb")


def test_programs_of_torch_export(tmp_path):
    model = net().eval()
    path = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(model, (BATCH,)), path)
    program = weft.torch.load(path)
    torch._dynamo.reset()
    with torch.no_grad():
        got = torch.compile(program, backend=weft.torch.backend)(BATCH)
        torch.testing.assert_close(got, model(BATCH), rtol=1e-5, atol=1e-6)
    assert weft.plan(program, BATCH)["cpu"].flops > 0
    weft.export(program, BATCH, tmp_path / "net.onnx")
    refused = run_program("run", str(path))
    assert refused.returncode == 2
    assert "weft.torch.load" in refused.stderr
    (tmp_path / "bad.pt2").write_bytes(b"no zip")
    with pytest.raises(weft.DataError, match="bad.pt2"):
        weft.torch.load(tmp_path / "bad.pt2")


class WithConstant(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.scale = torch.full((16,), 0.5)  # neither parameter nor buffer

    def forward(self, x):
        return self.attention(x) * self.scale


@pytest.mark.parametrize("form", ["onnx", "weft"])
def test_attention_and_constants_are_exported(tmp_path, form):
    torch.manual_seed(0)
    model, x = WithConstant(), torch.randn(2, 5, 16)
    model.attention.norm1.eval()
    weft.export(model, x, tmp_path / f"net.{form}")
    # Export leaves each module in its mode.
    assert model.training and not model.attention.norm1.training
    np.save(tmp_path / "x.npy", x.numpy())
    done = run_program("run", str(tmp_path / f"net.{form}"), "--input", str(tmp_path / "x.npy"),
                       "-o", str(tmp_path / "y.npy"))
    assert done.returncode == 0, done.stderr
    torch.testing.assert_close(
        torch.from_numpy(np.load(tmp_path / "y.npy")), model.eval()(x).detach(), rtol=1e-4,
        atol=1e-5)


class Noisy(nn.Module):
    def forward(self, x):
        return x + torch.randn_like(x)


def test_models_that_draw_are_not_exported(tmp_path):
    with pytest.raises(weft.UsageError, match="draws random numbers"):
        weft.export(Noisy(), torch.ones(2, 3), tmp_path / "net.onnx")


def test_recurrent_layers_are_planned_and_exported(tmp_path):
    model, x = nn.LSTM(6, 8, batch_first=True), torch.randn(2, 5, 6)
    plan = weft.plan(model.eval(), x)["cpu"]
    assert plan.flops > 0
    weft.export(model, x, tmp_path / "net.onnx")


@pytest.mark.parametrize("kind", ["AdamW", "Adam", "SGD"])
def test_optimizers_of_torch_are_planned(kind):
    model = nn.Linear(8, 4)
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.1)
    given = weft.plan(model, torch.ones(2, 8), optimizer=optimizer)["cpu"]
    named = weft.plan(model, torch.ones(2, 8), optimizer=None if kind == "SGD" else kind.lower())
    assert given.state.get("optimizer", 0) == named["cpu"].state.get("optimizer", 0)
    compiled = weft.plan(torch.compile(model), torch.ones(2, 8))["cpu"]
    assert compiled.flops > 0


@pytest.mark.parametrize("make, options", [
    (lambda m: torch.optim.AdamW(m[2].parameters()), {}),
    (lambda m: torch.optim.SGD([
        {"params": m[0].parameters(), "momentum": 0.9}, {"params": m[2].parameters()}], lr=0.1),
     {}),
    (lambda m: torch.optim.AdamW(m.parameters()), {"clip_norm": 1.0}),
    (lambda m: torch.optim.AdamW(m.parameters()), {"accumulate": 2, "clip_norm": 1.0})],
    ids=["head", "momentum", "clip", "accumulate"])
def test_a_plan_is_that_of_the_step_with_this_optimizer(make, options):
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer, x = make(model), torch.ones(128, 256)
    planned = weft.plan(model, x, loss=lambda y: y.square().mean(), optimizer=optimizer, **options)
    step = weft.torch.step(model, lambda y: y.square().mean(), optimizer, **options)
    for _ in range(options.get("accumulate", 1)):
        step(x)
    plan = planned["cpu"]
    bytes = sum(plan.state.get(name, 0) for name in ("parameters", "optimizer", "gradients"))
    assert step.plan().state_bytes == pytest.approx(bytes, abs=256)
    # A plan has the batch in its arena, where its bytes may be reused; a step reads torch's memory.
    ran, batch = step.plan().arena_bytes, x.numel() * 4
    assert 0.95 * ran <= plan.arena_bytes <= 1.05 * (ran + batch)


def test_an_optimizer_of_another_model_is_refused():
    with pytest.raises(weft.UsageError, match="no parameter of this model. Hint: a name"):
        weft.plan(nn.Linear(2, 2), torch.ones(1, 2),
                  optimizer=torch.optim.SGD(nn.Linear(2, 2).parameters()))


class Merging(nn.Module):
    """Merges a branch into its weight in eval(), as LoRA does."""

    def __init__(self):
        super().__init__()
        self.layer, self.branch = nn.Linear(4, 4), nn.Parameter(torch.ones(4, 4))

    def train(self, mode=True):
        if self.training and not mode:
            self.layer.weight.data += self.branch.data
        if mode and not self.training:
            self.layer.weight.data -= self.branch.data
        return super().train(mode)

    def forward(self, x):
        return self.layer(x) + (x if self.training else 0)


def test_a_model_is_exported_as_its_own_eval_leaves_it(tmp_path):
    model, x = Merging(), torch.randn(3, 4)
    weft.export(model, x, tmp_path / "net.onnx")
    assert model.training
    np.save(tmp_path / "x.npy", x.numpy())
    done = run_program("run", str(tmp_path / "net.onnx"), "--input", str(tmp_path / "x.npy"),
                       "-o", str(tmp_path / "y.npy"))
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(
        np.load(tmp_path / "y.npy"), model.eval()(x).detach().numpy(), rtol=1e-5, atol=1e-5)


class Remembering(nn.Module):
    """Counts, caches and writes to a plain tensor in its forward pass."""

    def __init__(self):
        super().__init__()
        self.layer, self.mask, self.calls = nn.Linear(4, 4), None, 0
        self.plain, self.kept, self.cache = torch.ones(2), [], {}

    def forward(self, x):
        self.calls += 1
        self.plain.add_(1)
        if self.mask is None:
            self.mask = torch.full((4,), 2.0)
        y = self.layer(x) * self.mask
        self.kept.append(y)
        self.cache["y"] = y
        return y


@pytest.mark.parametrize("ask", [
    lambda model, x, folder: weft.plan(model, x),
    lambda model, x, folder: weft.export(model, x, folder / "net.onnx")], ids=["plan", "export"])
def test_a_model_is_as_before(ask, tmp_path):
    model, x = Remembering(), torch.randn(3, 4)
    ask(model, x, tmp_path)
    assert (model.calls, model.mask, model.kept, model.cache) == (0, None, [], {})
    torch.testing.assert_close(model.plain, torch.ones(2))
    torch.testing.assert_close(model(x), 2 * model.layer(x))


class Drawing(nn.Linear):
    def __init__(self):
        super().__init__(4, 2)
        self.generator = torch.Generator()

    def forward(self, x):
        return super().forward(x) * torch.rand(3, 2, generator=self.generator)


@pytest.mark.parametrize("model, line", [
    (nn.Linear(5, 2), r"^\[torch\] .*\[3, 4\].*\(test_plan.py"),
    (Drawing(), r"^\[torch\] the model reads a Generator.*\(test_plan.py")])
def test_what_torch_refuses_is_one_line(model, line):
    with pytest.raises(weft.UsageError, match=line) as found:
        weft.plan(model, torch.randn(3, 4))
    assert "\n" not in str(found.value)
