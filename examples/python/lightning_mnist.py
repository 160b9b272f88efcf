"""Trains a small convolutional net on MNIST by Lightning, compiled by weft.

    WEFT_DATA_DIR=data python lightning_mnist.py [--steps 200]

Reads the files of MNIST, gzipped as they are published, from $WEFT_DATA_DIR/mnist.
"""

import argparse
import gzip
import os
import pathlib

import lightning
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import weft.torch


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 3, stride=2), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 36, 10))

    def forward(self, images):
        return self.layers(images)

    def training_step(self, batch, _):
        images, labels = batch
        return F.cross_entropy(self(images), labels)

    def test_step(self, batch, _):
        images, labels = batch
        self.log("accuracy", (self(images).argmax(-1) == labels).float().mean())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=2e-3)


def mnist(part):
    folder = pathlib.Path(os.environ.get("WEFT_DATA_DIR", ".")) / "mnist"
    with gzip.open(folder / f"{part}-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(), "u1", offset=16).reshape(-1, 1, 28, 28)
    with gzip.open(folder / f"{part}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), "u1", offset=8)
    return TensorDataset(
        torch.from_numpy(images.astype("f4") / 255), torch.from_numpy(labels.astype("i8")))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()

    lightning.seed_everything(0)
    module = torch.compile(Classifier(), backend="weft")  # the one changed line
    trainer = lightning.Trainer(
        max_steps=options.steps, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False)
    # Batches of one size: another size of the last batch would be another plan.
    trainer.fit(module, DataLoader(mnist("train"), 128, shuffle=True, drop_last=True))
    trainer.test(module, DataLoader(mnist("t10k"), 500), verbose=False)
    print(weft.torch.report())
    print(f"accuracy after {options.steps} steps: {trainer.callback_metrics['accuracy']:.3f}")


if __name__ == "__main__":
    main()
