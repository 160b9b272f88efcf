#!/usr/bin/env python3
"""Whether one build is slower than another: the rows of `weft bench`, both in turn.

    tools/compare_builds.py BEFORE NOW [ROW ...]    make bench-compare BEFORE=../old/build/release

A ROW is a workload with its flags ("resnet50 --batch 8"); without one, those of ROWS. Builds take
turns within each of ROUNDS rounds, as a shared machine's speed drifts, and each keeps its own cache
of kernels. What is shown are median milliseconds of a step, and now over before; planning is CPU
seconds. Exit code 1: a row takes more than LIMIT times as long.
"""
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile

LIMIT = 1.05
ROUNDS = 3
SECONDS = 4  # of steps, for each run of a row
ROWS = ("mlp", "mnist-conv", "gpt-char", "resnet20", "lstm", "bert", "gpt2", "resnet50 --batch 8",
        "alexnet --batch 32", "gpt-char --precision bf16-mixed", "gpt2 --precision bf16-mixed",
        "resnet50 --batch 8 --precision bf16-mixed", "adamw", "softmax", "layer-norm", "gelu",
        "cross-entropy")
PLAN = ("plan", "recipes/llama-7b.yaml", "--on", "h200")


def run(weft, arguments, cache):
    done = subprocess.run([weft, *arguments], capture_output=True, text=True,
                          env={**os.environ, "WEFT_CACHE_DIR": cache})
    if done.returncode != 0:
        sys.exit(f"{weft} {' '.join(arguments)}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def milliseconds(weft, row, steps, cache):
    return json.loads(run(weft, ["bench", *row.split(), "--json", "--steps", str(steps)],
                          cache))["median_ms"]


def cpu_seconds(weft, cache):
    def used():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = used()
    run(weft, PLAN, cache)
    return used() - before


def compare(name, measure):
    """Prints the row and returns how many times as long the second build takes."""
    times = ([], [])
    for turn in range(ROUNDS):
        for i in (0, 1) if turn % 2 == 0 else (1, 0):
            times[i].append(measure(i))
    before, now = map(statistics.median, times)
    print(f"| {name} | {before:.4g} | {now:.4g} | {now / before:.2f} |", flush=True)
    return now / before


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    builds = [pathlib.Path(path) / "weft" for path in sys.argv[1:3]]
    for weft in builds:
        if not weft.exists():
            sys.exit(f"{weft} does not exist: build that tree first")
    print(f"load {os.getloadavg()[0]:.1f}\n\n| row | before | now | now over before |\n"
          "|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as caches:
        cache = [f"{caches}/{i}" for i in (0, 1)]
        slower = []
        for row in sys.argv[3:] or ROWS:
            first = max(milliseconds(builds[i], row, 2, cache[i]) for i in (0, 1))
            steps = max(3, int(SECONDS * 1000 / first))
            if compare(row, lambda i: milliseconds(builds[i], row, steps, cache[i])) > LIMIT:
                slower.append(row)
        if len(sys.argv) == 3:
            if compare("planning Llama 7B", lambda i: cpu_seconds(builds[i], cache[i])) > LIMIT:
                slower.append("planning")
    if slower:
        sys.exit(f"more than {LIMIT} times as long: {', '.join(slower)}")


if __name__ == "__main__":
    main()
