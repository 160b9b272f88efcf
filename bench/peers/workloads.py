"""Common to all sides: workload sizes, cases of the comparison, and the JSON line."""
import dataclasses
import json
import os
import resource
import time


@dataclasses.dataclass(frozen=True)
class Workload:
    batch: int
    length: int = 0  # tokens of a row; 0 where there is no length
    convolutions: bool = False  # channels-last
    jax: bool = False  # implemented by jax_peer.py
    model: bool = True  # peers start from weft's weights


WORKLOADS = {
    "gpt2": Workload(4, 64, jax=True),
    "gpt2-xl": Workload(1, 64),
    "gpt-char": Workload(12, 64, jax=True),
    "bert": Workload(8, 128),
    "lstm": Workload(64, 35),
    "resnet50": Workload(16, convolutions=True),
    "resnet20": Workload(128, convolutions=True),
    "alexnet": Workload(64, convolutions=True),
    "mnist-conv": Workload(128, convolutions=True, jax=True),
    "mlp": Workload(128, jax=True),
    "adamw": Workload(0, model=False),
    # rows x columns of one activation, forward and backward
    "softmax": Workload(16384, 4096, model=False),
    "layer-norm": Workload(16384, 4096, model=False),
    "gelu": Workload(16384, 4096, model=False),
    "cross-entropy": Workload(16384, 4096, model=False),
}

SHORT = ("eager", "compile", "eager+malloc", "compile+malloc", "jax")
LONG = ("eager", "eager+malloc", "compile+malloc")  # for visits that take a minute
LAST = ("eager-channels-last", "compile-channels-last", "eager-channels-last+malloc",
        "compile-channels-last+malloc")
LONG_LAST = ("eager-channels-last", "eager-channels-last+malloc", "compile-channels-last+malloc")


@dataclasses.dataclass(frozen=True)
class Case:
    """One row of the table: what runs, how often, compared with whom, and its goals."""
    workload: str
    title: str
    precision: str = "f32"
    batch: int = 0
    length: int = 0
    steps: int = 7  # timed, per visit; at least seven in total
    visits: int = 2
    peers: tuple = SHORT
    ratio: float = 1  # goal: the best peer's time over weft's
    ceiling: float = 0  # goal: share of the rate of the products alone
    floor: float = 0  # goal: share of the larger floor, memory or arithmetic


ROWS = "16,384 x 4,096, forward and backward"
CASES = {
    "gpt2-4x64": Case("gpt2", "GPT-2 124M f32, 4 x 64", batch=4, length=64, steps=4, ceiling=0.9),
    "gpt2-1x1024": Case("gpt2", "GPT-2 124M f32, 1 x 1024", batch=1, length=1024, steps=4,
                        peers=LONG, ceiling=0.9),
    "gpt2-4x256-bf16": Case("gpt2", "GPT-2 124M bf16-mixed, 4 x 256", "bf16", 4, 256, 4, peers=LONG,
                            ratio=1.6, ceiling=0.75),
    "adamw": Case("adamw", "AdamW alone, 124M parameters", steps=15, visits=3, peers=("eager",
                  "eager+malloc")),
    "resnet50": Case("resnet50", "ResNet-50 f32, batch 16", steps=4, peers=LONG_LAST, ceiling=0.9),
    "resnet50-bf16": Case("resnet50", "ResNet-50 bf16-mixed, batch 16", "bf16", steps=4,
                          peers=LONG_LAST, ratio=1.6, ceiling=0.75),
    "resnet20": Case("resnet20", "ResNet-20 f32, batch 128", steps=9, peers=LAST, ceiling=0.8),
    "mnist-conv": Case("mnist-conv", "MNIST conv net f32, batch 128", steps=20, visits=3,
                       peers=(*LAST, "eager+malloc"), ceiling=0.8),
    "mlp": Case("mlp", "MLP 784-256-10 f32, batch 128", steps=300, visits=3, ceiling=0.8),
    "gpt-char": Case("gpt-char", "GPT of characters f32, 12 x 64", steps=40, visits=3, ceiling=0.8),
    "lstm": Case("lstm", "LSTM 2 x 512 f32, 64 x 35", steps=4, peers=SHORT, ceiling=0.9),
    "lstm-bf16": Case("lstm", "LSTM 2 x 512 bf16-mixed, 64 x 35", "bf16", steps=4, peers=SHORT,
                      ratio=1.6, ceiling=0.75),
    "bert": Case("bert", "BERT-base f32, 8 x 128", steps=4, peers=LONG, ceiling=0.9),
    "bert-bf16": Case("bert", "BERT-base bf16-mixed, 8 x 128", "bf16", steps=4, peers=LONG,
                      ratio=1.6, ceiling=0.75),
    "alexnet": Case("alexnet", "AlexNet f32, batch 64", steps=4, peers=LONG_LAST, ceiling=0.9),
    "softmax": Case("softmax", f"softmax f32, {ROWS}", floor=0.85),
    "layer-norm": Case("layer-norm", f"layer norm f32, {ROWS}", floor=0.85),
    "gelu": Case("gelu", f"GELU f32, {ROWS}", floor=0.85),
    "cross-entropy": Case("cross-entropy", f"cross entropy f32, {ROWS}", floor=0.85),
}


def seconds_since_start():
    """Returns the seconds since process start (Linux), including interpreter and imports."""
    with open("/proc/self/stat") as stat:
        began = int(stat.read().rsplit(")", 1)[1].split()[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - began


def measure(step, items, steps, untimed=0.0, warmup=2):
    """Calls `step` (which returns its loss and is done when it returns); numbers of the line.

    `untimed`: seconds before the first step that do not count (weights that came from a file).
    """
    losses = [float(step())]
    first_seconds = seconds_since_start() - untimed
    for _ in range(warmup):
        losses.append(float(step()))
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        losses.append(float(step()))
        times.append(time.perf_counter() - start)
    times.sort()
    median = (times[(len(times) - 1) // 2] + times[len(times) // 2]) / 2
    return {"median_ms": round(median * 1e3, 4), "best_ms": round(times[0] * 1e3, 4),
            "items_per_s": round(items / median, 1), "steps": steps,
            "first_step_done_s": round(first_seconds, 3), "loss": losses[-1],
            "losses": losses[:10]}


def print_line(numbers):
    """Adds the peak resident memory (Linux counts in KiB) and prints one JSON line."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    print(json.dumps(numbers | {"peak_rss_gb": round(peak, 3)}), flush=True)
