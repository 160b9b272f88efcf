#!/usr/bin/env python3
"""One workload in PyTorch; prints one JSON line with the keys of `weft bench --json`.

    python torch_peer.py gpt2 --batch 4 --length 64 --mode compile --precision bf16
    python torch_peer.py mlp --weights FILE   (of weft bench mlp --write-weights FILE)
    python torch_peer.py gpt2-xl --device cuda --batch 16 --length 1024 --precision bf16
    python torch_peer.py train-characters --text tinyshakespeare.txt
"""
import argparse
import math
import pathlib
import time

import start
from workloads import WORKLOADS, measure, print_line, seconds_since_start

before_import = time.perf_counter()
import torch
import torch.nn as nn
import torch.nn.functional as F

import_seconds = time.perf_counter() - before_import

from torch_models import (Bert, LstmLm, alexnet, gpt2, gpt2_xl, gpt_characters, mlp, mnist_conv,
                          resnet20, resnet50)


def load_weights(model, path):
    """Loads weights from a safetensors file; returns the seconds it took."""
    begin = time.perf_counter()
    weights = {k: torch.from_numpy(v) for k, v in start.read_weights(path).items()}
    missing, unexpected = model.load_state_dict(weights, strict=False)
    missing = [name for name in missing if not name.endswith("num_batches_tracked")]
    if missing or unexpected:
        raise SystemExit(f"torch_peer.py: {path} lacks {missing}, has {unexpected} too")
    return time.perf_counter() - begin


def train_step(model, inputs, targets, optimizer, args):
    inputs, targets = inputs.to(args.device), targets.to(args.device)
    if args.weights:
        args.untimed = load_weights(model, args.weights)
    if args.channels_last:
        model = model.to(memory_format=torch.channels_last)
        inputs = inputs.to(memory_format=torch.channels_last)

    def loss_of(inputs, targets):
        return F.cross_entropy(model(inputs), targets)

    # The loss is compiled, too: for a language model it is a large part of the step.
    run = torch.compile(loss_of) if args.mode == "compile" else loss_of

    def step():
        with torch.autocast(args.device, torch.bfloat16, enabled=args.precision == "bf16"):
            loss = run(inputs, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step


def finish(args):
    """Waits for a step that returns nothing: a GPU is still busy."""
    if args.device == "cuda":
        torch.cuda.synchronize()


def token_task(model, vocabulary, args):
    """Uses AdamW on all parameters; items are tokens."""
    ids, targets = map(torch.from_numpy, start.tokens(args.batch, args.length, vocabulary))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, weight_decay=0.1, fused=True)
    return train_step(model, ids, targets.flatten(), optimizer, args), ids.numel()


def image_task(model, shape, classes, args):
    """Uses SGD with momentum; items are images."""
    images, labels = map(torch.from_numpy, start.images(args.batch, shape, classes))
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, weight_decay=1e-4,
                                fused=True)
    return train_step(model, images, labels, optimizer, args), args.batch


def adamw_task(args):
    """The update of GPT-2's 124M parameters alone; items are bytes, 16 read and 12 written each."""
    sizes = [50257 * 768, 1024 * 768] + [7087872] * 12
    parameters = [torch.randn(n, requires_grad=True) for n in sizes]
    for p in parameters:
        p.grad = torch.randn_like(p)
    optimizer = torch.optim.AdamW(parameters, 1e-4, weight_decay=0.1, fused=True)

    def step():
        optimizer.step()
        finish(args)
        return 0.0

    return step, 28 * sum(sizes)


def row_task(function, passes, args):
    """Forward and backward of one operation; items are the minimum bytes moved."""
    x = torch.randn(args.batch, args.length, requires_grad=True)
    upstream = torch.randn(args.batch, args.length)
    run = torch.compile(function) if args.mode == "compile" else function

    def step():
        y = run(x)
        y.backward(upstream if y.dim() else None)
        x.grad = None
        finish(args)
        return 0.0

    return step, passes * 4 * x.numel()


def cross_entropy_task(args):
    targets = torch.randint(0, args.length, (args.batch,))
    return row_task(lambda x: F.cross_entropy(x, targets), 3, args)


def layer_norm_task(args):
    weight, bias = (torch.ones(args.length, requires_grad=True) for _ in range(2))
    return row_task(lambda x: F.layer_norm(x, [args.length], weight, bias), 5, args)


TASKS = {
    "gpt2": lambda args: token_task(gpt2(), 50257, args),
    "gpt2-xl": lambda args: token_task(gpt2_xl(), 50257, args),
    "gpt-char": lambda args: token_task(gpt_characters(), 65, args),
    "bert": lambda args: token_task(Bert(), 30522, args),
    "lstm": lambda args: token_task(LstmLm(), 10000, args),
    "resnet50": lambda args: image_task(resnet50(), (3, 224, 224), 1000, args),
    "resnet20": lambda args: image_task(resnet20(), (3, 32, 32), 10, args),
    "alexnet": lambda args: image_task(alexnet(), (3, 224, 224), 1000, args),
    "mnist-conv": lambda args: image_task(mnist_conv(), (1, 28, 28), 10, args),
    "mlp": lambda args: image_task(mlp(), (784,), 10, args),
    "adamw": adamw_task,
    # softmax, layer norm, GELU: read x, write y; read dy and x or y, write dx
    "softmax": lambda args: row_task(lambda x: F.softmax(x, -1), 5, args),
    "layer-norm": layer_norm_task,
    "gelu": lambda args: row_task(F.gelu, 5, args),
    "cross-entropy": cross_entropy_task,
}


def learning_rate(step, total, peak=1e-3, least=1e-4, warmup=100):
    if step < warmup:
        return peak * (step + 1) / (warmup + 1)
    done = (step - warmup) / max(1, total - warmup)
    return least + 0.5 * (peak - least) * (1 + math.cos(math.pi * done))


def validation_loss(model, text, context=64, rows=64):
    """Returns the mean over all whole windows of the text."""
    windows = (len(text) - 1) // context
    x = text[:windows * context].view(windows, context)
    y = text[1:windows * context + 1].view(windows, context)
    with torch.no_grad():
        total = sum(F.cross_entropy(model(a), b.flatten(), reduction="sum").item()
                    for a, b in zip(x.split(rows), y.split(rows)))
    return total / (windows * context)


def train_characters(args, context=64, batch=12):
    """Trains nanoGPT's published CPU setting on a text; then measures the validation loss."""
    text = pathlib.Path(args.text).read_text()
    index = {c: i for i, c in enumerate(sorted(set(text)))}
    data = torch.tensor([index[c] for c in text])
    train, valid = data[:int(0.9 * len(data))], data[int(0.9 * len(data)):]
    model, total = gpt_characters(len(index)), args.steps or 2000

    def loss_of(inputs, targets):
        return F.cross_entropy(model(inputs), targets)

    run = torch.compile(loss_of) if args.mode == "compile" else loss_of
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, 1e-3, (0.9, 0.99), fused=True)
    began = time.perf_counter()
    for step in range(total):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, total)
        at = torch.randint(len(train) - context, (batch,))
        x = torch.stack([train[i:i + context] for i in at])
        y = torch.stack([train[i + 1:i + 1 + context] for i in at])
        loss = run(x, y.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step == 0:
            first_seconds = seconds_since_start()
    seconds = time.perf_counter() - began
    return {"steps": total, "seconds": round(seconds, 2), "first_step_done_s":
            round(first_seconds, 3), "loss": round(validation_loss(model, valid), 4)}


def open_device(device):
    """Returns the free bytes of device memory before any allocation; 0: the host's."""
    if device == "cpu":
        return 0
    torch.backends.cudnn.benchmark = True
    torch.cuda.init()
    return torch.cuda.mem_get_info()[0]


def device_memory(device, free_before):
    """Returns what the driver has allocated since, kernel code included, like weft's device_gb."""
    if device == "cpu":
        return {}
    return {"device_gb": round((free_before - torch.cuda.mem_get_info()[0]) / 1e9, 3),
            "allocated_gb": round(torch.cuda.max_memory_allocated() / 1e9, 3)}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", choices=[*TASKS, "train-characters"])
    parser.add_argument("--mode", choices=["eager", "compile"], default="eager")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--precision", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--length", type=int)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1337)
    parser.add_argument("--weights", help="initial weights, of weft bench --write-weights")
    parser.add_argument("--text", help="text file of train-characters")
    args = parser.parse_args()
    args.untimed = 0.0  # seconds to leave out: work that a normal run would not do
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    line = {"workload": args.workload, "system": f"PyTorch {torch.__version__}",
            "mode": args.mode + ("-channels-last" if args.channels_last else ""),
            "device": args.device, "precision": args.precision, "threads": args.threads}
    if args.workload == "train-characters":
        if not args.text:
            parser.error("train-characters needs --text FILE")
        if args.device != "cpu":
            parser.error("train-characters runs on the CPU")
        return print_line(line | train_characters(args))
    defaults = WORKLOADS[args.workload]
    args.batch, args.length = args.batch or defaults.batch, args.length or defaults.length
    free_before = open_device(args.device)
    with torch.device(args.device):
        step, items = TASKS[args.workload](args)
    numbers = measure(step, items, args.steps or 7, args.untimed)
    print_line(line | {"batch": args.batch, "length": args.length} | numbers
               | device_memory(args.device, free_before) | {"import_s": round(import_seconds, 3)})


if __name__ == "__main__":
    main()
