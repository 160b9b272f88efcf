"""What every side runs: sizes of the workloads, cases of the comparison, and the JSON line."""
import dataclasses
import json
import os
import resource
import time


@dataclasses.dataclass(frozen=True)
class Workload:
    batch: int
    length: int = 0  # tokens of a row; 0 where there is no such thing
    convolutions: bool = False  # channels-last is worth a try
    jax: bool = False  # jax_peer.py has it
    half: bool = True  # bf16 makes sense
    weights: bool = False  # weft has the model: peers start from its weights


WORKLOADS = {
    "gpt2": Workload(4, 64, jax=True, weights=True),
    "gpt-char": Workload(12, 64, jax=True, weights=True),
    "bert": Workload(8, 128),
    "lstm": Workload(64, 35),
    "resnet50": Workload(16, convolutions=True),
    "resnet20": Workload(128, convolutions=True, weights=True),
    "alexnet": Workload(64, convolutions=True),
    "mnist-conv": Workload(128, convolutions=True, jax=True, weights=True),
    "mlp": Workload(128, jax=True, weights=True),
    "adamw": Workload(0, half=False),
    # rows x columns of one activation, forward and backward
    "softmax": Workload(16384, 4096, half=False),
    "layer-norm": Workload(16384, 4096, half=False),
    "gelu": Workload(16384, 4096, half=False),
    "cross-entropy": Workload(16384, 4096, half=False),
}


@dataclasses.dataclass(frozen=True)
class Case:
    """One line of the table; short steps are timed more often."""
    workload: str
    precision: str = "f32"
    batch: int = 0
    length: int = 0
    steps: int = 7


CASES = {
    "gpt2-4x64": Case("gpt2", batch=4, length=64),
    "gpt2-1x1024": Case("gpt2", batch=1, length=1024),
    "gpt2-4x256-bf16": Case("gpt2", "bf16", 4, 256),
    "gpt-char": Case("gpt-char", steps=40),
    "resnet20": Case("resnet20", steps=9),
    "mnist-conv": Case("mnist-conv", steps=20),
    "mlp": Case("mlp", steps=300),
    "resnet50": Case("resnet50"),
    "resnet50-bf16": Case("resnet50", "bf16"),
    "lstm": Case("lstm"),
    "lstm-bf16": Case("lstm", "bf16"),
    "bert": Case("bert"),
    "bert-bf16": Case("bert", "bf16"),
    "alexnet": Case("alexnet"),
    "adamw": Case("adamw", steps=15),
    "softmax": Case("softmax", steps=9),
    "layer-norm": Case("layer-norm", steps=9),
    "gelu": Case("gelu", steps=9),
    "cross-entropy": Case("cross-entropy", steps=9),
}


def seconds_since_start():
    """Since the process began (Linux), so that the interpreter and imports count."""
    with open("/proc/self/stat") as stat:
        began = int(stat.read().rsplit(")", 1)[1].split()[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - began


def measure(step, items, steps, untimed=0.0, warmup=2):
    """Calls `step` (which returns its loss and is done when it returns); numbers of the line.

    `untimed`: seconds before the first step that do not count (weights that came from a file).
    """
    loss = step()
    first_seconds = seconds_since_start() - untimed
    for _ in range(warmup):
        step()
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        loss = step()
        times.append(time.perf_counter() - start)
    times.sort()
    median = (times[(len(times) - 1) // 2] + times[len(times) // 2]) / 2
    return {"median_ms": round(median * 1e3, 4), "best_ms": round(times[0] * 1e3, 4),
            "items_per_s": round(items / median, 1), "steps": steps,
            "first_step_done_s": round(first_seconds, 3), "loss": float(loss)}


def print_line(numbers):
    """Adds the peak resident memory (Linux counts in KiB) and prints one JSON line."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    print(json.dumps(numbers | {"peak_rss_gb": round(peak, 3)}), flush=True)
