#!/usr/bin/env python3
"""Writes the curves of models.py and ops.json beside itself (see README.md)."""
import argparse
import json
import math
import pathlib
import time

import torch
import torch.nn.functional as F

import architectures
import formula
import make_ops
from models import BATCHES, SPECS, build, make_optimizer, parameter_rule

SPECS |= architectures.SPECS

STEPS = 301
MARKS = (1, 5, 10, 20, 50, 100, 200, 300)
WINDOW = 20
THREADS = 2
NUDGED_RUNS = 5
HERE = pathlib.Path(__file__).parent


def digest(tensor):
    flat = tensor.detach().double().flatten()
    return {"norm": flat.norm().item(), "first": flat[:3].tolist()}


def statistics(model):
    return {k: v for k, v in model.named_buffers() if v.is_floating_point()}


def inputs_as(dtype, inputs):
    return inputs.to(dtype) if inputs.is_floating_point() else inputs


def train(name, dtype, nudge=0.0, draw=0, threads=THREADS):
    """Returns losses, digests of first gradients and state after ten updates, and the model."""
    torch.set_num_threads(threads)
    spec, model = SPECS[name], build(name, dtype, nudge, draw)
    optimizer = make_optimizer(name, model)
    batches = [spec["batch"](b) for b in range(BATCHES)]
    batches = [(inputs_as(dtype, x), y) for x, y in batches]
    losses, first_step, after_10 = [], {}, {}
    for step in range(spec.get("steps", STEPS)):
        inputs, targets = batches[step % BATCHES]
        loss = F.cross_entropy(model(inputs), targets)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            first_step = {k: digest(p.grad) for k, p in model.named_parameters()}
        if spec["clip"]:
            torch.nn.utils.clip_grad_norm_(model.parameters(), spec["clip"])
        optimizer.step()
        if step == 9:
            after_10 = {k: digest(v) for k, v in [*model.named_parameters(),
                                                 *statistics(model).items()]}
    return losses, first_step, after_10, model


def spread(a, b):
    """Returns the largest absolute difference of two curves up to each mark."""
    return {str(m): max(abs(x - y) for x, y in zip(a[:m + 1], b[:m + 1])) for m in MARKS}


def distance(runs, exact):
    """Returns, per window, the root mean square error of the losses over all runs.

    One run is one sample of rounding errors and may be close to the exact curve by chance, so
    several are averaged.
    """
    return [math.sqrt(sum((run[s] - exact[s])**2 for run in runs for s in range(at, at + WINDOW)) /
                      (WINDOW * len(runs)))
            for at in range(0, STEPS - WINDOW, WINDOW)]


def parameters_of(name):
    rows = []
    for key, parameter in build(name, torch.float64).named_parameters():
        kind, scale = parameter_rule(SPECS[name], key, parameter.shape)
        row = {"name": key, "shape": list(parameter.shape), "init": kind}
        rows.append(row | ({"scale": scale} if scale else {}))
    return rows


def one_row_per_item(document):
    """Returns JSON with one line per key and per item of nested tables, for readable diffs."""
    lines = []
    for key, value in document.items():
        text = json.dumps(value)
        if isinstance(value, dict) and len(text) > 100:
            inner = ",\n".join(f"    {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items())
            text = "{\n" + inner + "\n  }"
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            text = "[\n" + ",\n".join(f"    {json.dumps(v)}" for v in value) + "\n  ]"
        lines.append(f"  {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def curve(name):
    start = time.time()
    f64, first_step, after_10, _ = train(name, torch.float64)
    f32, *_ = train(name, torch.float32)
    f64_nudged, *_ = train(name, torch.float64, 2.0**-52)
    spec = SPECS[name]
    runs = 1 if spec.get("parts_in_f32") else NUDGED_RUNS
    f32_nudged = [train(name, torch.float32, 2.0**-23, draw)[0] for draw in range(runs)]
    f32_runs = [f32, train(name, torch.float32, threads=1)[0], *f32_nudged]
    document = {
        "name": name, "model": spec["model"], "made_by": f"PyTorch {torch.__version__}",
        "formula": "README.md: splitmix64; stream = parameter position, 1000 + b inputs, "
                   "2000 + b labels; step s uses batch s % 8",
        "check": formula.check(),
        "optimizer": spec["optimizer"], "clip_grad_norm": spec["clip"],
        "batches": BATCHES, "input_shape": list(spec["batch"](0)[0].shape),
        "target_shape": list(spec["batch"](0)[1].shape),
        "first_targets": spec["batch"](0)[1][:8].tolist(),
        "parameters": parameters_of(name),
        "spread": {"f32_vs_f64": spread(f32, f64),
                   "f64_vs_f64_nudged": spread(f64, f64_nudged),
                   "f32_vs_f32_nudged": spread(f32, f32_nudged[0])},
        **({} if spec.get("parts_in_f32") else {"f32_distance": distance(f32_runs, f64)}),
        "first_step": first_step, "after_10_steps": after_10,
        "loss_f64": f64, "loss_f32": f32,
    }
    (HERE / f"{name}.json").write_text(one_row_per_item(document))
    print(f"{name}: {time.time() - start:.1f} s, loss {f64[0]:.4f} to {f64[-1]:.4g}")
    factors = [one / all_runs for run in f32_runs
               for one, all_runs in zip(distance([run], f64), distance(f32_runs, f64))]
    print(f"   one run in a window: {min(factors):.2f} to {max(factors):.2f} of f32_distance")
    for key, marks in document["spread"].items():
        print("  ", key, {k: f"{v:.1e}" for k, v in marks.items()})


def some(logits, count=48):
    """Returns about `count` equally spaced elements."""
    flat = logits.detach().double().flatten()
    return flat[::max(1, len(flat) // count)][:count].tolist()


def short_curve(name):
    """Returns an architecture's logits (eval mode) of first and last weights, and its losses."""
    spec, start = SPECS[name], time.time()
    batches = [spec["batch"](b) for b in range(BATCHES)]
    logits = {dtype: build(name, dtype).eval()(inputs_as(dtype, batches[0][0]))
              for dtype in (torch.float64, torch.float32)}
    exact = logits[torch.float64].detach()
    losses, _, _, model = train(name, torch.float64)
    nudged = train(name, torch.float64, 2.0**-52)[0]
    document = {
        "name": name, "made_by": f"PyTorch {torch.__version__}", "weft": spec["weft"],
        "task": spec["task"], "optimizer": spec["optimizer"], "clip_grad_norm": spec["clip"],
        "parameters": parameters_of(name), "logits": some(exact),
        "largest_logit": exact.abs().max().item(),
        "f32_off": (logits[torch.float32].detach() - exact).abs().max().item(),
        "f64_nudged_off": max(abs(a - b) for a, b in zip(losses, nudged)),
        "loss_f64": losses, "last_logits": some(model.eval()(batches[0][0])),
    }
    (HERE / f"{name}.json").write_text(one_row_per_item(document))
    print(f"{name}: {time.time() - start:.1f} s, loss {losses[0]:.4f} to {losses[-1]:.4g}, f32 off "
          f"{document['f32_off'] / document['largest_logit']:.1e}, nudged "
          f"{document['f64_nudged_off']:.1e}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[*SPECS, "ops"])
    args = parser.parse_args()
    for name in args.names:
        if name == "ops":
            (HERE / "ops.json").write_text(one_row_per_item(make_ops.document()))
            print("ops: done")
        elif name in architectures.SPECS:
            short_curve(name)
        else:
            curve(name)


if __name__ == "__main__":
    main()
