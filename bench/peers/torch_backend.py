#!/usr/bin/env python3
"""Training steps of torch models: eager, inductor, weft's plans of both passes, and one plan.

    make bench-torch [MODELS="gpt2 vit"]

All settings of a model take turns in one process, with two threads, and a ratio is the median of
paired rounds. A row has the seconds of each first step, too. Of several models each has a process
and empty caches of its own; `zoo` stands for all models of the tests (tests/python/torch/zoo.py).
`--memory MODE` measures the memory
of the process with one setting beside that of its plan; `--threads` whether torch's threads and
weft's disturb each other.
Models of transformers, timm and torchvision have random weights; those not installed are left out.
"""

import argparse
import copy
import ctypes
import gc
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

import torch
from torch import nn
from torch.nn import functional as F

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "python" / "torch")]
import zoo  # noqa: E402

warnings.filterwarnings("ignore")
MODES = ("eager", "inductor", "plans", "step")


class WithLoss(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, *batch):
        *inputs, labels = batch
        return F.cross_entropy(self.model(*inputs), labels)


class OfZoo(nn.Module):
    """A model of the tests with its loss, as a module of the batch."""

    def __init__(self, case):
        super().__init__()
        self.model, self.loss = case.module, case.loss
        self.names = list(case.kwargs)

    def forward(self, *batch):
        count = len(batch) - len(self.names)
        return self.loss(self.model(*batch[:count], **dict(zip(self.names, batch[count:]))))


def of_zoo(name):
    case = zoo.MODELS[name].make()
    zoo.without_dropout(case.module)
    return OfZoo(case), (*case.args, *case.kwargs.values())


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


def made(name):
    """Returns a model whose output is the loss, and its batch."""
    torch.manual_seed(0)
    return MODELS[name]() if name in MODELS else of_zoo(name)


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


def timed(step):
    begin = time.perf_counter()
    step()
    return time.perf_counter() - begin


def rounds(steps, seconds):
    """Returns the milliseconds of each setting, by round."""
    for step in steps.values():
        for _ in range(3):
            step()
    slowest = max(timed(step) for step in steps.values())
    repeats = max(1, int(0.05 / slowest))
    times = {mode: [] for mode in steps}
    end = time.time() + seconds
    while time.time() < end or len(next(iter(times.values()))) < 5:
        for mode, step in steps.items():
            step()
            begin = time.perf_counter()
            for _ in range(repeats):
                step()
            times[mode].append((time.perf_counter() - begin) / repeats * 1e3)
    return times


def row_of(name, modes, seconds):
    """Returns the measured row of a model, and what settings say that refuse it."""
    try:
        model, batch = made(name)
    except ImportError as error:
        return {"model": name, "left_out": str(error)}
    row = {"model": name, "first_s": {}, "refused": {}}
    steps = {}
    for mode in modes:
        torch._dynamo.reset()
        try:
            step = stepper(mode, model, batch)
            row["first_s"][mode] = round(timed(step), 2)
            steps[mode] = step
        except Exception as error:  # a row says what any setting refuses
            row["refused"][mode] = f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"
    times = rounds(steps, seconds)
    row["rounds"] = len(times[modes[0]])
    row["ms"] = {mode: round(statistics.median(t), 3) for mode, t in times.items()}
    peers = [times[m] for m in ("eager", "inductor") if m in times]
    for ours in ("plans", "step"):
        if ours in times and peers:
            paired = [min(others) / own for own, *others in zip(times[ours], *peers)]
            row[f"{ours}_over_best"] = round(statistics.median(paired), 3)
    return row


def mebibytes(field):
    """Returns a field of this process's status: VmRSS, or VmHWM for its peak."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise KeyError(field)


def memory(name, mode):
    """Returns MiB of this process: before the model, planned on top of that, and the peak."""
    import weft.torch

    small_step = stepper(mode, *made("small"))  # brings in what a first step imports
    small_step()
    model, batch = made(name)
    del model, batch
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    before = mebibytes("VmRSS")
    model, batch = made(name)
    plan = weft.plan(model.train(), batch, loss=lambda loss: loss)["cpu"]
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    step = stepper(mode, model, batch)
    del model
    for _ in range(4):
        step()
    return {"model": name, "mode": mode, "before_mib": round(before),
            "plan_mib": round(plan.memory_bytes / 2**20), "peak_mib": round(mebibytes("VmHWM"))}


def threads(name):
    """Returns the milliseconds of eager steps and of weft's, each alone and in turns: torch's
    OpenMP and weft's team have the same cores."""
    model, batch = made(name)
    eager, ours = stepper("eager", model, batch), stepper("step", model, batch)
    for step in (eager, ours) * 3:
        step()
    times = {"eager": [], "step": [], "in_turns": []}
    for _ in range(15):
        for key, steps in (("eager", [eager]), ("step", [ours]), ("in_turns", [eager, ours])):
            begin = time.perf_counter()
            for _ in range(10):
                for step in steps:
                    step()
            times[key].append((time.perf_counter() - begin) * 1e2)
    paired = [both / (a + b) for a, b, both in zip(*times.values())]
    return {"model": name, "ms": {k: round(statistics.median(t), 3) for k, t in times.items()},
            "in_turns_over_alone": round(statistics.median(paired), 3)}


def summary(rows):
    """Prints what the rows say of all models."""
    for ours in ("plans", "step"):
        ratios = sorted(r[f"{ours}_over_best"] for r in rows if f"{ours}_over_best" in r)
        if ratios:
            behind = [r["model"] for r in rows if r.get(f"{ours}_over_best", 1) < 1]
            print(json.dumps({
                "of": ours, "models": len(ratios), "median": statistics.median(ratios),
                "least": ratios[0], "behind": behind}))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--seconds", type=float, default=20, help="for the rounds of one model")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--memory", metavar="MODE", help="memory with one setting, of one model")
    parser.add_argument("--threads", action="store_true", help="eager and weft in turns")
    options = parser.parse_args()
    torch.set_num_threads(2)
    names = list(zoo.MODELS) if options.models == ["zoo"] else options.models
    rows = []
    for name in names:
        if options.memory:
            print(json.dumps(memory(name, options.memory)), flush=True)
        elif options.threads:
            print(json.dumps(threads(name)), flush=True)
        elif len(names) > 1:  # a process of its own: dynamo and allocators remember
            command = [sys.executable, __file__, name, "--seconds", str(options.seconds),
                       "--modes", options.modes]
            with tempfile.TemporaryDirectory() as caches:
                environment = {**os.environ, "XDG_CACHE_HOME": caches,
                               "TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor"}
                done = subprocess.run(
                    command, stdout=subprocess.PIPE, text=True, check=False, env=environment)
            print(done.stdout or json.dumps({"model": name, "left_out": "ended early"}),
                  end="" if done.stdout else "\n", flush=True)
            rows += [json.loads(line) for line in done.stdout.splitlines()]
        else:
            print(json.dumps(row_of(name, options.modes.split(","), options.seconds)), flush=True)
    summary(rows)


if __name__ == "__main__":
    main()
