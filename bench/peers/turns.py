"""Starts weft and its peers, each visit in its own process, and alternates between them."""
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

from workloads import WORKLOADS

HERE = pathlib.Path(__file__).resolve().parent
# glibc returns large blocks at every free and faults them in again; kept, some steps take half.
KEEP_PAGES = ("glibc.malloc.mmap_max=0:glibc.malloc.mmap_threshold=4294967296:"
              "glibc.malloc.trim_threshold=34359738368")


class Runner:
    """Starts the processes, all with the same threads on the same cores."""

    def __init__(self, args):
        self.args = args
        self.cores = sorted(os.sched_getaffinity(0))[:args.threads]
        self.scratch = tempfile.TemporaryDirectory(prefix="weft-peers-")
        self.inductor = args.inductor_cache or pathlib.Path(self.scratch.name)
        threads = str(args.threads)
        self.environment = os.environ | {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads,
                                         "WEFT_THREADS": threads}

    def output(self, command, extra=None):
        """Returns a command's output, with wall seconds and the load before; throws OSError."""
        print("  $", shlex.join(map(str, command)), file=sys.stderr, flush=True)
        start, load = time.perf_counter(), os.getloadavg()[0]
        done = subprocess.run(
            list(map(str, command)), capture_output=True, text=True, cwd=self.scratch.name,
            timeout=self.args.timeout, env=self.environment | (extra or {}),
            preexec_fn=lambda: os.sched_setaffinity(0, self.cores))
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["printed nothing"])[-1]
            raise OSError(f"exit {done.returncode}: {last}")
        return done.stdout, time.perf_counter() - start, load

    def call(self, command, extra=None):
        """Returns the last JSON line that the command prints; a failure has `error`."""
        try:
            text, wall, load = self.output(command, extra)
        except (OSError, subprocess.TimeoutExpired) as error:
            return {"error": str(error)}
        for line in reversed(text.splitlines()):
            if line.startswith("{"):
                return json.loads(line) | {"wall_s": round(wall, 2), "load_before": round(load, 2)}
        return {"error": "printed no JSON line"}

    def weft(self, case, *flags, steps=True, extra=None):
        command = [self.args.weft, "bench", case.workload, "--device", "cpu", "--json",
                   *self.sizes(case, steps)]
        if case.precision == "bf16":
            command += ["--precision", "bf16-mixed"]
        return self.call([*command, *flags], extra)

    def peaks(self):
        """Measures the peaks of the machine now."""
        with tempfile.TemporaryDirectory(dir=self.scratch.name) as empty:
            command = [self.args.weft, "devices", "--measure", "--json"]
            text, _, _ = self.output(command, {"WEFT_CACHE_DIR": empty})
        found = json.loads(text)
        return found["peak_gflops"] | {"bandwidth": found["bandwidth_gb_per_s"]}

    def weights(self, case):
        """Returns flags that give a peer weft's initial weights; none where the model has none."""
        if not self.args.weft or not WORKLOADS[case.workload].model:
            return []
        path = os.path.join(self.scratch.name, "weights.safetensors")  # of the last case
        done = self.weft(case, "--steps", 1, "--write-weights", path, steps=False)
        return [] if "error" in done else ["--weights", path]

    def peer(self, case, setting, *flags):
        """A setting is eager, compile or jax, with -channels-last, +malloc (KEEP_PAGES) or both."""
        name, _, malloc = setting.partition("+")
        mode, _, last = name.partition("-")
        script = ["jax_peer.py"] if mode == "jax" else ["torch_peer.py", "--mode", mode]
        command = [self.args.python, HERE / script[0], case.workload, *script[1:],
                   *(["--channels-last"] if last else []), "--precision", case.precision,
                   *self.sizes(case), *flags]
        extra = {"TORCHINDUCTOR_CACHE_DIR": str(self.inductor / case.workload)}
        return self.call(command, extra | ({"GLIBC_TUNABLES": KEEP_PAGES} if malloc else {}))

    def sizes(self, case, steps=True):
        flags = ["--threads", self.args.threads]
        flags += ["--steps", self.args.steps or case.steps] if steps else []
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
        # Uses least times, as one disturbed visit must not drop a peer; a failed peer would fail
        # again.
        times = {name: least(seen[name]) for name in running}
        best = min((t for t in times.values() if t), default=None)
        running = [n for n in running if times[n] and times[n] <= keep * best]
        if not running and not (run_weft and any("error" not in v for v in seen["weft"])):
            break
    return seen


def least(visits):
    return min((v.get("best_ms", v["time"]) for v in visits if "error" not in v), default=None)


def summary(visits):
    """Summarizes one side of a case: median of visits, spread, best of the other numbers."""
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
