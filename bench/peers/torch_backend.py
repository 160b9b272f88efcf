#!/usr/bin/env python3
"""Training steps of torch models: eager, inductor, weft's plans of both passes, and one plan.

    make bench-torch [MODELS="gpt2 vit"]

All settings of a model take turns in one process, with two threads, and a ratio is the median of
paired rounds. `--first MODE` measures a first step and the process's memory in a fresh process.
Models of transformers, timm and torchvision have random weights; those not installed are left out.
"""

import argparse
import copy
import json
import pathlib
import resource
import statistics
import sys
import time
import warnings

import torch
from torch import nn
from torch.nn import functional as F

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "python" / "torch")]
import vision  # noqa: E402,F401  declares torchvision's operators beside a CPU build of torch

warnings.filterwarnings("ignore")
MODES = ("eager", "inductor", "plans", "step")


class WithLoss(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, *batch):
        *inputs, labels = batch
        return F.cross_entropy(self.model(*inputs), labels)


class OfTransformers(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids, labels):
        return self.model(input_ids=ids, labels=labels).loss


def small():
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    return WithLoss(net), (torch.randn(8, 16), torch.randint(0, 4, (8,)))


def mlp():
    net = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(),
                        nn.Linear(1024, 10))
    return WithLoss(net), (torch.randn(128, 784), torch.randint(0, 10, (128,)))


def gpt2():
    import transformers

    config = transformers.GPT2Config(
        vocab_size=8192, n_embd=384, n_layer=6, n_head=6, n_positions=256, resid_pdrop=0.0,
        embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False, bos_token_id=0, eos_token_id=0)
    model = transformers.GPT2LMHeadModel(config)
    model.loss_type = "ForCausalLM"
    ids = torch.randint(0, 8192, (4, 128))
    return OfTransformers(model), (ids, ids)


def bert():
    import transformers

    config = transformers.BertConfig(
        vocab_size=8192, hidden_size=256, num_hidden_layers=4, num_attention_heads=4,
        intermediate_size=1024, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = transformers.BertForSequenceClassification(config)
    return OfTransformers(model), (torch.randint(0, 8192, (8, 128)), torch.randint(0, 2, (8,)))


def vit():
    import timm

    model = timm.create_model("vit_tiny_patch16_224", img_size=96, num_classes=10)
    return WithLoss(model), (torch.randn(16, 3, 96, 96), torch.randint(0, 10, (16,)))


def convolutional(name, extent):
    import torchvision

    model = getattr(torchvision.models, name)(num_classes=10)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return WithLoss(model), (torch.randn(16, 3, extent, extent), torch.randint(0, 10, (16,)))


MODELS = {
    "small": small, "mlp": mlp, "gpt2": gpt2, "bert": bert, "vit": vit,
    "resnet18": lambda: convolutional("resnet18", 64),
    "mobilenet_v3": lambda: convolutional("mobilenet_v3_small", 96),
}


def stepper(mode, model, batch):
    """Returns a function of no arguments that trains one step and returns the loss."""
    import weft.torch

    model = copy.deepcopy(model).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=mode != "step")
    if mode == "step":
        step = weft.torch.step(model, lambda loss: loss, optimizer)
        return lambda: step(*batch)
    call = {
        "eager": lambda: model,
        "inductor": lambda: torch.compile(model),
        "plans": lambda: torch.compile(model, backend=weft.torch.backend),
    }[mode]()

    def train():
        optimizer.zero_grad()
        loss = call(*batch)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return train


def rounds(model, batch, modes, seconds):
    """Returns the milliseconds of each mode, by round."""
    steps = {mode: stepper(mode, model, batch) for mode in modes}
    for step in steps.values():
        for _ in range(4):
            step()
    begin = time.perf_counter()
    steps[modes[0]]()
    repeats = max(1, int(0.1 / (time.perf_counter() - begin)))
    times = {mode: [] for mode in modes}
    end = time.time() + seconds
    while time.time() < end or len(times[modes[0]]) < 5:
        for mode, step in steps.items():
            step()
            begin = time.perf_counter()
            for _ in range(repeats):
                step()
            times[mode].append((time.perf_counter() - begin) / repeats * 1e3)
    return times


def first(model, batch, mode):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    begin = time.time()
    stepper(mode, model, batch)()
    seconds = time.time() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"mode": mode, "first_s": round(seconds, 2), "rss_mb": round(peak),
            "before_mb": round(before)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--seconds", type=float, default=20, help="for the rounds of one model")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--first", metavar="MODE", help="a first step, in this process")
    options = parser.parse_args()
    torch.set_num_threads(2)
    for name in options.models or MODELS:
        torch.manual_seed(0)
        torch._dynamo.reset()
        try:
            model, batch = MODELS[name]()
        except ImportError as error:
            print(json.dumps({"model": name, "left_out": str(error)}))
            continue
        if options.first:
            print(json.dumps({"model": name, **first(model, batch, options.first)}), flush=True)
            continue
        modes = options.modes.split(",")
        times = rounds(model, batch, modes, options.seconds)
        row = {"model": name, "rounds": len(times[modes[0]])}
        row["ms"] = {mode: round(statistics.median(t), 3) for mode, t in times.items()}
        for ours in ("plans", "step"):
            peers = [times[m] for m in ("eager", "inductor") if m in times]
            if ours in times and peers:
                paired = [min(others) / own for own, *others in zip(times[ours], *peers)]
                row[f"{ours}_over_best"] = round(statistics.median(paired), 3)
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
