#!/usr/bin/env python3
"""weft beside PyTorch on one GPU: the rows of the GPU's table, the most telling ones first.

    python bench/peers/gpu.py --weft build/release/weft --budget 300 --json gpu.json
    python bench/peers/gpu.py gpt2 --weft build/release/weft       (that row alone)

Each visit is a process of its own. One that reaches its limit, and what is left where the time is
up, is "not measured (out of time)", which is no failure.
Where losses are apart, weft runs again with each switch of WEFT_CUDA_OFF, and the one that cures it
is named. Floors and goals are those of the GPU that is there. Exit code 1 where a visit failed or
losses are apart; a goal that is missed is no failure.
"""
# This is one file because it makes one table: a row says what its visits measure, what they
# should reach, and what is printed.
import argparse
import dataclasses
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

from workloads import WORKLOADS

HERE = pathlib.Path(__file__).resolve().parent
OUT_OF_TIME = "not measured (out of time)"
# Features that can be switched off one by one (docs/gpu-check.md).
SWITCHES = ("graphs", "cudnn-attention", "cudnn-conv", "epilogues", "joins", "padding",
            "read-only", "side-copies")


@dataclasses.dataclass(frozen=True)
class Ceiling:
    """Operations and bytes per second measured on a GPU; f32 and f64 are from its data sheet."""
    peaks: dict
    bandwidth: float

    def floor_ms(self, flops, least_bytes):
        compute = sum(count / self.peaks.get(kind, self.peaks["f32"])
                      for kind, count in flops.items())
        return 1e3 * max(compute, least_bytes / self.bandwidth)


H200 = Ceiling({"bf16": 790e12, "f16": 790e12, "tf32": 395e12, "f32": 67e12, "f64": 34e12}, 4.3e12)
CEILINGS = {
    r"\bH200\b": H200,
    r"\bH100 (80GB HBM3|SXM)": Ceiling({"bf16": 770e12, "f16": 770e12, "tf32": 385e12, "f32": 67e12, "f64": 34e12},
                    3.0e12),
}


def ceiling_of(name):
    """Returns the ceiling of a GPU by the name its driver reports; None: not measured."""
    return next((ceiling for model, ceiling in CEILINGS.items() if re.search(model, name)), None)


@dataclasses.dataclass(frozen=True)
class Row:
    """One row: sizes for the GPU, small ones for a trial elsewhere, and goals."""
    title: str
    workload: str
    batch: int = 0
    length: int = 0
    small: tuple = (0, 0)  # batch and length
    bf16: bool = False
    steps: int = 7  # timed; three warm-up steps precede them
    compiled: bool = True
    weights: bool = True  # peers start from weft's, and losses are compared
    loss_off: float = 1e-3  # allowed for the first ten losses, relative to the first
    ratio: float = 0  # goal: the best peer's time over weft's
    rate: float = 0  # goal: items per second on an H200; elsewhere scaled by the floor of the GPU
    bandwidth: float = 0  # goal: share of the GPU's bandwidth


ROWS = {
    "gpt2": Row("GPT-2 124M bf16, 64 x 1024", "gpt2", 64, 1024, (1, 32), True, loss_off=5e-3,
                ratio=1.3, rate=630e3),
    "mlp-1": Row("MLP f32, batch 1", "mlp", 1, 0, (1, 0), steps=200, compiled=False, ratio=5),
    "gpt-char-1": Row("GPT of characters f32, 1 x 64", "gpt-char", 1, 64, (1, 64), steps=100,
                      compiled=False, ratio=5),
    "resnet50": Row("ResNet-50 bf16, batch 256", "resnet50", 256, 0, (2, 0), True, loss_off=0.05,
                    ratio=1.5, rate=4500),
    "gpt2-xl": Row("GPT-2 1558M bf16, 16 x 1024", "gpt2-xl", 16, 1024, (0, 0), True, steps=4,
                   weights=False, ratio=1.2, rate=58e3),
    "layer-norm": Row("layer norm f32, 65,536 x 4,096, forward and backward", "layer-norm", 65536,
                      4096, (64, 64), steps=20, weights=False, bandwidth=0.88),
    "cross-entropy": Row("cross entropy f32, 65,536 x 4,096, forward and backward",
                         "cross-entropy", 65536, 4096, (64, 64), steps=20, weights=False,
                         bandwidth=0.88),
    "adamw": Row("AdamW, 124M parameters", "adamw", steps=20, weights=False, compiled=False,
                 bandwidth=0.88),
}
SECONDS = {"weft": 60, "eager": 75, "compile": 150}  # limit of one visit
LEAST = 5  # seconds: nothing starts with fewer left
COLD, WARM = 3.0, 0.6  # goals: seconds from start to first step
MEMORY = "16GiB"  # goal: GPT-2 124M, 64 x 1024


def size_flags(row):
    return (["--batch", row.batch] if row.batch else []) + \
        (["--length", row.length] if row.length else [])


def workload_flags(row):
    """Returns the flags of `weft bench` for a row."""
    return [row.workload, *size_flags(row), *(["--precision", "bf16-mixed"] if row.bf16 else [])]


def small(row):
    """Returns a row to try out the check itself, without goals."""
    batch, length = row.small
    return dataclasses.replace(row, title=f"{row.workload}, small", batch=batch, length=length,
                               steps=min(row.steps, 4), ratio=0, rate=0, bandwidth=0)


class Check:
    def __init__(self, args):
        self.args = args
        self.rows = {name: small(ROWS[name]) if args.small else ROWS[name] for name in args.rows}
        self.end = time.monotonic() + args.budget
        self.scratch = tempfile.TemporaryDirectory(prefix="weft-gpu-")
        self.visits = {name: {} for name in self.rows}
        self.start = {}  # seconds, or the reason for failure
        self.lean = {}
        self.failed = []
        self.gpu = self.name_of_gpu()
        self.ceiling = ceiling_of(self.gpu)

    def name_of_gpu(self):
        seen = self.call([self.args.weft, "devices", "--json"], 30)
        return next((gpu["name"] for gpu in seen.get("gpus", [])), "no GPU")

    def left(self):
        return self.end - time.monotonic()

    def call(self, command, seconds, extra=None):
        """Returns the JSON line that a command prints, or {"error": ...}."""
        seconds = int(min(seconds, self.left()))
        if seconds < LEAST:
            return {"error": OUT_OF_TIME}
        command = ["timeout", "-k", "5", str(seconds), *map(str, command)]
        done = subprocess.run(command, capture_output=True, text=True,
                              env=os.environ | (extra or {}))
        if done.returncode in (124, 137):  # a crash is negative
            return {"error": OUT_OF_TIME}
        lines = [line for line in done.stdout.splitlines() if line.startswith('{"')]
        if done.returncode == 0 and lines:
            return json.loads(lines[-1])
        if done.returncode == 0 and done.stdout.startswith("{"):
            return json.loads(done.stdout)
        said = (done.stderr.strip() or done.stdout.strip() or "printed nothing").splitlines()
        return {"error": f"exit {done.returncode}: {said[-1][:200]}", "output": said[-30:]}

    def weights_file(self, row):
        return pathlib.Path(self.scratch.name) / f"{row.workload}.safetensors"

    def weft(self, row, *flags, cache="rows", extra=None):
        command = [self.args.weft, "bench", *workload_flags(row), "--json", "--device",
                   self.args.device, *flags]
        folder = pathlib.Path(self.scratch.name) / f"cache-{cache}"
        if cache == "rows" and self.args.cache:
            folder = self.args.cache
        return self.call(command, SECONDS["weft"], {"WEFT_CACHE_DIR": str(folder)} | (extra or {}))

    def peer(self, row, mode):
        command = [self.args.python, HERE / "torch_peer.py", row.workload, "--mode", mode,
                   "--device", "cuda" if self.args.device == "cuda" else "cpu",
                   "--threads", os.cpu_count(), *size_flags(row), "--steps", row.steps,
                   "--precision", "bf16" if row.bf16 else "f32"]
        command += ["--channels-last"] if WORKLOADS[row.workload].convolutions else []
        command += ["--weights", self.weights_file(row)] if self.weights_file(row).exists() else []
        folder = pathlib.Path(self.scratch.name) / "inductor"
        return self.call(command, SECONDS[mode], {"TORCHINDUCTOR_CACHE_DIR": str(folder)})

    def visit(self, name, side):
        row = self.rows[name]
        if side == "weft":
            write = ["--write-weights", self.weights_file(row)] if row.weights else []
            seen = self.weft(row, "--steps", row.steps, *write)
        elif not self.args.python:
            seen = {"error": "no PyTorch"}
        else:
            seen = self.peer(row, side)
        self.visits[name][side] = seen
        self.say(row.title, side, seen)

    def measure_start(self):
        """Measures from process start to the end of the first step, minus the time of a step."""
        for state in ("cold", "warm"):
            seen = self.weft(self.rows["gpt2"], "--steps", 1, cache="start")
            if "error" not in seen:
                seen["start_s"] = seen["first_step_done_s"] - seen["median_ms"] / 1e3
            self.start[state] = seen
            self.say("start to first step, GPT-2", state, seen, "start_s")

    def measure_lean(self):
        """Measures GPT-2 within the memory of its goal."""
        row = self.rows["gpt2"]
        limit = [] if self.args.small else ["--memory", MEMORY]
        self.lean = self.weft(row, "--steps", row.steps, *limit)
        self.say(row.title, f"in {MEMORY}", self.lean)

    def say(self, title, side, seen, key="median_ms"):
        text = seen.get("error") or f"{seen[key]:.4g} {'ms' if key == 'median_ms' else 's'}"
        if "error" in seen and seen["error"] not in (OUT_OF_TIME, "no PyTorch"):
            self.failed.append(f"{title}, {side}: {text}")
        print(f"{title:55} {side:8} {text}", flush=True)

    def run(self):
        for name, row in self.rows.items():
            sides = ["weft", "eager"]
            if name == "gpt2" and row.compiled:  # the most informative row is measured completely
                sides = ["weft", "compile", "eager"]
            for side in sides:
                self.visit(name, side)
                self.write()
            self.compare_losses(name)
            if name == "gpt2":
                self.measure_start()
                self.measure_lean()
                self.write()
        # The slowest compilation comes last.
        for name in sorted(self.rows, key=lambda n: n == "gpt2-xl"):
            if self.rows[name].compiled and "compile" not in self.visits[name]:
                self.visit(name, "compile")
                self.write()

    def compare_losses(self, name):
        row, ours, theirs = self.rows[name], *(self.visits[name].get(s, {}) for s in ("weft", "eager"))
        if not row.weights or "losses" not in ours or "losses" not in theirs:
            return
        off = self.distance(ours, theirs)
        self.visits[name]["loss_off"] = off
        if not off <= row.loss_off:
            cure = self.find_cure(row, theirs)
            self.visits[name]["cure"] = cure
            self.failed.append(f"{row.title}: losses are {off:.2g} apart, allowed {row.loss_off}; "
                               f"{cure}")

    def distance(self, ours, theirs):
        """Returns the difference of the losses, relative to the first."""
        pairs = list(zip(ours["losses"], theirs["losses"]))
        # With few samples batch norm is unstable: a trial compares the first loss only.
        return max(abs(a - b) for a, b in pairs[:1 if self.args.small else None]) / abs(pairs[0][0])

    def find_cure(self, row, theirs):
        """Finds the switch that, turned off alone, gives the losses of the peer."""
        cures, tried = [], 0
        for switch in SWITCHES:
            seen = self.weft(row, "--steps", row.steps, extra={"WEFT_CUDA_OFF": switch})
            tried += "losses" in seen
            if "losses" in seen and self.distance(seen, theirs) <= row.loss_off:
                cures.append(switch)
        return (f"cured by WEFT_CUDA_OFF={' or '.join(cures)}" if cures else
                f"cured by none of {tried} switches") + \
            ("" if tried == len(SWITCHES) else f" ({len(SWITCHES) - tried} were not tried)")

    def floor_ms(self, ours, ceiling):
        return ceiling.floor_ms(ours["least_flops"], ours["least_bytes"])

    def write(self):
        """Writes after each visit, so that results survive a later failure."""
        if self.args.json:
            self.args.json.write_text(json.dumps(
                {"command": shlex.join(["bench/peers/gpu.py", *sys.argv[1:]]), "gpu": self.gpu,
                 "visits": self.visits, "start": self.start, "lean": self.lean,
                 "failed": self.failed}, indent=1) + "\n")
        if self.args.markdown:
            rows, others = tables(self)
            self.args.markdown.write_text(markdown(rows, HEAD) + "\n\n" +
                                          markdown(others, ["", "measured", "goal"]) + "\n")


def milliseconds(seen):
    if "median_ms" in seen:
        return f"{seen['median_ms']:.4g}"
    return "-" if not seen else seen["error"] if seen["error"] in (OUT_OF_TIME, "no PyTorch") \
        else "failed"


def verdict(reached, goal, text):
    return f"{text} {'met' if reached >= goal else 'missed'}"


def cells(check, name):
    row, visits = check.rows[name], check.visits[name]
    ours = visits.get("weft", {})
    text = [row.title, milliseconds(ours), milliseconds(visits.get("eager", {})),
            milliseconds(visits.get("compile", {})) if row.compiled else "-"]
    if "median_ms" not in ours:
        return [*text, "-", "-", "-", "-", "-"]
    time_ms = ours["median_ms"]
    peers = [visits[s]["median_ms"] for s in ("eager", "compile") if "median_ms" in visits.get(s, {})]
    ratio = min(peers) / time_ms if peers else None
    goals = []
    if row.ratio:
        goals.append(verdict(ratio, row.ratio, f"{row.ratio:g}x") if ratio else
                     f"{row.ratio:g}x not measured")
    floor_text = "-"
    if ceiling := check.ceiling:
        floor = check.floor_ms(ours, ceiling)
        floor_text = f"{floor:.3g} ms: {100 * floor / time_ms:.0f} %"
        if row.rate:
            rate = row.rate * check.floor_ms(ours, H200) / floor
            goals.append(verdict(ours["items_per_s"], rate, f"{rate:,.0f}/s"))
        if row.bandwidth:
            goals.append(verdict(ours["items_per_s"] / ceiling.bandwidth, row.bandwidth,
                                 f"{100 * row.bandwidth:.0f} % of {ceiling.bandwidth / 1e12} TB/s"))
    return [*text, f"{ratio:.2f}" if ratio else "-", f"{ours['items_per_s']:,.0f}", floor_text,
            f"{visits['loss_off']:.1e}" if "loss_off" in visits else "-", "; ".join(goals)]


HEAD = ["row", "weft, ms", "eager, ms", "compile, ms", "ratio to the best", "items/s",
        "floor reached", "losses off", "goals"]


def other_rows(check):
    for state, goal in (("cold", COLD), ("warm", WARM)):
        if seen := check.start.get(state):
            reached = seen.get("start_s")
            yield [f"start to first step, GPT-2 124M, {state} cache, s",
                   f"{reached:.2f}" if reached else milliseconds(seen),
                   verdict(-reached, -goal, f"{goal:g} s") if reached else "-"]
    visits = check.visits.get("gpt2", {})
    seen = {side: visits.get(side, {}) for side in ("weft", "eager", "compile")}
    seen[f"weft in {MEMORY}"] = check.lean
    text = [f"{side} {visit['device_gb']:.1f}" for side, visit in seen.items()
            if "device_gb" in visit]
    if text:
        yield ["device memory of GPT-2 124M, GB", "; ".join(text), "-"]
    if check.lean:
        ours, lean = visits.get("weft", {}).get("median_ms"), check.lean.get("median_ms")
        goal = f"{MEMORY} met" if lean else f"{MEMORY} not measured"
        yield [f"GPT-2 124M in {MEMORY}, ms", milliseconds(check.lean),
               f"{goal}, {lean / ours:.2f} times as long" if ours and lean else goal]


def tables(check):
    return [cells(check, name) for name in check.rows], list(other_rows(check))


def table(rows, head):
    widths = [max(len(r[i]) for r in [head, *rows]) for i in range(len(head))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(r, widths)).rstrip()
                     for r in [head, *rows])


def markdown(rows, head):
    return "\n".join("| " + " | ".join(r) + " |" for r in [head, ["---"] * len(head), *rows])


def has_torch(python):
    done = subprocess.run([python, "-c", "import importlib.util as u, sys; "
                           "sys.exit(not (u.find_spec('torch') and u.find_spec('numpy')))"],
                          capture_output=True)
    return done.returncode == 0


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(ROWS)}")
    parser.add_argument("--weft", type=lambda s: pathlib.Path(s).resolve(), required=True)
    parser.add_argument("--python", default=sys.executable, help="one that has PyTorch and NumPy")
    parser.add_argument("--device", default="cuda", help="weft's; PyTorch's is cuda or else cpu")
    parser.add_argument("--budget", type=float, default=400, help="seconds of everything")
    parser.add_argument("--small", action="store_true", help="small sizes, to try all of this out")
    parser.add_argument("--cache", type=pathlib.Path,
                        help="weft's cache of kernels and selections for the rows (default: a new one)")
    parser.add_argument("--json", type=pathlib.Path, help="everything that was seen")
    parser.add_argument("--markdown", type=pathlib.Path, help="the table, for docs/benchmarks-gpu.md")
    args = parser.parse_args()
    if unknown := [name for name in args.rows if name not in ROWS]:
        parser.error(f"no row named {unknown[0]}; there are {', '.join(ROWS)}")
    args.rows = args.rows or [name for name in ROWS if not (args.small and name == "gpt2-xl")]
    if not args.weft.is_file():
        parser.error(f"--weft {args.weft} is not a file")
    if not has_torch(args.python):
        print(f"gpu.py: {args.python} has no PyTorch and NumPy: weft runs alone", file=sys.stderr)
        args.python = None
    return args


def main():
    args = parse()
    check = Check(args)
    check.run()
    check.write()
    rows, others = tables(check)
    print(f"\n{check.gpu}" + ("" if check.ceiling else ": no floors and no rates are known of it"))
    print(table(rows, HEAD))
    if others:
        print("\n" + table(others, ["", "measured", "goal"]))
    for text in check.failed:
        print(f"failed: {text}")
    sys.exit(1 if check.failed else 0)


if __name__ == "__main__":
    main()
