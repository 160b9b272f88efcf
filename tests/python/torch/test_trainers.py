"""weft in the training loops of other libraries."""

import pytest
import torch
from torch import nn

import weft.torch

import vision  # noqa: F401  declares torchvision's operators, which transformers may load


def test_transformers_trainer(tmp_path):
    pytest.importorskip("accelerate", reason="transformers' Trainer needs accelerate")
    transformers = pytest.importorskip("transformers")

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))

        def forward(self, x, labels):
            logits = self.layers(x)
            return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}

    torch.manual_seed(0)
    data = [{"x": torch.randn(8), "labels": i % 3} for i in range(24)]
    losses = []
    for callbacks in ([], [weft.torch.trainer_callback()]):
        torch._dynamo.reset()
        weft.torch.report().reset()
        torch.manual_seed(1)
        trainer = transformers.Trainer(
            model=Net(), train_dataset=data, callbacks=callbacks,
            args=transformers.TrainingArguments(
                output_dir=str(tmp_path), max_steps=5, per_device_train_batch_size=8,
                learning_rate=1e-2, report_to=[], save_strategy="no", use_cpu=True, seed=3,
                disable_tqdm=True))
        losses.append(trainer.train().training_loss)
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert {graph.kind for graph in weft.torch.report().graphs} == {"forward", "backward"}
    assert not weft.torch.report().fallbacks
