"""Measures what the table needs of weft besides a step's time: limits, start, memory, dispatch."""
import os
import statistics
import tempfile

from workloads import CASES


def limits(runner, case):
    """Returns the floor of a step and the time of its products alone, with peaks measured just
    before. The floor is operations over the peak (for a workload of rows: its arithmetic on rows
    that stay in the caches), or least bytes over the bandwidth, whichever takes longer."""
    peaks = runner.peaks()
    line = runner.weft(case, "--steps", 2, "--ceiling", steps=False)
    if "error" in line:
        return line
    compute = line.get("arithmetic_ms") or sum(flops / peaks[kind if kind in peaks else "f32"]
                                              for kind, flops in line["least_flops"].items()) / 1e6
    memory = line["least_bytes"] / peaks["bandwidth"] / 1e6
    return {"peaks": peaks, "compute_ms": compute, "memory_ms": memory,
            "floor_ms": max(compute, memory), "products_ms": line.get("products_ms"),
            "kernels": line["kernels"]} | {
                key: line[key] for key in ("arena_bytes", "used_arena_bytes",
                                           "planned_process_bytes", "peak_rss_gb")}


def profile(runner, case):
    """Returns the time of a step by kind of operation."""
    command = [runner.args.weft, "profile", case.workload, "--json", "--steps", 3]
    command += ["--batch", case.batch] if case.batch else []
    command += ["--length", case.length] if case.length else []
    command += ["--precision", "bf16-mixed"] if case.precision == "bf16" else []
    line = runner.call(command)
    if "error" in line:
        return line
    return {key: line[key] for key in ("median_ms", "kernels_ms", "operations", "bottleneck")} | {
        "roofline_ms": sum(k["ms"] * k.get("roofline", 0) for k in line["kernels"])}


def start(runner, times=3):
    """Returns the seconds from process start to the end of the first step, minus a step's time."""
    case = CASES["gpt2-4x64"]
    weights = runner.weights(case)

    def seconds(line):
        return None if "error" in line else line["first_step_done_s"] - line["median_ms"] / 1e3

    with tempfile.TemporaryDirectory(dir=runner.scratch.name) as empty:
        flags = [*weights, "--steps", 2]
        cold = seconds(runner.weft(case, *flags, steps=False, extra={"WEFT_CACHE_DIR": empty}))
        warm, eager = [], []
        for _ in range(times):
            warm.append(seconds(runner.weft(case, *flags, steps=False)))
            eager.append(seconds(runner.peer(case, "eager", *weights)))
    return {"cold": cold, "warm": middle(warm), "eager": middle(eager)}


def middle(values):
    good = [v for v in values if v is not None]
    return statistics.median(good) if good else None


def dispatch(runner, times=3):
    """Returns the nanoseconds of a kernel that computes one element."""
    program = runner.args.weft.parent / "bench" / "dispatch"
    texts = [runner.output([program])[0] for _ in range(times)] if os.access(program, os.X_OK) else []
    return {"ns": middle([float(text.split()[0]) for text in texts])}
