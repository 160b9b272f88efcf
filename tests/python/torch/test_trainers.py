"""weft in the training loops of other libraries: the programs of examples/python."""

import os
import pathlib
import runpy
import sys

import brought
import pytest
import torch
from torch._dynamo.backends import registry

import weft.torch

import media  # noqa: F401  before these libraries load torchvision or torchaudio

pytestmark = pytest.mark.slow

if "weft" not in registry.list_backends(exclude_tags=()):  # the source tree is not installed
    registry.register_backend(weft.torch.backend, name="weft")


def run_example(monkeypatch, capsys, name, *arguments):
    """Runs a program as by `python examples/python/NAME ARGUMENTS`, and returns its last number."""
    torch._dynamo.reset()
    weft.torch.report().reset()
    path = brought.TREE / "examples" / "python" / name
    monkeypatch.setattr(sys, "argv", [str(path), *arguments])
    runpy.run_path(str(path), run_name="__main__")
    return float(capsys.readouterr().out.split()[-1])


def test_transformers_trainer(monkeypatch, capsys):
    brought.need("transformers", "accelerate")
    losses = []
    for arguments in ([], ["--eager"]):
        losses.append(run_example(
            monkeypatch, capsys, "transformers_trainer.py", "--steps", "6", *arguments))
        if not arguments:
            kinds = {graph.kind for graph in weft.torch.report().graphs}
            assert kinds == {"forward", "backward"}
            assert not weft.torch.report().fallbacks and not weft.torch.report().graph_breaks
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_lightning_on_mnist(monkeypatch, capsys):
    brought.need("lightning")
    if not (pathlib.Path(os.environ.get("WEFT_DATA_DIR", "")) / "mnist").is_dir():
        pytest.skip("needs mnist in WEFT_DATA_DIR")
    accuracy = run_example(monkeypatch, capsys, "lightning_mnist.py", "--steps", "60")
    assert accuracy > 0.85
    assert {graph.kind for graph in weft.torch.report().graphs} == {
        "forward", "backward", "inference"}
    assert not weft.torch.report().fallbacks
