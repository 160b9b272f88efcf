#!/usr/bin/env python3
"""weft beside its peers, in turn, each visit in a process of its own.

    python bench/peers/run.py --weft build/weft --python peers-venv/bin/python gpt2-4x64 mlp
    python bench/peers/run.py --weft build/weft --python peers-venv/bin/python --all
    python bench/peers/run.py --weft build/weft --text tinyshakespeare.txt train-characters

A visit is weft, then a peer's setting; the next visit is weft again, then the next setting. The
ratio of a pair is the peer's time over weft's just before it, so a machine that slows down for an
hour does not move it. Peers far behind the best are left out after the first round (--keep).
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

from report import markdown, table
from workloads import CASES, WORKLOADS

HERE = pathlib.Path(__file__).resolve().parent
DEFAULT = ["gpt2-4x64", "gpt2-1x1024", "gpt2-4x256-bf16", "gpt-char", "resnet20", "mnist-conv",
           "mlp"]
RECIPE = HERE.parent.parent / "recipes" / "shakespeare.yaml"
# glibc hands large blocks back at every free and faults them in again; kept, some steps take half.
KEEP_PAGES = ("glibc.malloc.mmap_max=0:glibc.malloc.mmap_threshold=4294967296:"
              "glibc.malloc.trim_threshold=34359738368")
MAKE_ENVIRONMENT = """make an environment and name its Python:
    python3 -m venv peers-venv
    peers-venv/bin/pip install torch==2.13.0 jax jaxlib optax
    python3 bench/peers/run.py --python peers-venv/bin/python ..."""


def versions_of(python):
    """Which of the peers this Python can import, and their versions."""
    found = {}
    for name in ("torch", "jax", "optax"):
        code = f"import importlib.metadata as m; print(m.version('{name}'))"
        try:
            done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60)
        except (OSError, subprocess.TimeoutExpired) as error:
            sys.exit(f"run.py: cannot start the peers' Python {python}: {error}.\n"
                     f"To {MAKE_ENVIRONMENT}")
        if done.returncode == 0:
            found[name] = done.stdout.strip()
    return found


def peer_settings(case, installed, wanted):
    """Name of a setting -> its script and flags, for every setting this case can have.

    A name that ends in "+malloc" also runs with KEEP_PAGES.
    """
    workload, settings = WORKLOADS[case.workload], {}
    if "torch" in installed:
        settings = {"eager": ["torch_peer.py", "--mode", "eager"],
                    "compile": ["torch_peer.py", "--mode", "compile"]}
        if case.workload == "adamw":
            del settings["compile"]  # the fused update is one kernel already
        if workload.convolutions:
            settings |= {f"{name}-channels-last": [*command, "--channels-last"]
                         for name, command in list(settings.items())}
        settings |= {f"{name}+malloc": command for name, command in list(settings.items())}
    if workload.jax and {"jax", "optax"} <= installed.keys():
        settings["jax"] = ["jax_peer.py"]
    return {k: v for k, v in settings.items() if not wanted or k in wanted}


class Runner:
    """Starts the processes, all with the same threads on the same cores."""

    def __init__(self, args):
        self.args = args
        self.cores = sorted(os.sched_getaffinity(0))[:args.threads]
        self.scratch = tempfile.TemporaryDirectory(prefix="weft-peers-")
        threads = str(args.threads)
        self.environment = os.environ | {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads,
                                         "WEFT_THREADS": threads}

    def call(self, command, cache="shared", keep_pages=False):
        """The last JSON line that the command prints, with wall seconds; a failure has `error`."""
        print("  $", shlex.join(map(str, command)), file=sys.stderr, flush=True)
        # A fresh folder per case: the first visit compiles cold, the later ones warm.
        extra = {"TORCHINDUCTOR_CACHE_DIR": os.path.join(self.scratch.name, cache)}
        extra |= {"GLIBC_TUNABLES": KEEP_PAGES} if keep_pages else {}
        start, load = time.perf_counter(), os.getloadavg()[0]
        try:
            done = subprocess.run(
                list(map(str, command)), capture_output=True, text=True, cwd=self.scratch.name,
                timeout=self.args.timeout, env=self.environment | extra,
                preexec_fn=lambda: os.sched_setaffinity(0, self.cores))
        except (OSError, subprocess.TimeoutExpired) as error:
            return {"error": str(error)}
        wall = time.perf_counter() - start
        for line in reversed(done.stdout.splitlines()):
            if line.startswith("{") and done.returncode == 0:
                return json.loads(line) | {"wall_s": round(wall, 2), "load_before": round(load, 2)}
        last = (done.stderr.strip().splitlines() or ["printed no JSON line"])[-1]
        return {"error": f"exit {done.returncode}: {last}"}

    def weft(self, case):
        command = [self.args.weft, "bench", case.workload, "--json", *self.sizes(case)]
        return self.call(command + (["--precision", "bf16-mixed"] if case.precision == "bf16" else []))

    def weights(self, case):
        """Flags that give a peer the weights from which weft starts; none where it has no such."""
        if not self.args.weft or not WORKLOADS[case.workload].weights:
            return []
        path = os.path.join(self.scratch.name, "weights.safetensors")  # of the last case
        done = self.call([self.args.weft, "bench", case.workload, "--json", "--steps", 1,
                          *self.sizes(case, steps=False), "--write-weights", path])
        return [] if "error" in done else ["--weights", path]

    def peer(self, case, command, cache, keep_pages):
        script, *flags = command
        return self.call([self.args.python, HERE / script, case.workload, *flags, "--precision",
                          case.precision, *self.sizes(case)], cache, keep_pages)

    def sizes(self, case, steps=True):
        flags = ["--threads", self.args.threads]
        flags += ["--steps", max(7, self.args.steps or case.steps)] if steps else []
        flags += ["--batch", case.batch] if case.batch else []
        return flags + (["--length", case.length] if case.length else [])


def visit_in_turn(run_weft, run_peer, settings, visits, keep):
    """weft, A, weft, B, ... for each round; returns {side: [visit, ...]}, weft's under "weft".

    Each peer visit carries `ratio`, its time over that of the weft visit just before it.
    """
    seen = {"weft": [], **{name: [] for name in settings}}
    running = list(settings)
    for _ in range(visits):
        for name in running or [None]:
            ours = run_weft() if run_weft else None
            if ours:
                seen["weft"].append(ours)
            if name is None:
                continue
            theirs = run_peer(name)
            if ours and "error" not in ours and "error" not in theirs:
                theirs["ratio"] = theirs["time"] / ours["time"]
            seen[name].append(theirs)
        # least times, as one disturbed visit must not drop a peer; what failed once fails again
        times = {name: least(seen[name]) for name in running}
        best = min((t for t in times.values() if t), default=None)
        running = [n for n in running if times[n] and times[n] <= keep * best]
        if not running and not (run_weft and any("error" not in v for v in seen["weft"])):
            break
    return seen


def least(visits):
    return min((v.get("best_ms", v["time"]) for v in visits if "error" not in v), default=None)


def summary(visits):
    """One side of one case: median of visits, their spread, and the best of the other numbers."""
    good = [v for v in visits if "error" not in v]
    if not good:
        return {"error": visits[-1]["error"] if visits else "not run"}
    times = sorted(v["time"] for v in good)
    row = {"time": statistics.median(times), "least": times[0], "most": times[-1],
           "visits": len(good)}
    middle = min(good, key=lambda v: abs(v["time"] - row["time"]))
    for key in ("items_per_s", "loss", "system"):
        if key in middle:
            row[key] = middle[key]
    for key, choose in (("best_ms", min), ("peak_rss_gb", min)):
        values = [v[key] for v in good if v.get(key) is not None]
        if values:
            row[key] = choose(values)
    firsts = [v["first_step_done_s"] for v in good if v.get("first_step_done_s") is not None]
    if firsts:
        row["first_step_cold_s"], row["first_step_s"] = firsts[0], min(firsts)
    ratios = [v["ratio"] for v in good if "ratio" in v]
    if ratios:
        row |= {"ratio": statistics.median(ratios), "ratio_least": min(ratios),
                "ratio_most": max(ratios)}
    return row


def compare(name, unit, seen):
    sides = {side: summary(visits) for side, visits in seen.items() if visits}
    peers = {k: v for k, v in sides.items() if k != "weft" and "error" not in v}
    best = min(peers, key=lambda k: peers[k]["time"]) if peers else None
    loss = sides.get("weft", {}).get("loss")
    for peer in peers.values():
        if loss and peer.get("loss"):
            peer["loss_off"] = abs(peer["loss"] - loss) / abs(loss)
    return {"case": name, "unit": unit, "best_peer": best, "sides": sides, "visits": seen}


def with_time(numbers, key, scale=1.0):
    if "error" not in numbers and numbers.get(key) is None:
        return {"error": f"the JSON line has no {key}"}
    return numbers | ({} if "error" in numbers else {"time": numbers[key] * scale})


def run_case(runner, name, case, installed, args):
    weights = runner.weights(case)
    settings = {name: [*command, *weights]
                for name, command in peer_settings(case, installed, args.peers).items()}
    seen = visit_in_turn(
        (lambda: with_time(runner.weft(case), "median_ms")) if args.weft else None,
        lambda setting: with_time(runner.peer(case, settings[setting], name,
                                              setting.endswith("+malloc")), "median_ms"),
        settings, args.visits, args.keep)
    return compare(name, "ms", seen)


def run_train_characters(runner, installed, args):
    """2,000 steps of nanoGPT's character setting and one validation: seconds of the process."""
    if not args.text:
        sys.exit("run.py: train-characters needs --text FILE (the tiny Shakespeare text)")
    steps, text = args.steps or 2000, args.text.resolve()
    settings = [m for m in ("eager", "compile", "eager+malloc", "compile+malloc")
                if "torch" in installed and (not args.peers or m in args.peers)]

    def weft():
        return runner.call([args.weft, "train", args.recipe.resolve(), "--data.path", text,
                            "--steps", steps, "--eval.every", steps, "--name",
                            "train-characters", "--overwrite", "--json"])

    def peer(setting):
        mode, _, pages = setting.partition("+")
        return runner.call([args.python, HERE / "torch_peer.py", "train-characters", "--text", text,
                            "--mode", mode, "--steps", steps, "--threads", args.threads],
                           "train-characters", bool(pages))

    seen = visit_in_turn((lambda: with_time(weft(), "wall_s")) if args.weft else None,
                         lambda mode: with_time(peer(mode), "wall_s"), settings, args.visits,
                         args.keep)
    return compare("train-characters", "s", seen)


def machine():
    processor = platform.processor() or platform.machine()
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            processor = line.split(":", 1)[1].strip()
            break
    return {"processor": processor, "cores": len(os.sched_getaffinity(0)),
            "system": f"{platform.system()} {platform.release()}"}


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE",
                        help=f"of {', '.join([*CASES, 'train-characters'])}; "
                             f"default: {' '.join(DEFAULT)}")
    parser.add_argument("--all", action="store_true", help="every case but train-characters")
    parser.add_argument("--weft", type=pathlib.Path, help="the program; without it peers only")
    parser.add_argument("--python", default=sys.executable, help="Python that has the peers")
    parser.add_argument("--peers", type=lambda s: s.split(","),
                        help="only these settings: eager, compile, eager-channels-last, "
                             "compile-channels-last, each also with +malloc; jax")
    parser.add_argument("--visits", type=int, default=3, help="rounds of every setting")
    parser.add_argument("--steps", type=int, help="timed steps of a visit (seven at least)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--keep", type=float, default=1.5,
                        help="later rounds have peers within this factor of the best peer")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds of one process")
    parser.add_argument("--text", type=pathlib.Path, help="text of train-characters")
    parser.add_argument("--recipe", type=pathlib.Path, default=RECIPE)
    parser.add_argument("--json", type=pathlib.Path, help="write everything that was seen")
    parser.add_argument("--markdown", type=pathlib.Path, help="write the table")
    args = parser.parse_args()
    args.cases = list(CASES) if args.all else args.cases or DEFAULT
    unknown = [c for c in args.cases if c not in CASES and c != "train-characters"]
    if unknown:
        parser.error(f"no case named {unknown[0]}; there are {', '.join(CASES)}, "
                     "train-characters")
    if args.weft:
        args.weft = args.weft.resolve()
        if not args.weft.is_file():
            parser.error(f"--weft {args.weft} is not a file; build it, or leave --weft away")
    return args


def main():
    args = parse()
    installed = versions_of(args.python)
    if "torch" not in installed:
        sys.exit(f"run.py: PyTorch is missing in {args.python}.\nTo run the peers, "
                 f"{MAKE_ENVIRONMENT}")
    if not {"jax", "optax"} <= installed.keys():
        print("run.py: JAX or optax is missing, so its settings are left out "
              "(pip install jax jaxlib optax)", file=sys.stderr)
    if os.getloadavg()[0] > 0.5:
        print(f"run.py: the machine is busy (load {os.getloadavg()[0]:.1f}); OpenMP threads that "
              "spin suffer most, so expect wide spreads", file=sys.stderr)
    runner = Runner(args)
    document = {"date": datetime.date.today().isoformat(), "machine": machine(),
                "versions": installed, "threads": args.threads,
                "command": shlex.join(["run.py", *sys.argv[1:]]), "results": []}
    for name in args.cases:
        print(f"{name}:", file=sys.stderr, flush=True)
        if name == "train-characters":
            result = run_train_characters(runner, installed, args)
        else:
            result = run_case(runner, name, CASES[name], installed, args)
        document["results"].append(result)
        print(table([result]), flush=True)
        if args.json:  # after every case, so that a long run can be stopped
            args.json.write_text(json.dumps(document, indent=1) + "\n")
        if args.markdown:
            args.markdown.write_text(markdown(document))
    if len(args.cases) > 1:
        print("\n" + table(document["results"]))


if __name__ == "__main__":
    main()
